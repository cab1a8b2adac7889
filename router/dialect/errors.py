"""Errors in each API's own shape: as a body before the first event, as events after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from router.dialect.stream.sse import data_event

if TYPE_CHECKING:
    from router.errors import RouterError

_OPENAI_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_ANTHROPIC_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STATUS_OF_TYPE: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 503,
    "timeout_error": 504,
}
_SERVER_ERROR_MIN: Final = 500

_OPENAI_CODES: Final = {"unknown-model": "model_not_found"}
"""Codes that OpenAI's clients know by a name of their own."""


def openai_error(error: RouterError) -> bytes:
    """The JSON body of an OpenAI API for this error."""
    fallback = "invalid_request_error" if error.http_status < _SERVER_ERROR_MIN else "server_error"
    return _json(
        {
            "error": {
                "message": _clean(error.message),
                "type": _OPENAI_TYPES.get(error.http_status, fallback),
                "param": "model" if error.code in _OPENAI_CODES else None,
                "code": _OPENAI_CODES.get(error.code, error.code),
            }
        }
    )


def openai_error_event(error: RouterError) -> bytes:
    """The events that end an OpenAI stream with this error."""
    return data_event(openai_error(error)) + data_event(b"[DONE]")


def anthropic_error(error: RouterError) -> bytes:
    """The JSON body of the Anthropic API for this error."""
    fallback = "invalid_request_error" if error.http_status < _SERVER_ERROR_MIN else "api_error"
    kind = _ANTHROPIC_TYPES.get(error.http_status, fallback)
    return _json({"type": "error", "error": {"type": kind, "message": _clean(error.message)}})


def anthropic_error_event(error: RouterError) -> bytes:
    """The event that ends an Anthropic stream with this error."""
    return data_event(anthropic_error(error), name="error")


def status_of_type(kind: object) -> int:
    """The status that an Anthropic error type stands for; SGLang's full queue is 503."""
    return _STATUS_OF_TYPE.get(kind, 500) if isinstance(kind, str) else 500


def _json(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(value)


def _clean(message: str) -> str:
    """The message without what cannot be written as UTF-8."""
    return message.encode("utf-8", "replace").decode()
