"""A request's body as a question for its prompt's tokens.

``/v1/tokenize`` renders and tokenises an OpenAI chat body by the code that serves it. Bodies of other
dialects are asked as the chat that SGLang makes of them, as far as that is known here. The answer is held
against the tokens that the engine counted and the pages that it published, so that a wrong question ties
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from router.control.events.asked import UnclearError
from router.control.events.messages_asked import chat_of_messages
from router.control.events.responses_asked import chat_of_responses

if TYPE_CHECKING:
    from collections.abc import Callable

_APART: Final = ("extra_key", "lora_path", "input_ids", "input_embeds")
"""Members by which a prompt's pages have other numbers than its tokens tell."""
_SHOWN: Final = (
    "model",
    "messages",
    "tools",
    "tool_choice",
    "reasoning_effort",
    "continue_final_message",
    "chat_template_kwargs",
)
"""What a chat's prompt is made of; ``stream`` would ask for an answer that there is not."""


class Question(NamedTuple):
    """The body to send, and the salt under which the prompt's pages are kept."""

    body: bytes
    salt: str | None


def question(dialect: str, body: bytes) -> Question | None:
    """What to ask for the tokens of a request's prompt; None if that cannot be asked."""
    asked = _ASKED.get(dialect)
    if asked is None:
        return None
    try:
        fields = msgspec.json.decode(body)
        if not isinstance(fields, dict) or any(fields.get(name) for name in _APART):
            return None
        salt = fields.get("cache_salt")
        if salt is not None and not isinstance(salt, str):
            return None
        return Question(msgspec.json.encode(asked(fields)), salt)
    except (msgspec.DecodeError, RecursionError, TypeError, UnclearError):
        return None  # a TypeError: a text that is none


def _of_chat(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in _SHOWN if name in fields}


def _of_text(fields: dict[str, Any]) -> dict[str, Any]:
    prompt = fields.get("prompt")
    if not isinstance(prompt, str) or fields.get("suffix"):
        raise UnclearError
    return {"model": fields.get("model", ""), "prompt": prompt}


_ASKED: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "anthropic-messages": chat_of_messages,
    "openai-chat": _of_chat,
    "openai-completions": _of_text,
    "openai-responses": chat_of_responses,
}
"""How each dialect's bodies are asked."""
