"""What a chat template is told beside the messages, and where it shows that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from router.dialect.body.reading import decoded
from router.dialect.body.render import need_object

if TYPE_CHECKING:
    import msgspec

    from router.dialect.options import DialectOptions

_PRESERVE: Final = "preserve_thinking"
_BEHIND_THE_MESSAGES: Final = frozenset(
    {_PRESERVE, "thinking", "enable_thinking", "reasoning_effort"}
)
"""Keywords that a template like Kimi's shows nowhere but in the opening of the answer."""


def read(raw: msgspec.Raw) -> dict[str, Any] | None:
    """The member ``chat_template_kwargs``, None if it is absent or null.

    Raises:
        ShapeError: it is no object.
    """
    kwargs = decoded(raw)
    return None if kwargs is None else need_object(kwargs, "chat_template_kwargs")


def is_old_reasoning_stripped(kwargs: dict[str, Any] | None, options: DialectOptions) -> bool:
    """Whether the reasoning of finished turns is left out of this prompt."""
    if kwargs is None or _PRESERVE not in kwargs:
        return options.is_old_reasoning_stripped
    return not kwargs[_PRESERVE]


def in_head(kwargs: dict[str, Any] | None, options: DialectOptions) -> dict[str, Any] | None:
    """What the template may show before the messages; None if nothing."""
    if not kwargs:
        return None
    # What is preserved shows in the messages themselves.
    hidden = {_PRESERVE} if options.is_thinking_in_head else _BEHIND_THE_MESSAGES
    return {key: value for key, value in kwargs.items() if key not in hidden} or None


def effort(raw: msgspec.Raw, options: DialectOptions) -> object:
    """The reasoning effort where it is shown before the messages, else None."""
    return decoded(raw) if options.is_thinking_in_head else None
