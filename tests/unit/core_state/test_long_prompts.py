"""Long prompts take turns: what the core says to who may wait."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest

from router.dialect.base import PromptFacts, SessionSource
from router.errors import AwaitsTurn, UpstreamStatus
from router.state.fleet.ledger import LONG_TOKENS
from router.state.history import Outcome
from tests.doubles.core_rig import all_idle, make_core

if TYPE_CHECKING:
    from router.core import RouterCore
    from router.ticket import Ticket

_BYTES_PER_TOKEN = 8  # more than any estimate takes


def prompt(key: str, tokens: int) -> PromptFacts:
    """One segment, which nobody else has."""
    return PromptFacts(
        "openai-chat",
        "m",
        is_stream=True,
        session_key=key,
        session_source=SessionSource.HEADER,
        chain=array("Q", [hash(key) & (2**64 - 1)]),
        ends_bytes=array("I", [tokens * _BYTES_PER_TOKEN]),
        head_segments=0,
    )


def asked(core: RouterCore, key: str, tokens: int = LONG_TOKENS) -> Ticket | None:
    """One request that may wait; None if it had better."""
    try:
        return core.arrive(prompt(key, tokens), 0.0, may_wait=True)
    except AwaitsTurn:
        return None


def test_one_at_a_time_until_it_has_begun() -> None:
    core = make_core(1)
    first = asked(core, "a")
    assert first is not None
    with pytest.raises(AwaitsTurn) as told:
        core.arrive(prompt("b", LONG_TOKENS), 0.0, may_wait=True)
    assert (told.value.code, told.value.replica_id) == ("awaits-turn", "r0")
    assert not core.fleet.has_turn("r0")
    assert asked(core, "short", 1_000) is not None
    core.began(first, 1.0)
    assert core.fleet.has_turn("r0")
    assert asked(core, "b") is not None
    assert asked(core, "c") is None


def test_who_awaits_its_turn_leaves_no_trace() -> None:
    core = make_core(1)
    first = asked(core, "a")
    assert first is not None
    for _ in range(3):
        assert asked(core, "b") is None
    assert core.pins.get("b") is None
    assert core.history.of("b") == []
    core.finish(first, Outcome.CLIENT_GONE, 1.0)
    assert all_idle(core)
    assert core.fleet.has_turn("r0")


def test_who_may_not_wait_is_placed() -> None:
    core = make_core(1)
    assert asked(core, "a") is not None
    assert core.arrive(prompt("b", LONG_TOKENS), 0.0).replica_id == "r0"


def test_another_replica_is_no_reason_to_wait() -> None:
    core = make_core(2)
    tickets = [asked(core, "a"), asked(core, "b")]
    places = [ticket.replica_id for ticket in tickets if ticket is not None]
    assert sorted(places) == ["r0", "r1"]
    assert asked(core, "c") is None


def test_a_failed_try_takes_its_turn_along() -> None:
    core = make_core(2)
    first = asked(core, "a")
    assert first is not None
    there = first.replica_id
    full = UpstreamStatus("upstream-status", "full", http_status=503)
    assert core.retry(first, full, 1.0)
    assert core.fleet.has_turn(there)
    assert not core.fleet.has_turn(first.replica_id)


def test_a_replica_that_left_keeps_nobody_waiting() -> None:
    core = make_core(2)
    first = asked(core, "a")
    assert first is not None
    core.members.leave(first.replica_id)
    assert core.fleet.has_turn(first.replica_id)


@pytest.mark.parametrize("policy", ["sticky", "round_robin", "rendezvous", "modal_v2"])
def test_the_policies_of_others_know_no_turns(policy: str) -> None:
    core = make_core(1, policy=policy)
    assert all(asked(core, str(n)) is not None for n in range(4))
