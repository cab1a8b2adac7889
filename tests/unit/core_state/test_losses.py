"""One report of cached tokens settles what is believed of a replica's cache."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.dialect.base import Usage
from router.state.fleet.replica import Description
from router.state.history import Outcome
from tests.doubles.core_rig import make_core
from tests.doubles.prompts import prompt

if TYPE_CHECKING:
    from router.core import RouterCore
    from router.ticket import Ticket

HEAD = [1, 2, 3, 4]


def _chain(session: int, turns: int) -> list[int]:
    """A head that all share, then what is the session's own: two segments a turn."""
    return HEAD + [1_000 * session + n for n in range(2 * turns)]


def _ask(core: RouterCore, session: int, turns: int, now_s: float) -> Ticket:
    return core.arrive(prompt(_chain(session, turns), key=f"s{session}"), now_s)


def _answer(core: RouterCore, ticket: Ticket, now_s: float, cached: int | None) -> None:
    core.began(ticket, now_s)
    n_tokens = 1_000 * len(ticket.facts.chain)
    core.finish(ticket, Outcome.DONE, now_s, usage=Usage(n_tokens, 0, cached))


def _turn(core: RouterCore, session: int, turns: int, now_s: float, cached: int | None) -> int:
    """One request; answers what was predicted."""
    ticket = _ask(core, session, turns, now_s)
    _answer(core, ticket, now_s + 0.5, cached)
    return ticket.cached_tokens


def _losses(core: RouterCore) -> int:
    replica = core.fleet.get("r0")
    assert replica is not None
    return replica.counters.cache_losses


def _filled(n_sessions: int = 4, turns: int = 10) -> RouterCore:
    """One replica that has computed so many sessions, one after the other."""
    core = make_core(1)
    for session in range(1, n_sessions + 1):
        _turn(core, session, turns, session * 10.0, 0 if session == 1 else 3_968)
    assert _losses(core) == 0
    return core


def test_a_flush_is_known_of_all_sessions_after_one_request() -> None:
    core = _filled()
    assert _turn(core, 2, 11, 100.0, 0) > 20_000
    assert _losses(core) == 1
    # The next ones share the head that was computed anew, and nothing else.
    for session in (1, 3, 4):
        predicted = _turn(core, session, 11, 100.0 + 10 * session, 3_968)
        assert predicted == 4_000 // 64 * 64
    assert _losses(core) == 1
    assert _turn(core, 2, 12, 200.0, 26_000 // 64 * 64) > 25_000


def test_an_eviction_costs_the_belief_in_what_is_older_and_in_nothing_else() -> None:
    core = _filled()
    # Session 2 is gone down to the head: so is session 1, which was used before it.
    assert _turn(core, 2, 11, 100.0, 3_968) > 20_000
    assert _losses(core) == 1
    assert _turn(core, 1, 11, 110.0, 3_968) == 4_000 // 64 * 64
    assert _turn(core, 3, 11, 120.0, 23_936) > 23_000
    assert _turn(core, 4, 11, 130.0, 23_936) > 23_000
    assert _losses(core) == 1


def test_a_part_that_was_evicted_leaves_the_part_before_it() -> None:
    core = make_core(1)
    _turn(core, 1, 5, 0.0, 0)
    _turn(core, 1, 20, 10.0, 13_952)
    _turn(core, 2, 5, 20.0, 3_968)
    assert _turn(core, 1, 21, 30.0, 20_032) > 40_000
    assert _losses(core) == 1
    assert _turn(core, 2, 6, 40.0, 13_952) > 13_000  # it was used later than what is gone


def test_what_was_used_since_the_request_came_is_not_judged_by_it() -> None:
    core = _filled()
    ticket = _ask(core, 2, 11, 100.0)
    other = _ask(core, 3, 11, 100.1)
    _answer(core, other, 101.0, 0)
    assert _losses(core) == 1
    _answer(core, ticket, 102.0, 0)  # both came before it was known, and both computed the head
    assert _turn(core, 3, 12, 110.0, 26_000 // 64 * 64) > 25_000
    assert _turn(core, 2, 12, 120.0, 26_000 // 64 * 64) > 25_000


@pytest.mark.parametrize("cached", [20_000, 23_936, 30_000, None])
def test_a_small_difference_and_silence_say_nothing(cached: int | None) -> None:
    core = _filled()
    _turn(core, 2, 11, 100.0, cached)
    assert _losses(core) == 0


def test_of_several_caches_behind_one_url_a_report_tells_nothing() -> None:
    core = _filled()
    core.members.described("r0", Description(models=("kimi",), n_caches=2))
    _turn(core, 2, 11, 100.0, 0)
    assert _losses(core) == 0


def test_a_wrong_ratio_of_bytes_to_tokens_is_no_loss() -> None:
    core = make_core(1)
    # Six bytes a token in truth, four until that is known: heads are overestimated by half.
    for session in range(1, 4):
        ticket = _ask(core, session, 10, session * 10.0)
        core.began(ticket, session * 10.0 + 0.5)
        usage = Usage(16_000, 0, 0 if session == 1 else 2_624)
        core.finish(ticket, Outcome.DONE, session * 10.0 + 1.0, usage=usage)
    assert _losses(core) == 0


def test_what_is_new_and_larger_than_its_bytes_is_no_loss() -> None:
    core = _filled()
    ticket = _ask(core, 2, 11, 100.0)
    core.began(ticket, 100.5)
    # An image of 200,000 tokens in a part of 2,000 bytes; the part before it was cached whole.
    core.finish(ticket, Outcome.DONE, 101.0, usage=Usage(226_000, 0, 23_936))
    assert _losses(core) == 0


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from([40, 80, 160, 10_000]))
def test_against_an_engine_that_evicts_sooner_than_stated(seed: int, n_segments: int) -> None:
    """An engine of its own size, with flushes: who only flushes is misjudged once for each."""
    dice = random.Random(seed)
    core = make_core(1)
    cache: dict[int, int] = {}  # segment by its last use; the engine's own, least recent first out
    turns = dict.fromkeys(range(1, 7), 1)
    n_flushes = n_misjudged = 0
    for step in range(120):
        if dice.random() < 0.03:
            cache.clear()
            n_flushes += 1
        session = dice.choice(list(turns))
        turns[session] = turns[session] % 30 + 1
        chain = _chain(session, turns[session])
        n_cached = next((n for n, value in enumerate(chain) if value not in cache), len(chain))
        for depth, value in enumerate(reversed(chain)):
            cache[value] = step * 1_000 + depth
        for value in sorted(cache, key=cache.__getitem__)[: max(0, len(cache) - n_segments)]:
            del cache[value]
        cached = min(n_cached * 1_000, len(chain) * 1_000 - 1) // 64 * 64
        n_misjudged += _turn(core, session, turns[session], step * 10.0, cached) > cached + 1_000
        # Asked again at once, the prompt is where the engine has it. (The room of so small an engine is
        # learned from prompts that are nearly as large, so not to the segment.)
        if len(chain) <= n_segments // 2:
            ticket = _ask(core, session, turns[session], step * 10.0 + 5.0)
            assert ticket.cached_tokens >= (len(chain) - 1) * 1_000 * 0.9 - 128
            core.finish(ticket, Outcome.CLIENT_GONE, step * 10.0 + 6.0)
    if n_segments == 10_000:
        assert n_misjudged <= n_flushes
        assert core.fleet.replicas()[0].keeping.shown_factor == 1.0
    held = core.index.held_bytes("r0")
    assert 0 <= held <= core.index.set_capacity("r0", 4_000_000).capacity_bytes
    core.index.lost("r0", 2**62)
    assert core.index.held_bytes("r0") == 0
    assert not core.index._holdings["r0"].nodes
