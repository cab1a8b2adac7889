"""Prompts without messages: text as it is, or token ids, one or a batch of them.

Both become segments without a template. Nothing marks a prompt's end, for text that only grew keeps
its earlier segments. A batch's first prompt comes first, and the others behind it: chains are equal
as far as the engine sees the same, prompt by prompt.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

from hashing.canonical import END, part
from hashing.segments import segments_of
from router.dialect.body.memo import RenderedPart, Turn
from router.dialect.body.render import ShapeError
from router.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Sequence

PROMPTS_MAX: Final = 20_000
"""A batch of more is forwarded unread: rendering it would hold up everybody else."""

_TEXT: Final = "p"
_IDS: Final = "i"
_REST: Final = "u"


def rendered(prompt: object, *, rest: str = "") -> list[RenderedPart]:
    """The parts of a prompt: a text, token ids, or a list of either.

    ``rest`` is what a template may show behind the prompt.

    Raises:
        ShapeError: it is none of these, or empty.
    """
    parts = [_one(each) for each in _batch(prompt)]
    if rest:
        parts.append(_part(part(_REST, rest.encode())))
    return parts


def refuse_empty_text(prompt: object) -> None:
    """Refuse a text without a token: SGLang 0.5.23 ends on one that it does not refuse itself.

    Raises:
        ClientError: there is an empty text (``bad-request``).
    """
    if prompt == "" or (isinstance(prompt, list) and "" in prompt):
        raise ClientError("bad-request", "a prompt is an empty text: send at least one token")


def _batch(prompt: object) -> Sequence[Any]:
    if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], int):
        return [prompt]
    if len(prompt) > PROMPTS_MAX:
        raise ShapeError("too many prompts to read")
    return prompt


def _one(prompt: object) -> RenderedPart:
    if isinstance(prompt, str) and prompt:
        return _part(part(_TEXT, prompt.encode()))
    if not isinstance(prompt, list) or not prompt:
        raise ShapeError("a prompt that is neither a text nor a list of token ids")
    try:
        ids = array("I", prompt)
    except (TypeError, OverflowError) as error:
        raise ShapeError("token ids that are none") from error
    return _part(part(_IDS) + END + ids.tobytes())


def _part(canonical: bytes) -> RenderedPart:
    return RenderedPart(*segments_of([canonical]), Turn.USER)
