"""Request bodies of the APIs without messages, as SGLang 0.5.23 reads them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sim.live.rendering.bodies import (
    BadBodyError,
    EmulateAsk,
    StreamOptions,
    UnreadableBodyError,
)
from sim.live.rendering.pages import TOKEN_BYTES

_OUTPUT_TOKENS: Final = 16
_ID_MAX: Final = 256**TOKEN_BYTES


class CompletionBody(msgspec.Struct):
    """Body of ``/v1/completions``."""

    prompt: Any
    model: str = "default"
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = _OUTPUT_TOKENS
    temperature: float | None = None
    echo: bool = False
    suffix: str | None = None
    ignore_eos: bool | None = None
    rid: str | None = None
    cache_salt: str | None = None
    extra_key: str | None = None
    homeport_emulate: EmulateAsk | None = None


class SamplingParams(msgspec.Struct):
    """``sampling_params`` of ``/generate``."""

    max_new_tokens: int | None = 128
    temperature: float | None = None
    ignore_eos: bool | None = None


class GenerateBody(msgspec.Struct):
    """Body of ``/generate``."""

    text: str | list[str] | None = None
    input_ids: Any = None
    sampling_params: SamplingParams | list[SamplingParams] | None = None
    stream: bool | None = None
    rid: str | None = None
    lora_path: str | None = None
    cache_salt: str | None = None
    extra_key: str | None = None
    homeport_emulate: EmulateAsk | None = None


class EmbeddingBody(msgspec.Struct):
    """Body of ``/v1/embeddings``."""

    input: Any
    model: str = "default"
    encoding_format: str = "float"
    dimensions: int | None = None


class RerankBody(msgspec.Struct):
    """Body of ``/v1/rerank``."""

    query: str
    documents: list[str]
    top_n: int | None = None
    return_documents: bool = True


class ScoreBody(msgspec.Struct):
    """Body of ``/v1/score``."""

    query: str | list[int] | None = None
    items: Any = None
    label_token_ids: list[int] | None = None
    apply_softmax: bool = False
    model: str = "default"


def texts_of(prompt: object, what: str) -> tuple[list[bytes], bool]:
    """Prompts as the bytes that the emulator's tokens stand for, and whether they came as a batch.

    Raises:
        BadBodyError: there is none, or it has no token.
        UnreadableBodyError: it is neither a text, nor token ids, nor a list of either.
    """
    if not isinstance(prompt, str | list):
        raise UnreadableBodyError(f"{what}: a text, token ids, or a list of either")
    if not prompt or (isinstance(prompt, list) and not any(prompt)):
        raise BadBodyError(f"{what} cannot be empty")
    is_batch = isinstance(prompt, list) and not isinstance(prompt[0], int)
    batch = prompt if is_batch else [prompt]
    return [_text_of(each, what) for each in batch], is_batch


def _text_of(prompt: object, what: str) -> bytes:
    if isinstance(prompt, str):
        return prompt.encode()
    if isinstance(prompt, list) and all(isinstance(token, int) for token in prompt):
        if not all(0 <= token < _ID_MAX for token in prompt):
            raise BadBodyError(f"{what} has token ids outside of the vocabulary")
        return b"".join(token.to_bytes(TOKEN_BYTES, "little") for token in prompt)
    raise UnreadableBodyError(f"{what}: a text, token ids, or a list of either")
