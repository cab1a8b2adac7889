"""Answers of the endpoints that do not generate, in the shapes they share."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from aiohttp import web

from sim.live.serving import chat_wire
from sim.live.serving.wire import encode

JSON: Final = "application/json"


def answer(value: object, *, status: int = HTTPStatus.OK) -> web.Response:
    """A JSON answer."""
    return web.Response(status=status, body=encode(value), content_type=JSON)


def invalid(message: str) -> web.Response:
    """What a query or a body gets that is not of the declared form."""
    error = chat_wire.error_of(HTTPStatus.BAD_REQUEST, message, chat_wire.UNREADABLE)
    return answer(error, status=HTTPStatus.BAD_REQUEST)


def refused(message: str) -> web.Response:
    """What a body of the right form gets that asks for the impossible."""
    error = chat_wire.error_of(HTTPStatus.BAD_REQUEST, message, chat_wire.REFUSED)
    return answer(error, status=HTTPStatus.BAD_REQUEST)
