"""Requests that one replica alone can serve."""

from __future__ import annotations

import pytest

from router.core import CoreParameters
from router.dialect.base import PromptFacts
from router.errors import ConnectFailed, Refused, UpstreamStatus
from router.state.health.table import Event
from router.state.history import Outcome
from tests.doubles.core_rig import all_idle, make_core, serve
from tests.doubles.prompts import prompt


def bound(segments: list[int], key: str = "s", *, to: str) -> PromptFacts:
    facts = prompt(segments, key=key)
    facts.bound_to = to
    return facts


@pytest.mark.parametrize("policy", ["home", "round_robin", "rendezvous"])
def test_it_goes_to_its_holder_whatever_the_policy_says(policy: str) -> None:
    core = make_core(4, policy=policy)
    for n in range(8):
        ticket = core.arrive(bound([n + 1], f"s{n}", to="r2"), n * 1.0)
        assert (ticket.replica_id, ticket.reason, ticket.spec.port) == ("r2", "holder", 31_002)
        assert ticket.record.ranked == ("r2",)
        core.finish(ticket, Outcome.DONE, n + 0.5)
    assert all_idle(core)


def test_its_session_lives_there_from_then_on() -> None:
    core = make_core()
    home = serve(core, prompt([1, 2], key="s"), 0.0)
    other = next(name for name in ("r0", "r1", "r2") if name != home)
    assert serve(core, bound([7], to=other), 1.0) == other
    assert serve(core, prompt([1, 2, 3], key="s"), 2.0) == other


def test_a_look_at_a_response_binds_nothing() -> None:
    core = make_core()
    home = serve(core, prompt(list(range(1, 60)), key="s"), 0.0)
    pin = core.pins.get("s")
    assert pin is not None
    tokens = pin.tokens
    look = PromptFacts(
        dialect="openai-responses", is_readable=False, session_key="s", bound_to=home
    )
    core.finish(core.arrive(look, 1.0), Outcome.DONE, 1.1)
    assert (pin.home_id, pin.tokens) == (home, tokens)


def test_it_is_not_tried_elsewhere() -> None:
    core = make_core()
    ticket = core.arrive(bound([1], to="r1"), 0.0)
    assert not core.retry(ticket, UpstreamStatus("upstream-status", "busy", http_status=503), 0.1)
    assert not core.retry(ticket, ConnectFailed("connect-failed", "refused"), 0.2)
    core.finish(ticket, Outcome.FAILED, 0.3)
    with pytest.raises(Refused) as caught:  # that one was refused, so it is down
        core.arrive(bound([1], to="r1"), 0.4)
    assert caught.value.code == "no-replica-ready"
    assert "r1" in caught.value.message
    assert caught.value.retry_after_s
    assert all_idle(core)


def test_a_replica_that_leaves_is_still_asked() -> None:
    core = make_core()
    core.members.heard("r1", Event.DRAIN, 0.0)
    assert core.arrive(bound([1], to="r1"), 0.1).replica_id == "r1"
    core.members.leave("r1")
    with pytest.raises(Refused):
        core.arrive(bound([1], to="r1"), 0.2)


def test_its_holders_limit_does_not_count() -> None:
    core = make_core(1, parameters=CoreParameters(inflight_max=1))
    first = core.arrive(prompt([1], key="a"), 0.0)
    with pytest.raises(Refused):
        core.arrive(prompt([2], key="b"), 0.1)
    second = core.arrive(bound([3], to="r0"), 0.2)
    assert first.replica_id == second.replica_id == "r0"
