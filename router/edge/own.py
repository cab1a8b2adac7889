"""What the router answers itself: its health, and the models of its fleet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from router.edge.answers import JSON
from router.edge.routes import HEALTH, MODELS
from router.errors import ClientError
from router.framing.writing import status_line

if TYPE_CHECKING:
    from router.core import RouterCore

_SHOWN: Final = 200
"""Characters of what a client sent that an error repeats."""


def own_answer(path: str, core: RouterCore) -> tuple[bytes, bytes]:
    """Status line with headers, and body, of what the router answers itself."""
    if path == HEALTH:
        is_ready = core.is_ready
        body: object = {"status": "ok" if is_ready else "no-replica-ready"}
        return status_line(200 if is_ready else 503) + JSON, _json(body)
    models = [_model(name) for name in core.models()]
    if path == MODELS:
        return status_line(200) + JSON, _json({"object": "list", "data": models})
    name = unquote(path[len(MODELS) + 1 :])
    for model in models:
        if model["id"] == name:
            return status_line(200) + JSON, _json(model)
    raise ClientError("unknown-path", f"No replica serves a model {name[:_SHOWN]!r}.")


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "homeport"}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
