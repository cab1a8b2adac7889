"""Paths that score or embed: ``/v1/embeddings``, ``/v1/rerank``, ``/v1/score``.

Vectors and scores are functions of the text alone. A replica embeds only if it is told to
(``--is-embedding``, as SGLang); any generating one scores.
"""

from __future__ import annotations

import base64
import math
import random
import struct
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from xxhash import xxh3_64_intdigest

from sim.live.rendering import pages
from sim.live.rendering.bodies import BadBodyError, UnreadableBodyError, decode
from sim.live.rendering.text_bodies import EmbeddingBody, RerankBody, ScoreBody, texts_of
from sim.live.serving.answers import answer, invalid, refused
from sim.live.serving.chat_wire import usage_of
from sim.live.serving.generation import require_json
from sim.live.serving.wire import Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.live.serving.options import EmulatorOptions

_DIMENSIONS: Final = 64
_NO_EMBEDDING: Final = (
    "This model does not appear to be an embedding model by default. Please add `--is-embedding`"
    " when launching the server or try another model."
)


class ScoresApi:
    """What is answered without a generation."""

    def __init__(self, options: EmulatorOptions) -> None:
        self._options = options

    def routes(self) -> list[web.RouteDef]:
        """The routes that this class answers."""
        return [
            web.post("/v1/embeddings", self._embeddings),
            web.post("/v1/rerank", self._rerank),
            web.put("/v1/rerank", self._rerank),
            web.post("/v1/score", self._score),
        ]

    async def _embeddings(self, request: web.Request) -> web.Response:
        return await _answered(request, self._embedded)

    async def _rerank(self, request: web.Request) -> web.Response:
        return await _answered(request, self._ranked)

    async def _score(self, request: web.Request) -> web.Response:
        return await _answered(request, _scored)

    def _embedded(self, raw: bytes) -> object:
        body = decode(raw, EmbeddingBody)
        if body.encoding_format not in ("float", "base64"):
            raise BadBodyError(
                f"encoding_format must be either 'float' or 'base64', got {body.encoding_format!r}"
            )
        texts, _ = texts_of(body.input, "Input")
        self._need_embedding()
        size = body.dimensions or _DIMENSIONS
        data = [
            {
                "embedding": _written(_vector(text, size), body.encoding_format),
                "index": index,
                "object": "embedding",
            }
            for index, text in enumerate(texts)
        ]
        model = self._options.model
        return {"data": data, "model": model, "object": "list", "usage": _usage(texts)}

    def _ranked(self, raw: bytes) -> object:
        body = decode(raw, RerankBody)
        if not body.documents:
            raise BadBodyError("Documents cannot be empty")
        self._need_embedding()
        query = body.query.encode()
        scores = [_chance(query, document.encode()) for document in body.documents]
        order = sorted(range(len(scores)), key=lambda index: -scores[index])
        shown = body.documents if body.return_documents else [None] * len(scores)
        return [
            {"score": scores[index], "document": shown[index], "index": index, "meta_info": {}}
            for index in order[: body.top_n]
        ]

    def _need_embedding(self) -> None:
        if not self._options.is_embedding:
            raise BadBodyError(_NO_EMBEDDING)


async def _answered(request: web.Request, make: Callable[[bytes], object]) -> web.Response:
    """What ``make`` answers to the body, or what is wrong with it."""
    raw = await request.read()
    try:
        require_json(request)
        return answer(make(raw))
    except UnreadableBodyError as error:
        return invalid(str(error))
    except BadBodyError as error:
        return refused(str(error))


def _scored(raw: bytes) -> object:
    body = decode(raw, ScoreBody)
    if body.label_token_ids is None:
        raise BadBodyError("label_token_ids is required for generation (CausalLM) models.")
    [query], _ = texts_of(body.query, "query")
    texts = [query + text for text in texts_of(body.items, "items")[0]] if body.items else []
    labels = [label.to_bytes(8, "little", signed=True) for label in body.label_token_ids]
    scores = []
    for text in texts:
        chances = [_chance(text, label) for label in labels]
        total = sum(chances) if body.apply_softmax else 1_000.0
        scores.append([chance / total for chance in chances])
    return {
        "scores": scores,
        "pooled_hidden_states": None,
        "token_logprobs": None,
        "model": body.model,
        "usage": _usage(texts),
        "object": "scoring",
    }


def _usage(texts: list[bytes]) -> dict[str, Any]:
    """Prompt tokens only, none of them reported as cached."""
    n_tokens = sum(pages.prompt_tokens(text) for text in texts)
    return {**usage_of(Usage(n_tokens, 0, 0)), "prompt_tokens_details": None}


def _vector(text: bytes, size: int) -> list[float]:
    """A vector of length 1."""
    dice = random.Random(xxh3_64_intdigest(text))  # noqa: S311  (no secret)
    numbers = [dice.gauss(0.0, 1.0) for _ in range(size)]
    length = math.sqrt(sum(number * number for number in numbers))
    return [number / length for number in numbers]


def _written(vector: list[float], encoding: str) -> list[float] | str:
    if encoding == "float":
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _chance(query: bytes, other: bytes) -> float:
    """A number between 0 and 1 of the pair's own."""
    return (xxh3_64_intdigest(other, xxh3_64_intdigest(query)) + 1) / 2.0**64
