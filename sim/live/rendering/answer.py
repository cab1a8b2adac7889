"""The answer: pseudo-text of a wanted length that is a function of the prompt, and a tool call.

``raw`` is what the model would generate: reasoning, ``</think>``, text, tool calls, ``<|im_end|>``;
text alone where the prompt has closed the reasoning already. A client that appends the answer to
its next prompt, reasoning included while the template keeps it, renders exactly these bytes again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sim.live.rendering import template
from sim.live.rendering.pages import TOKEN_BYTES

if TYPE_CHECKING:
    from sim.live.rendering.bodies import ToolCallAsk

_WORDS: Final = (
    "the module reads its input once and keeps no copy of it so a caller may change the buffer "
    "after the call returns while the index that was built from it stays valid until the next "
    "write and every test covers one case of the table below with its expected result "
)
_CORPUS: Final = _WORDS * 64
_REASONING: Final = 0x9E3779B97F4A7C15  # lets reasoning and text of one answer differ
_CONTINUATION: Final = 0xC0
_CONTINUATION_MARK: Final = 0x80


@dataclass(slots=True, frozen=True)
class CallSpan:
    """The tool call inside an answer; offsets are bytes of ``raw``."""

    call_id: str
    name: str
    arguments: bytes
    arguments_at: int


@dataclass(slots=True, frozen=True)
class Answer:
    """What is generated; ``finish`` is stop, length or tool_calls (the chat API's words).

    ``reasoning`` stands at the beginning of ``raw``; ``thinking_bytes`` is its length with the mark
    that ends it, as far as it is generated.
    """

    raw: bytes
    reasoning: str
    thinking_bytes: int
    text: str
    text_at: int
    call: CallSpan | None
    n_tokens: int
    finish: str


@dataclass(slots=True, frozen=True)
class Wish:
    """What an answer is to be; ``tokens_max`` cuts it, as an engine's limit does.

    Up to ``reasoning_tokens`` of the ``output_tokens`` are reasoning, where the prompt lets it
    think. An ``is_endless`` answer goes on to ``tokens_max`` whatever was wished (``ignore_eos``).
    """

    output_tokens: int
    tokens_max: int
    tool_call: ToolCallAsk | None = None
    call_index: int = 0
    reasoning_tokens: int = 0
    is_endless: bool = False


@dataclass(slots=True)
class Piece:
    """What became visible since the piece before."""

    text: str = ""
    reasoning: str = ""
    opens_call: bool = False
    arguments: str = ""


def compose(wish: Wish, *, prompt_bytes: int, seed: int, is_thinking: bool) -> Answer:
    """Compose the answer to a prompt of ``prompt_bytes`` whose hash is ``seed``.

    The first output token also holds the prompt's bytes after its last whole token, so prompt and
    output together end on a whole token.
    """
    call, span_id, opening, arguments, closing = _call_parts(wish)
    mark = template.THINK_END if is_thinking else ""
    after = (opening + arguments + closing + template.END).encode()
    spare_bytes = prompt_bytes % TOKEN_BYTES
    least_tokens = -(-(len(mark) + len(after) + spare_bytes) // TOKEN_BYTES)
    n_tokens = max(1, wish.tokens_max if wish.is_endless else wish.output_tokens)
    if call is not None:
        n_tokens = max(n_tokens, least_tokens)
    is_cut = wish.is_endless or n_tokens > wish.tokens_max or n_tokens < least_tokens
    n_tokens = min(n_tokens, wish.tokens_max)
    size = n_tokens * TOKEN_BYTES - spare_bytes
    room = size if is_cut else size - len(mark) - len(after)
    reasoning = ""
    if is_thinking and wish.reasoning_tokens > 0:
        reasoning = _filler(seed ^ _REASONING, min(wish.reasoning_tokens * TOKEN_BYTES, room))
    head = reasoning + mark
    thinking_bytes = min(len(head), size) if reasoning else 0
    text = _filler(seed, max(0, room - (len(head) if is_cut else len(reasoning))))
    if is_cut:
        raw = (head + text).encode()[:size]
        return Answer(raw, reasoning, thinking_bytes, text, len(head), None, n_tokens, "length")
    span = None
    if call is not None:
        arguments_at = len(head) + len(text) + len(opening.encode())
        span = CallSpan(span_id, call.name, arguments.encode(), arguments_at)
    finish = "stop" if call is None else "tool_calls"
    raw = (head + text).encode() + after
    return Answer(raw, reasoning, thinking_bytes, text, len(head), span, n_tokens, finish)


def _call_parts(wish: Wish) -> tuple[ToolCallAsk | None, str, str, str, str]:
    """The call asked for, its id, and what the model writes before, in and after its arguments."""
    call = None if wish.is_endless else wish.tool_call
    if call is None:
        return None, "", "", "", ""
    call_id = f"functions.{call.name}:{wish.call_index}"
    arguments = template.to_json(call.arguments)
    opening, _, closing = template.call_text(call_id, arguments)
    return (
        call,
        call_id,
        template.CALLS_BEGIN + opening,
        arguments,
        closing + template.CALLS_END,
    )


def _filler(seed: int, n_bytes: int) -> str:
    """ASCII text of exactly ``n_bytes``, without blanks at its ends: clients may strip those."""
    mark = f"{seed:016x}"
    if n_bytes <= len(mark):
        return mark[:n_bytes]
    start = seed % len(_WORDS)
    rest_bytes = n_bytes - len(mark) - 1
    repeats = (start + rest_bytes) // len(_CORPUS) + 1
    body = (_CORPUS * repeats)[start : start + rest_bytes]
    return f"{mark} {body[:-1]}." if body else f"{mark}."


class Cursor:
    """Follows an answer as its tokens come, and hands out what became visible."""

    def __init__(self, answer: Answer, *, prompt_bytes: int) -> None:
        self._answer = answer
        self._spare_bytes = prompt_bytes % TOKEN_BYTES
        self._reasoning_done = 0
        self._text_done = 0
        self._arguments_done = 0
        self._has_opened = False

    def reasoning_tokens(self, n_tokens: int) -> int:
        """How many of the first ``n_tokens`` are reasoning, the mark that ends it included."""
        thinking_bytes = self._answer.thinking_bytes
        if not thinking_bytes:
            return 0
        return min(n_tokens, -(-(thinking_bytes + self._spare_bytes) // TOKEN_BYTES))

    def upto(self, n_tokens: int) -> Piece:
        """The piece that ends with the ``n_tokens``-th token; empty if nothing became visible."""
        answer = self._answer
        end = n_tokens * TOKEN_BYTES - self._spare_bytes
        thought_end = max(self._reasoning_done, min(end, len(answer.reasoning)))
        text_end = max(self._text_done, min(end - answer.text_at, len(answer.text)))
        piece = Piece(
            text=answer.text[self._text_done : text_end],
            reasoning=answer.reasoning[self._reasoning_done : thought_end],
        )
        self._reasoning_done = thought_end
        self._text_done = text_end
        call = answer.call
        if call is None or end < call.arguments_at:
            return piece
        if not self._has_opened:
            self._has_opened = piece.opens_call = True
        cut = min(end - call.arguments_at, len(call.arguments))
        while (
            cut < len(call.arguments) and call.arguments[cut] & _CONTINUATION == _CONTINUATION_MARK
        ):
            cut -= 1
        if cut > self._arguments_done:
            piece.arguments = call.arguments[self._arguments_done : cut].decode()
            self._arguments_done = cut
        return piece
