"""The model that a request is for: what to look for in the fleet, and what its body must say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.dialect.base import SessionSource, Work

if TYPE_CHECKING:
    from router.dialect.base import PromptFacts
    from router.state.fleet.names import ModelNames

_CHECKED: Final = frozenset({"openai-responses"})
"""Dialects whose model SGLang compares with its own and refuses; elsewhere it takes any name."""

_CHAIN: Final = SessionSource.CHAIN
_OTHER: Final = Work.OTHER


def settle(facts: PromptFacts, names: ModelNames) -> str | None:
    """Put the served model in the place of the client's name for it.

    Answers the name that the body has to have instead of the client's, None if that may stay. Where
    the fleet serves several models, a session that a client names is one for each of them: an
    agent's small model has another home than its large one.

    Raises:
        ClientError: nobody serves such a model (``unknown-model``).
    """
    choice = names.resolve(
        facts.model,
        lora_name=facts.lora_name,
        is_checked=facts.dialect in _CHECKED,
        is_needed=facts.work is not _OTHER,
    )
    facts.model = model = choice.model
    if names.has_several and facts.session_source is not _CHAIN:
        facts.session_key = f"{facts.session_key}/{model}"
        if facts.parent_key is not None:
            facts.parent_key = f"{facts.parent_key}/{model}"
    return choice.sent
