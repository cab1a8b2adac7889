"""What the router answers itself: its health, and the models of its fleet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from router.edge.routes.routes import HEALTH, MODELS, is_anthropic
from router.edge.wire.answers import JSON
from router.errors import ClientError
from router.framing.writing import status_line
from router.state.fleet.names import unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.edge.context import Door
    from router.framing.events import RequestHead
    from router.state.fleet.names import ModelNames, Served

_SHOWN: Final = 200
_LONG_AGO: Final = "1970-01-01T00:00:00Z"
"""Engines do not tell when a model was made."""


def own_answer(
    path: str, head: RequestHead, door: Door, may_use: Callable[[str], bool] | None = None
) -> tuple[bytes, bytes]:
    """Status line with headers, and body, of what the router answers itself.

    Models that the caller may not use are not told.

    Raises:
        ClientError: no such model is served.
    """
    if path == HEALTH:
        is_ready = door.core.is_ready
        body: object = {"status": "ok" if is_ready else "no-replica-ready"}
        return status_line(200 if is_ready else 503) + JSON, _json(body)
    shape = _anthropic_model if is_anthropic(head) else _openai_model
    if path != MODELS:
        name = unquote(path[len(MODELS) + 1 :])
        served = door.names.find(name) if name else None
        if may_use is not None and not (may_use(name) or (served and may_use(served.full))):
            raise ClientError("unknown-model", f"There is no model {name[:_SHOWN]!r} for this key.")
        if served is None:
            raise unknown(name, door.names)
        return status_line(200) + JSON, _json(shape(name, served))
    models = [shape(name, served) for name, served in _listed(door.names, may_use)]
    if is_anthropic(head):
        ends = [model["id"] for model in models]
        first, last = (ends[0], ends[-1]) if ends else (None, None)
        listed = {"data": models, "has_more": False, "first_id": first, "last_id": last}
    else:
        listed = {"object": "list", "data": models}
    return status_line(200) + JSON, _json(listed)


def _listed(names: ModelNames, may_use: Callable[[str], bool] | None) -> list[tuple[str, Served]]:
    """Every name that a client may use: models, adapters, then aliases; each once."""
    found = {name: served for name in names.models if (served := names.find(name)) is not None}
    rows = {**found, **names.adapters, **names.aliases}.items()
    return [row for row in rows if may_use is None or may_use(row[0]) or may_use(row[1].full)]


def _openai_model(name: str, served: Served) -> dict[str, Any]:
    """As SGLang tells it: an adapter has its model as parent. An alias has what it stands for."""
    parent = served.base if served.adapter else None
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "homeport",
        "root": served.full,
        "parent": parent,
    }


def _anthropic_model(name: str, served: Served) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": served.full, "created_at": _LONG_AGO}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
