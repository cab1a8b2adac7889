"""Whatever happens, the kept sums and orders are those that a look at every replica finds."""

from __future__ import annotations

import random
from operator import attrgetter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from router.core import RouterCore
from router.policy import registry
from router.state.health.table import State
from tests.doubles.core_drill import PARAMETERS, Drill

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.core import CoreParameters
    from router.dialect.base import PromptFacts
    from router.state.fleet.candidates import Candidate
    from router.ticket import Ticket

STEPS = 25


MODELS = ("", "kimi-k2.6", "kimi-k2.6:tuned", "qwen3", "nobody's")


def _check(core: _Watched, tried: list[str], home_id: str | None, model: str) -> None:
    everyone = core.fleet.replicas()
    serving = everyone
    if model and len({r.serves for r in everyone}) > 1:
        serving = [r for r in everyone if not r.serves or model in r.serves]
    ready = [r for r in serving if r.state in (State.READY, State.TRIAL)]
    ready = ready or [r for r in serving if r.state in (State.SUSPECT, State.FULL)]
    ready = ready or [r for r in serving if r.state is State.STALLED]
    at_home = [r for r in serving if r.replica_id == home_id]
    may = [
        r
        for r in serving
        if r in ready or (r in at_home and r.state in (State.SUSPECT, State.FULL))
    ]
    may = [r for r in may if not r.is_full and r.replica_id not in tried]
    may = [r for r in may if not r.is_at_allowance] or may
    view = core.fleet.view(tried, home_id=home_id, model=model)
    assert list(view.candidates) == may
    assert view.is_empty == (not may)
    assert view.n_ready == len(ready)
    assert view.inflight_sum == sum(r.inflight for r in ready)
    assert view.inflight_most == max([r.inflight for r in ready], default=0)
    live, capacity = (
        sum(map(attrgetter(name), ready)) for name in ("live_tokens", "capacity_tokens")
    )
    assert view.fill_ratio == (live / capacity if capacity else 0.0)
    for r in may:
        assert view.least_backlog_s <= r.backlog_s + 1e-6 * max(1.0, r.handicap)
        assert view.least_prefill_s(1_000, 64) <= r.prefill_s(1_000, 64)
    for r in everyone:
        assert view.candidate(r.replica_id) is (r if r in may else None)
        assert r.held_bytes == core.index.held_bytes(r.replica_id)
        here = [t.entry for t in core.tickets if t.entry.is_open and t.replica_id == r.replica_id]
        waiting = [entry for entry in here if not entry.has_begun]
        assert r.load.inflight == len(here)
        told = r.peers.prefill_tokens
        assert r.prefill_tokens == told + sum(entry.prefill_tokens for entry in waiting)
    orders: tuple[tuple[Callable[[int, str], list[Candidate]], Callable[[Candidate], int]], ...] = (
        (view.least_backlogged, lambda r: r.backlog_us),
        (view.least_inflight, lambda r: r.inflight),
        (view.least_lived_in, lambda r: int(r.live_tokens * r.handicap)),
    )
    for least, value in orders:
        for k in (1, 3, 9):
            found = least(k, f"s{k}")
            assert [value(r) for r in found] == sorted(value(r) for r in may)[:k]
            assert len({r.replica_id for r in found}) == len(found)


class _Watched(RouterCore):
    """A core that remembers its tickets."""

    def __init__(self, parameters: CoreParameters) -> None:
        super().__init__(registry.make("home"), random.Random(1), parameters)
        self.tickets: list[Ticket] = []

    @override
    def arrive(self, facts: PromptFacts, now_s: float, *, may_wait: bool = False) -> Ticket:
        self.tickets.append(super().arrive(facts, now_s, may_wait=may_wait))
        return self.tickets[-1]


@pytest.mark.parametrize("parameters", PARAMETERS)
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_kept_sums_are_the_sums(seed: int, parameters: CoreParameters) -> None:
    core = _Watched(parameters)
    drill = Drill(core, seed)
    dice = random.Random(seed)
    for _ in range(24):
        drill.run(STEPS)
        names = [f"r{n}" for n in range(6)]
        for model in MODELS:
            tried = dice.sample(names, dice.choice((0, 0, 2)))
            _check(core, tried, dice.choice([None, *names]), model)
