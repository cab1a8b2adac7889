"""What an emulated replica is told at its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sim.engine.rules import EngineRules
from sim.live.rendering.bodies import TemplateDefaults

if TYPE_CHECKING:
    from replica.hardware.profiles import EngineFacts

ENGINE_VERSION: Final = "0.5.23"
BODY_BYTES_MAX: Final = 64 * 2**20


@dataclass(slots=True, frozen=True, kw_only=True)
class EmulatorOptions:
    """Settings of one replica.

    ``rules`` are how its engine schedules. ``time_scale`` is engine seconds per wall second. ``has_response_store``: responses are kept. ``output_tokens`` is generated where a request
    does not say how many; ``reasoning_ratio`` (0-1) of an answer is reasoning where the prompt lets
    it think and the request does not say how much. Of an agent's answers, ``tool_turns`` in a row call
    its shell before one is text alone; 0: none does.
    ``health_check_s`` (at least 1 s in SGLang), ``health_timeout_s`` until a check without any
    output fails, ``keep_alive_s`` and ``disconnect_poll_s`` (how often it is looked whether the
    client of a silent request has left) are wall seconds. ``is_embedding``: it embeds and reranks,
    too, where SGLang then does nothing else. ``has_kv_events``: its cache is published.
    """

    facts: EngineFacts
    rules: EngineRules = field(default_factory=EngineRules)
    time_scale: float = 1.0
    model: str = "kimi-k2.6"
    max_queued_requests: int | None = None
    api_key: str | None = None
    admin_api_key: str | None = None
    has_response_store: bool = False
    output_tokens: int = 500
    reasoning_ratio: float = 0.25
    tool_turns: int = 0
    template: TemplateDefaults = field(default_factory=TemplateDefaults)
    health_check_s: float = 1.0
    health_timeout_s: float = 20.0
    keep_alive_s: float = 5.0
    disconnect_poll_s: float = 4.0
    is_embedding: bool = False
    has_kv_events: bool = False
