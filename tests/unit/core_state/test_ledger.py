"""The ledger: whatever happens, every request is released once and the sums return to zero."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from router.state.fleet.ledger import LONG_TOKENS, Ledger

_STEPS = st.lists(
    st.tuples(st.sampled_from(["open", "began", "move", "close"]), st.integers(0, 9)), max_size=80
)


def test_load_follows_a_request_through_its_life() -> None:
    ledger = Ledger()
    entry = ledger.open("a", "s", tokens=1000, prefill_s=0.25)
    load = ledger.load("a")
    assert (load.inflight, load.inflight_tokens, load.backlog_s, load.decoding) == (
        1,
        1000,
        0.25,
        0,
    )
    assert ledger.session_inflight("s", "a") == 1
    ledger.began(entry)
    assert (load.inflight, load.backlog_s, load.decoding) == (1, 0.0, 1)
    ledger.close(entry)
    assert (load.inflight, load.inflight_tokens, load.decoding) == (0, 0, 0)
    assert ledger.session_inflight("s", "a") == 0


def test_a_move_takes_the_request_along() -> None:
    ledger = Ledger()
    entry = ledger.open("a", "s", tokens=10, prefill_s=1.0)
    ledger.move(entry, "b", prefill_s=2.0)
    assert ledger.load("a").inflight == 0
    assert ledger.load("b").backlog_s == 2.0
    assert ledger.session_inflight("s", "a") == 0
    assert ledger.session_inflight("s", "b") == 1


def test_closing_or_beginning_twice_changes_nothing() -> None:
    ledger = Ledger()
    entry = ledger.open("a", "s", tokens=10, prefill_s=1.0)
    ledger.began(entry)
    ledger.began(entry)
    ledger.close(entry)
    ledger.close(entry)
    ledger.began(entry)
    load = ledger.load("a")
    assert (load.inflight, load.inflight_tokens, load.decoding, load.backlog_us) == (0, 0, 0, 0)


@settings(deadline=None)
@given(_STEPS)
def test_sums_return_to_zero_after_any_interleaving(steps: list[tuple[str, int]]) -> None:
    ledger = Ledger()
    entries = []
    for step, n in steps:
        if step == "open":
            session = f"s{n % 3}"
            entries.append(
                ledger.open(
                    "ab"[n % 2],
                    session,
                    tokens=n * 7,
                    prefill_s=n * 0.1,
                    prefill_tokens=n * LONG_TOKENS // 5,
                )
            )
        elif entries:
            entry = entries[n % len(entries)]
            if step == "began":
                ledger.began(entry)
            elif step == "close":
                ledger.close(entry)
            elif entry.is_open:
                ledger.move(entry, "ba"[n % 2], prefill_s=0.3, prefill_tokens=n * LONG_TOKENS // 4)
        for replica_id in "ab":
            load = ledger.load(replica_id)
            here = [e for e in entries if e.is_open and e.replica_id == replica_id]
            assert load.inflight == len(here)
            assert load.inflight_tokens == sum(e.tokens for e in here)
            assert load.decoding == sum(e.has_begun for e in here)
            waiting = [e for e in here if not e.has_begun]
            assert load.backlog_us == sum(e.prefill_us for e in waiting)
            assert load.prefill_tokens == sum(e.prefill_tokens for e in waiting)
            assert load.long_prefills == sum(e.prefill_tokens >= LONG_TOKENS for e in waiting)
    for entry in entries:
        ledger.close(entry)
    for replica_id in "ab":
        load = ledger.load(replica_id)
        assert (load.inflight, load.inflight_tokens, load.decoding, load.backlog_us) == (0, 0, 0, 0)
        assert (load.prefill_tokens, load.long_prefills) == (0, 0)
        assert all(ledger.session_inflight(f"s{i}", replica_id) == 0 for i in range(3))
