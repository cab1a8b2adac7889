"""Long prompts take turns: what the core says to who may wait."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialect.base import PromptFacts, SessionSource
from router.errors import AwaitsTurn, UpstreamStatus
from router.state.fleet.ledger import LONG_TOKENS
from router.state.fleet.replica import Description
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


@given(most_s=st.floats(0.0, 600.0), short_s=st.floats(0.0, 600.0), fill_ratio=st.floats(0.0, 9.0))
def test_it_waits_the_longer_the_less_the_caches_hold_of_what_lives(
    most_s: float, short_s: float, fill_ratio: float
) -> None:
    def allowed_s(fill_ratio: float, *, is_short_first: bool = True) -> float:
        turn = AwaitsTurn(
            "r0",
            retry_after_s=1.0,
            new_tokens=1,
            is_short_first=is_short_first,
            fill_ratio=fill_ratio,
        )
        return turn.allowed_s(most_s=most_s, short_first_s=short_s)

    assert allowed_s(fill_ratio, is_short_first=False) == most_s
    assert min(most_s, short_s) <= allowed_s(fill_ratio) <= allowed_s(fill_ratio + 0.1) <= most_s
    assert allowed_s(min(fill_ratio, 1.0)) == min(most_s, short_s)
    assert allowed_s(1.5) == pytest.approx(most_s)


@pytest.mark.parametrize(
    ("fill_ratio", "allowed_s"),
    [(0.4, 30.0), (1.25, 30.0), (1.3, 38.88), (1.4, 92.16), (2.0, 180.0)],
)
def test_the_wait_grows_late_and_then_fast(fill_ratio: float, allowed_s: float) -> None:
    turn = AwaitsTurn(
        "r0", retry_after_s=1.0, new_tokens=1, is_short_first=True, fill_ratio=fill_ratio
    )
    assert turn.allowed_s(most_s=180.0, short_first_s=30.0) == pytest.approx(allowed_s)


def test_the_core_tells_the_order_of_the_engine_and_how_full_the_fleet_is() -> None:
    core = make_core(1)
    core.members.described("r0", Description(capacity_tokens=100_000, is_short_first=True))
    assert asked(core, "a") is not None
    with pytest.raises(AwaitsTurn) as told:
        core.arrive(prompt("b", LONG_TOKENS), 0.0, may_wait=True)
    turn = told.value
    assert turn.is_short_first
    assert turn.new_tokens == turn.place >= LONG_TOKENS
    assert turn.fill_ratio == core.fleet.view().fill_ratio > 0.0


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
