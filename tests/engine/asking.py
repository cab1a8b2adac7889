"""Asking a real replica which tokens it sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.unit.api_dialects.pair_bodies import MESSAGES
from tests.unit.api_dialects.responses_pairs import RESPONSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import aiohttp

    from tests.doubles.engines import Member

_JSON: Final = {"Content-Type": "application/json"}
_UNSTREAMED: Final = b',"stream":false}'
_LEAST_ANSWER: Final = b',"max_tokens":1,"stream":false}'
_LEAST_RESPONSE: Final = b',"max_output_tokens":3,"stream":false,"model":"tiny"}'
"""SGLang keeps two of these tokens for itself, and refuses a model that it does not serve."""


def _with(body: bytes, members: bytes) -> bytes:
    """The body with these put at its end: of a key that is there twice, the last one counts."""
    return body.rstrip()[:-1] + members


class Engine:
    """A real replica behind an open HTTP session."""

    def __init__(self, http: aiohttp.ClientSession, member: Member) -> None:
        self._http = http
        self._url = member.url

    async def chat_tokens(self, body: bytes) -> list[int]:
        """The prompt's token ids of a chat completion."""
        return list((await self._answer("/v1/tokenize", _with(body, _UNSTREAMED)))["tokens"])

    async def text_tokens(self, text: bytes) -> list[int]:
        """The token ids of a rendered prompt."""
        return list((await self._answer("/v1/tokenize", {"prompt": text.decode()}))["tokens"])

    async def texts(self, ids: Sequence[Sequence[int]]) -> list[bytes]:
        """The text of each list of tokens; a character that is cut stays out."""
        asked = {"tokens": [list(each) or [0] for each in ids], "skip_special_tokens": False}
        texts = (await self._answer("/v1/detokenize", asked))["text"]
        return [
            text.rstrip("\ufffd").encode() if each else b""
            for text, each in zip(texts, ids, strict=True)
        ]

    async def count(self, body: bytes) -> int:
        """How many tokens the prompt of a messages body has."""
        answer = await self._answer("/v1/messages/count_tokens", body)
        return int(answer["input_tokens"])

    async def forget(self) -> None:
        """Empty the prefix cache."""
        async with self._http.post(f"{self._url}/flush_cache?timeout=10") as response:
            assert response.status == 200, await response.text()

    async def usage(self, path: str, body: bytes) -> tuple[int, int]:
        """Answer a request with one token: its prompt's tokens, and how many were in the cache."""
        if path == RESPONSES:
            usage = (await self._answer(path, _with(body, _LEAST_RESPONSE)))["usage"]
            return int(usage["input_tokens"]), int(usage["input_tokens_details"]["cached_tokens"])
        usage = (await self._answer(path, _with(body, _LEAST_ANSWER)))["usage"]
        if path == MESSAGES:
            cached = int(usage.get("cache_read_input_tokens") or 0)
            return int(usage["input_tokens"]) + cached, cached
        details = usage["prompt_tokens_details"] or {}
        return int(usage["prompt_tokens"]), int(details.get("cached_tokens", 0))

    async def status(self, path: str, body: bytes) -> int:
        """How a request is answered."""
        async with self._http.post(self._url + path, data=body, headers=_JSON) as response:
            await response.read()
            return response.status

    async def _answer(self, path: str, body: bytes | dict[str, Any]) -> dict[str, Any]:
        data = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with self._http.post(self._url + path, headers=_JSON, **data) as response:
            assert response.status == 200, f"{path}: {await response.text()} for {body!r:.3000}"
            found: dict[str, Any] = await response.json()
            return found
