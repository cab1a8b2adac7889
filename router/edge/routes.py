"""What a path and method lead to: a dialect, an answer of the router's own, or an error."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from router.edge.answers import JSON
from router.errors import ClientError
from router.framing.decoding import CODINGS, is_read
from router.framing.writing import status_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from router.core import RouterCore
    from router.dialect.base import Dialect
    from router.edge.limits import EdgeLimits
    from router.errors import RouterError
    from router.framing.events import RequestHead

_DEFAULT_PATH: Final = "/v1/chat/completions"
_MODELS: Final = "/v1/models"
_HEALTH: Final = "/health"
_READING: Final = (b"GET", b"HEAD")
_SHOWN: Final = 200
"""Characters of what a client sent that an error repeats."""


@dataclass(slots=True)
class Route:
    """Where one request goes. ``dialect`` shapes its errors, and serves it if ``is_generation``.

    ``error`` is what is wrong with the head, None if nothing. ``is_other``: the path is one of the
    engine's own, which not every tenant may use.
    """

    path: str
    dialect: Dialect
    is_generation: bool
    error: RouterError | None
    is_other: bool = False


def route(head: RequestHead, dialects: Mapping[str, Dialect], limits: EdgeLimits) -> Route:
    """Find where a request goes, and what its head alone rules out."""
    path = head.path.decode("ascii", "replace")
    dialect = dialects.get(path)
    if dialect is None:
        return Route(
            path, nearest(path, dialects), is_generation=False, error=_own(path, head, dialects)
        )
    error = None
    if head.method != b"POST":
        error = ClientError(
            "method-not-allowed", f"{path} takes POST, not {head.method.decode('ascii')}."
        )
    elif head.content_length is not None and head.content_length > limits.body_bytes_max:
        error = too_large(head.content_length, limits)
    else:
        error = _content_fault(head)
    return Route(path, dialect, is_generation=True, error=error)


def allowed(error: RouterError, found: Route | None) -> bytes:
    """The header line that a wrong method (RFC 9110, 15.5.6) or a coding is owed; else nothing."""
    if error.code == "bad-content-type":
        return b"accept-encoding: %b\r\n" % CODINGS  # RFC 9110, 15.5.16
    if error.code != "method-not-allowed" or found is None:
        return b""
    return b"allow: POST\r\n" if found.is_generation else b"allow: GET, HEAD\r\n"


def nearest(path: str, dialects: Mapping[str, Dialect]) -> Dialect:
    """The dialect whose errors a client of this path reads: by its first steps, else OpenAI's."""
    for known, dialect in dialects.items():
        if path.startswith(known + "/") or path.endswith(known):
            return dialect
    return dialects.get(_DEFAULT_PATH) or next(iter(dialects.values()))


def too_large(body_bytes: int, limits: EdgeLimits) -> ClientError:
    """The error for a body above the limit; ``body_bytes`` is what is known of its size."""
    return ClientError(
        "too-large",
        f"The body has {body_bytes} bytes, more than the {limits.body_bytes_max} allowed;"
        " shorten the conversation or raise the limit.",
    )


def own_answer(
    path: str, core: RouterCore, may_use: Callable[[str], bool] | None = None
) -> tuple[bytes, bytes]:
    """Status line with headers, and body, of what the router answers itself.

    Models that the caller may not use are not told.
    """
    if path == _HEALTH:
        is_ready = core.is_ready
        body: object = {"status": "ok" if is_ready else "no-replica-ready"}
        return status_line(200 if is_ready else 503) + JSON, _json(body)
    models = [_model(name) for name in core.models() if may_use is None or may_use(name)]
    if path == _MODELS:
        return status_line(200) + JSON, _json({"object": "list", "data": models})
    name = unquote(path[len(_MODELS) + 1 :])
    for model in models:
        if model["id"] == name:
            return status_line(200) + JSON, _json(model)
    raise ClientError("unknown-path", f"No replica serves a model {name[:_SHOWN]!r}.")


def _own(path: str, head: RequestHead, dialects: Mapping[str, Dialect]) -> ClientError | None:
    """What is wrong with a request that no dialect serves."""
    if path not in (_HEALTH, _MODELS) and not path.startswith(_MODELS + "/"):
        served = ", ".join((*dialects, _MODELS, _HEALTH))
        return ClientError(
            "unknown-path", f"There is nothing at {path[:_SHOWN]!r}; served here: {served}."
        )
    if head.method not in _READING:
        method = head.method.decode("ascii")
        return ClientError("method-not-allowed", f"{path} takes GET, not {method}.")
    return None


def _content_fault(head: RequestHead) -> ClientError | None:
    for name, value in head.headers:
        if name == b"content-type":
            kind = value.partition(b";")[0].strip().lower()
            if kind not in (b"application/json", b""):
                return ClientError(
                    "bad-content-type",
                    f"The content type is {kind.decode('ascii', 'replace')!r};"
                    " send application/json.",
                )
    if head.content_coding and not is_read(head.content_coding):
        coding = head.content_coding[:_SHOWN].decode("ascii", "replace")
        return ClientError(
            "bad-content-type",
            f"The content encoding {coding!r} is not read; send the body uncompressed or as"
            f" {CODINGS.decode()}.",
        )
    return None


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "homeport"}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
