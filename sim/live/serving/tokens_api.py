"""Text to tokens and back: ``/v1/tokenize``, ``/v1/detokenize``, ``/v1/messages/count_tokens``."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web

from sim.live.rendering import pages, template
from sim.live.rendering.anthropic_bodies import MessagesBody, messages_prompt
from sim.live.rendering.bodies import BadBodyError, ChatBody, TokenizeBody, chat_prompt, decode
from sim.live.serving import messages_wire
from sim.live.serving.answers import answer, invalid, refused
from sim.live.serving.generation import require_json

if TYPE_CHECKING:
    from sim.live.serving.options import EmulatorOptions

_ID_MAX: Final = 256**pages.TOKEN_BYTES


class _DetokenizeBody(msgspec.Struct):
    tokens: list[int | list[int]]


class TokensApi:
    """The emulator's tokenizer: a token is four bytes of the rendered text."""

    def __init__(self, options: EmulatorOptions) -> None:
        self._options = options

    def routes(self) -> list[web.RouteDef]:
        """The routes that this class answers."""
        return [
            web.post("/v1/tokenize", self._tokenize),
            web.post("/tokenize", self._tokenize),
            web.post("/v1/detokenize", self._detokenize),
            web.post("/detokenize", self._detokenize),
            web.post("/v1/messages/count_tokens", self._count_tokens),
        ]

    async def _tokenize(self, request: web.Request) -> web.Response:
        raw = await request.read()
        try:
            require_json(request)
            body = decode(raw, TokenizeBody)
            chat = None if body.messages is None else decode(raw, ChatBody)
        except BadBodyError as error:
            return invalid(str(error))
        if (body.prompt is None) == (chat is None):
            return invalid("exactly one of 'prompt' or 'messages' must be provided")
        try:
            if chat is not None:
                text = template.render(chat_prompt(chat, self._options.template))
                return self._tokens(pages.token_ids(text))
        except BadBodyError as error:
            return refused(str(error))
        if isinstance(body.prompt, str):
            return self._tokens(_ids(body.prompt))
        return self._tokens([_ids(text) for text in body.prompt or ()], is_list=True)

    def _tokens(self, tokens: list[Any], *, is_list: bool = False) -> web.Response:
        count = [len(ids) for ids in tokens] if is_list else len(tokens)
        context_tokens = self._options.facts.context_tokens_max
        return answer({"tokens": tokens, "count": count, "max_model_len": context_tokens})

    async def _detokenize(self, request: web.Request) -> web.Response:
        raw = await request.read()
        try:
            require_json(request)
            tokens = decode(raw, _DetokenizeBody).tokens
        except BadBodyError as error:
            return invalid(str(error))
        flat = [token for token in tokens if isinstance(token, int)]
        lists = [token for token in tokens if isinstance(token, list)]
        if flat and lists:
            return invalid("tokens: either ids, or lists of ids")
        return answer({"text": [_text(ids) for ids in lists] if lists else _text(flat)})

    async def _count_tokens(self, request: web.Request) -> web.Response:
        raw = await request.read()
        try:
            require_json(request)
            prompt = messages_prompt(decode(raw, MessagesBody), self._options.template)
            count = pages.prompt_tokens(template.render(prompt))
        except BadBodyError as error:
            body = messages_wire.error_of(HTTPStatus.BAD_REQUEST, str(error))
            return answer(body, status=HTTPStatus.BAD_REQUEST)
        return answer({"input_tokens": count})


def _ids(text: str) -> list[int]:
    """The tokens of plain text, which may be none."""
    return pages.token_ids(text.encode()) if text else []


def _text(tokens: list[int]) -> str:
    """What tokens stand for; ids that are no tokens stand for nothing."""
    known = [token for token in tokens if 0 <= token < _ID_MAX]
    raw = b"".join(token.to_bytes(pages.TOKEN_BYTES, "little") for token in known)
    return raw.decode(errors="replace")
