"""One request body, read by both sides: the router's facts, and the emulator's rendering."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from router.dialect import DialectOptions, dialects
from sim.live.rendering import template
from sim.live.rendering.anthropic_bodies import MessagesBody, messages_prompt
from sim.live.rendering.bodies import ChatBody, TemplateDefaults, chat_prompt, decode
from sim.live.rendering.responses_bodies import ResponsesBody, responses_prompt
from tests.engine.pair_generator import families
from tests.engine.token_truth import Prompt
from tests.unit.api_dialects.pair_bodies import CHAT
from tests.unit.api_dialects.responses_pairs import RESPONSES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect

DIALECTS: Final = dialects(DialectOptions())
DEFAULTS: Final = TemplateDefaults()
GENERATED: Final = families(seed=20_260_101)


def reading(
    path: str,
    body: bytes,
    known: Mapping[str, Dialect] = DIALECTS,
    defaults: TemplateDefaults = DEFAULTS,
) -> tuple[Prompt, bytes]:
    """What the router believes of a body beside what an emulated replica renders of it.

    And the body as the router forwards it, which is what is rendered.
    """
    dialect = known[path]
    facts = dialect.read(body, [])
    assert facts.is_readable, f"the router cannot read {body[:500]!r}"
    outgoing, _ = dialect.outgoing(body, facts)
    if path == CHAT:
        prompt = chat_prompt(decode(outgoing, ChatBody), defaults)
    elif path == RESPONSES:
        prompt = responses_prompt(decode(outgoing, ResponsesBody), defaults)
    else:
        prompt = messages_prompt(decode(outgoing, MessagesBody), defaults)
    return Prompt.of(facts, template.render(prompt)), outgoing


def chat_twin(body: bytes) -> bytes:
    """A messages body as the chat completion that an engine makes of it."""
    prompt = messages_prompt(decode(body, MessagesBody), DEFAULTS)
    return msgspec.json.encode(
        {
            "messages": prompt.messages,
            "tools": prompt.tools,
            "chat_template_kwargs": {"thinking": prompt.is_thinking},
        }
    )
