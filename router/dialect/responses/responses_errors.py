"""The error that ends a stream of ``/v1/responses``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

from router.dialect.stream.sse import data_event

if TYPE_CHECKING:
    from router.errors import RouterError

_TOO_MANY: Final = 429
_CLIENTS_MIN: Final = 400
_SERVERS_MIN: Final = 500
_TYPE: Final = "response.failed"
_TOO_LONG: Final = "context length"
"""In SGLang's words for a prompt that does not fit."""


def failed_event(error: RouterError) -> bytes:
    """A ``response.failed`` whose code says whether to send the request again.

    Codex takes ``rate_limit_exceeded`` for a reason to wait as long as the text says, most other
    codes for one to try again, ``invalid_prompt`` for the end of the turn and
    ``context_length_exceeded`` for a conversation to be compacted; it gives up on
    ``server_is_overloaded`` and ``slow_down``, which are never said here.
    """
    message = error.message.encode("utf-8", "replace").decode()
    if error.retry_after_s is not None:
        code = "rate_limit_exceeded"
        wait_s = max(1, math.ceil(error.retry_after_s))
        message = f"{message} Please try again in {wait_s}s."
    elif _CLIENTS_MIN <= error.http_status < _SERVERS_MIN and error.http_status != _TOO_MANY:
        is_too_long = _TOO_LONG in message
        code = "context_length_exceeded" if is_too_long else "invalid_prompt"
    else:
        code = "server_error"
    response = {
        "id": f"resp_{error.code}",
        "object": "response",
        "created_at": 0,
        "status": "failed",
        "error": {"code": code, "message": message},
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }
    event = {"type": _TYPE, "sequence_number": 0, "response": response}
    return data_event(msgspec.json.encode(event), name=_TYPE)
