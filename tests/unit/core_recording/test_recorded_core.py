"""What a recorded core writes down, and what it keeps to itself."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from router.dialect.base import Usage
from router.errors import ClientError, ConnectFailed, Refused, UpstreamStatus
from router.recording import records
from router.recording.errors import RecordingError
from router.recording.faults import error_like, fault_of, upstream_error_like
from router.recording.records import (
    Arrive,
    Finish,
    Header,
    Heard,
    Placed,
    Refusal,
    Retry,
    Tick,
)
from router.recording.seal import Seal, name_of
from router.state.fleet.replica import Description, ReplicaSpec
from router.state.health.table import Event
from router.state.history import Outcome
from tests.doubles.core_drill import PARAMETERS, Drill
from tests.doubles.prompts import prompt
from tests.doubles.recordings import SALT, Kept, packed, recorded

if TYPE_CHECKING:
    from router.recording.recorded_core import RecordedCore


def ready(n: int = 2) -> tuple[RecordedCore, Kept]:
    core, journal = recorded()
    for at in range(n):
        core.members.join(ReplicaSpec(f"r{at}", "127.0.0.1", 31_000 + at), 0.0)
        core.members.heard(f"r{at}", Event.PROBE_OK, 0.0)
    return core, journal


def kinds(journal: Kept) -> list[str]:
    return [type(row).__name__ for row in journal.records]


def test_inputs_and_answers_stand_in_their_order() -> None:
    core, journal = ready()
    ticket = core.arrive(prompt([1, 2, 3], key="s"), 1.0)
    core.retry(ticket, ConnectFailed("connect-failed", "words"), 2.0)
    core.retry(ticket, UpstreamStatus("upstream-status", "more words"), 3.0)
    core.finish(ticket, Outcome.FAILED, 4.0, error=UpstreamStatus("upstream-status", "words"))
    core.tick(5.0)
    expected = "Header Join Heard Join Heard Arrive Placed Retry Placed Retry Stayed Finish Tick"
    assert kinds(journal) == expected.split()
    first, second = [row for row in journal.records if isinstance(row, Placed)]
    assert first.ticket == second.ticket == 1
    assert first.ranked[0] != second.ranked[0]
    assert (first.reason, second.reason) == ("new", "retry")
    finish = next(row for row in journal.records if isinstance(row, Finish))
    assert (finish.fault, finish.code) == ("UpstreamStatus", "upstream-status")
    assert finish.prompt_tokens is None


def test_what_the_core_tells_itself_is_no_input() -> None:
    core, journal = ready(1)
    ticket = core.arrive(prompt([1, 2], key="s"), 1.0)
    core.began(ticket, 2.0)  # which is also a sign of health
    core.blame(ticket, ConnectFailed("connect-failed", "x"), 3.0)  # and this of illness
    core.members.join(ReplicaSpec("lease", "127.0.0.1", 1, lease_s=5.0), 3.0)
    assert core.tick(20.0) == ["lease"]  # it leaves
    assert kinds(journal)[5:] == ["Began", "Blame", "Join", "Tick"]
    assert journal.records[-1] == Tick(20.0, ("lease",))
    with pytest.raises(AssertionError, match=r"RouterCore\.tick"):
        core.members.expire(30.0)


def test_what_changes_nothing_is_not_written_again() -> None:
    core, journal = ready()
    ticket = core.arrive(prompt([1, 2], key="s"), 1.0)
    core.began(ticket, 2.0)
    core.began(ticket, 2.5)
    core.finish(ticket, Outcome.DONE, 3.0)
    core.finish(ticket, Outcome.DONE, 4.0)
    core.began(ticket, 5.0)
    assert Counter(kinds(journal))["Began"] == Counter(kinds(journal))["Finish"] == 1


def test_a_turn_of_a_growing_session_takes_under_150_bytes() -> None:
    core, journal = ready(8)
    dice = random.Random(1)
    now_s = 100.0
    head = [dice.getrandbits(64) for _ in range(15)]
    talks = [list(head) for _ in range(30)]
    n_turns = 0
    for _ in range(20):
        for n, talk in enumerate(talks):
            talk += [dice.getrandbits(64) for _ in range(dice.randint(2, 5))]
            now_s += dice.expovariate(10.0)
            ticket = core.arrive(prompt(talk, key=f"{n:032x}", head_segments=len(head)), now_s)
            core.began(ticket, now_s + dice.random())
            tokens = len(talk) * 1_000 + dice.randrange(1_000)
            usage = Usage(tokens, dice.randrange(2_000), tokens // 64 * 64 - 4_096)
            core.finish(ticket, Outcome.DONE, now_s + dice.random() * 20, usage=usage)
            n_turns += 1
    data = packed(journal.records, batch=150)  # some fifty turns, as a second of a large fleet has
    assert len(data) / n_turns < 150


def test_a_refusal_is_an_answer() -> None:
    core, journal = recorded()
    with pytest.raises(Refused):
        core.arrive(prompt([1], key="s"), 1.0)
    assert journal.records[-1] == Refusal("no-replica-ready", 2.0)


def test_people_see_the_plain_key_and_the_policy_the_sealed_one() -> None:
    core, journal = ready()
    ticket = core.arrive(prompt([1, 2], key="my session"), 1.0)
    sealed = Seal(SALT).session("my session")
    assert core.pins.get("my session") is not None
    assert core.history.of("my session")
    assert ticket.session_key == "my session"
    assert ticket.request.session_key == name_of(sealed)
    arrive = next(row for row in journal.records if isinstance(row, Arrive))
    assert arrive.session == sealed


def test_a_journal_that_has_ended_gets_nothing_and_the_core_goes_on() -> None:
    core, journal = ready()
    ticket = core.arrive(prompt([1, 2], key="s"), 1.0)
    journal.stop("enough")
    n = len(journal.records)
    core.began(ticket, 2.0)
    assert core.retry(
        core.arrive(prompt([9], key="t"), 2.0), ConnectFailed("connect-failed", "x"), 2.0
    )
    core.blame(ticket, ConnectFailed("connect-failed", "x"), 2.0)
    core.finish(ticket, Outcome.DONE, 3.0)
    core.members.join(ReplicaSpec("r9", "127.0.0.1", 9), 3.0)
    core.members.renew("r9", 3.0)
    core.members.described("r9", Description(models=("kimi",)))
    core.members.leave("r9")
    core.tick(4.0)
    assert len(journal.records) == n
    assert core._chains._known == {}
    assert all(not replica.models for replica in core.fleet.replicas())


def test_a_prompt_of_too_many_segments_ends_the_recording_and_is_placed() -> None:
    core, journal = ready()
    ticket = core.arrive(prompt(range(1, 60_000), key="s"), 1.0)
    assert ticket.replica_id
    assert "59999 new segments" in journal.stopped
    assert kinds(journal)[-1] == "Heard"


def test_errors_come_back_by_class_and_code_without_their_words() -> None:
    class Odd(ConnectFailed):
        pass

    for error in (
        ConnectFailed("connect-timeout", "host x"),
        Odd("connect-failed", "host x"),
        UpstreamStatus("upstream-status", "secret", http_status=418),
        Refused("saturated", "x"),
        ClientError("bad-request", "x"),
    ):
        like = error_like(fault_of(error), error.code)
        assert isinstance(error, type(like))
        assert like.code == error.code
        assert error.message not in str(like) or error.message == "x"
    with pytest.raises(RecordingError, match="Explosion connect-failed"):
        error_like("Explosion", "connect-failed")
    with pytest.raises(RecordingError, match="ConnectFailed melted"):
        error_like("ConnectFailed", "melted")
    with pytest.raises(RecordingError, match="blames a replica for the error Refused"):
        upstream_error_like("Refused", "saturated")


def test_the_random_drill_reaches_every_kind_of_record_and_decision() -> None:
    seen: Counter[str] = Counter()
    for seed in range(16):
        core, journal = recorded(seed=seed, parameters=PARAMETERS[seed % 2])
        Drill(core, seed).run(600)
        seen.update(kinds(journal))
        seen.update(row.reason for row in journal.records if isinstance(row, Placed))
        seen.update(row.code for row in journal.records if isinstance(row, Refusal))
        seen.update(row.event for row in journal.records if isinstance(row, Heard))
        seen.update(row.fault or "" for row in journal.records if isinstance(row, Finish | Retry))
        seen["back"] += sum(isinstance(row, Arrive) and row.back > 1 for row in journal.records)
        seen["ended"] += sum(len(row.ended) for row in journal.records if isinstance(row, Tick))
    every = {
        name
        for name, kind in vars(records).items()
        if isinstance(kind, type) and issubclass(kind, records._Record)
    }
    wanted = {
        "home", "new", "rehome", "spill", "retry", "auxiliary", "branch", "move", "split",
        "saturated", "no-replica-ready", "awaits-turn", "back", "ended", *Event,
    } - {Event.DRAIN, Event.UNDRAIN}  # fmt: skip
    missing = (wanted | every - {"End", "_Record"}) - seen.keys()
    assert not missing
    assert isinstance(journal.records[0], Header)
