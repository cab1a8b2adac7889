"""Requests and answers of ``/v1/responses`` as bytes, in SGLang's shapes."""

from __future__ import annotations

import json
from typing import Any, Final

RESPONSES: Final = "/v1/responses"
RESPONSE_ID: Final = "resp_" + "a" * 32


def responses_body(*, stream: bool = True, text: str = "hello", **more: object) -> bytes:
    """A body as Codex sends it."""
    said = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": text}],
    }
    body = {"model": "m", "stream": stream, "store": False, "input": [said], **more}
    return json.dumps(body).encode()


def document(status: str = "completed", **more: object) -> dict[str, Any]:
    """A response."""
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 105,
    }
    is_over = status not in ("queued", "in_progress", "failed")
    return {
        "id": RESPONSE_ID,
        "object": "response",
        "created_at": 1,
        "model": "m",
        "output": [],
        "status": status,
        "usage": usage if is_over else None,
        "error": None,
        "store": False,
        **more,
    }


def event(name: str, **fields: object) -> bytes:
    """One event."""
    data = json.dumps({"type": name, **fields}, separators=(",", ":"))
    return f"event: {name}\ndata: {data}\n\n".encode()


def opening(**more: object) -> bytes:
    """What SGLang sends before its engine has seen the request."""
    started = document("in_progress", **more)
    names = ("response.created", "response.in_progress")
    return b"".join([event(name, response=started) for name in names])


def words(*texts: str) -> bytes:
    """Deltas of a text."""
    return b"".join([event("response.output_text.delta", delta=text) for text in texts])


def ending(status: str = "completed", **more: object) -> bytes:
    """The last event."""
    return event(f"response.{status}", response=document(status, **more))


def failed(message: str, **more: object) -> bytes:
    """The last event of a response that failed."""
    return ending("failed", error={"code": "server_error", "message": message}, **more)
