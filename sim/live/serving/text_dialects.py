"""The dialects without messages: bodies -> calls with one or several prompts, and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from sim.live.rendering.bodies import BadBodyError, Prompt, UnreadableBodyError, decode
from sim.live.rendering.text_bodies import (
    CompletionBody,
    GenerateBody,
    SamplingParams,
    texts_of,
)
from sim.live.serving import chat_wire, text_wire
from sim.live.serving.dialects import Call, ChatDialect
from sim.live.serving.text_wire import CompletionWriter, GenerateWriter
from sim.live.serving.wire import BAD_REQUEST, Refusal, encode

if TYPE_CHECKING:
    from sim.live.rendering.answer import CallSpan
    from sim.live.rendering.bodies import TemplateDefaults
    from sim.live.serving.wire import Problem


class CompletionsDialect(ChatDialect):
    """``/v1/completions``; its refusals are those of a chat completion."""

    @override
    def read(self, body: bytes, defaults: TemplateDefaults) -> Call:
        """Read a completion's body."""
        del defaults
        read = decode(body, CompletionBody)
        if read.max_tokens is not None and read.max_tokens < 1:
            raise UnreadableBodyError("max_tokens: must be positive")
        texts, is_batch = texts_of(read.prompt, "Prompt")
        return Call(
            Prompt([], is_thinking=False),
            model=read.model,
            is_stream=read.stream,
            tokens_max=read.max_tokens,
            ignores_eos=bool(read.ignore_eos),
            temperature=read.temperature,
            rid=read.rid,
            cache_salt=_cache_key(read),
            stream_options=read.stream_options,
            emulate=read.homeport_emulate,
            texts=tuple(texts),
            is_batch=is_batch,
            is_echoed=read.echo,
        )

    @override
    def writer(self, call: Call, rid: str, span: CallSpan | None) -> CompletionWriter:
        """The writer of a completion."""
        del span
        text = call.texts[call.index or 0] if call.is_echoed else b""
        return CompletionWriter(rid, call, text.decode(errors="replace"))


class GenerateDialect:
    """``/generate``."""

    has_late_head = False

    def read(self, body: bytes, defaults: TemplateDefaults) -> Call:
        """Read a native body."""
        del defaults
        read = decode(body, GenerateBody)
        if read.text is None and read.input_ids is None:
            raise BadBodyError("Either text, input_ids or input_embeds should be provided.")
        if read.lora_path:
            raise BadBodyError(
                f"LoRA adapter {read.lora_path!r} was requested, but LoRA is not enabled."
            )
        texts, is_batch = texts_of(
            read.text if read.input_ids is None else read.input_ids, "input_ids"
        )
        params = read.sampling_params or SamplingParams()
        first = params[0] if isinstance(params, list) else params
        return Call(
            Prompt([], is_thinking=False),
            model="default",
            is_stream=bool(read.stream),
            tokens_max=first.max_new_tokens,
            ignores_eos=bool(first.ignore_eos),
            temperature=first.temperature,
            rid=read.rid,
            cache_salt=_cache_key(read),
            emulate=read.homeport_emulate,
            texts=tuple(texts),
            is_batch=is_batch,
        )

    def writer(self, call: Call, rid: str, span: CallSpan | None) -> GenerateWriter:
        """The writer of a native generation."""
        del span
        return GenerateWriter(rid, call)

    def error_body(self, status: int, message: str) -> bytes:
        """The native error object."""
        del status
        return encode(text_wire.native_error(message))

    def unreadable(self, error: BadBodyError) -> Refusal:
        """OpenAI's error object for a body of the wrong shape, the native one for what it asks."""
        if isinstance(error, UnreadableBodyError):
            return Refusal(BAD_REQUEST, encode(chat_wire.error_of(BAD_REQUEST, str(error))))
        return Refusal(BAD_REQUEST, self.error_body(BAD_REQUEST, str(error)))

    def refusal(self, problem: Problem, call: Call) -> Refusal | list[bytes]:
        """A stream has its status before anything is looked at."""
        status, message = problem.status, problem.message
        if not call.is_stream and status == BAD_REQUEST:
            return Refusal(status, self.error_body(status, message))
        if not call.is_stream:  # what the scheduler refuses has OpenAI's form
            return Refusal(status, encode(chat_wire.error_of(status, message, str(status))))
        if problem.status == BAD_REQUEST:
            return text_wire.native_error_events(problem.status, problem.message)
        return text_wire.native_abort_events(problem)


def _cache_key(body: CompletionBody | GenerateBody) -> str | None:
    """What keeps this prompt's cache apart, as :func:`sim.live.rendering.bodies.cache_key`."""
    if not body.extra_key:
        return body.cache_salt or None
    return f"{body.extra_key}\0{body.cache_salt or ''}"
