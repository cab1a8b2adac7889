"""Several models behind one core: who serves what, what a name stands for, and calls apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from router.dialect.base import PromptFacts, SessionSource, Usage, Work
from router.edge.routes.naming import settle
from router.errors import ClientError, ConnectFailed, Refused, StreamStalled
from router.policy.registry import POLICIES
from router.state.fleet.names import Choice, ModelNames, Served
from router.state.fleet.replica import Description, ReplicaSpec
from router.state.health.table import Event
from router.state.history import Outcome
from tests.doubles.core_rig import all_idle, make_core, serve
from tests.doubles.prompts import prompt

if TYPE_CHECKING:
    from router.core import RouterCore

KIMI, QWEN = "kimi-k2.6", "qwen3"


def mixed(n: int = 4, *, policy: str = "home") -> RouterCore:
    """A core whose even replicas serve one model, with an adapter at the first, the odd another."""
    core = make_core(n, policy=policy)
    for i in range(n):
        adapters = (f"{KIMI}:tuned",) if i == 0 else ()
        said = (
            Description(models=(QWEN,)) if i % 2 else Description(models=(KIMI,), adapters=adapters)
        )
        core.members.described(f"r{i}", said)
    return core


def asking(model: str, *segments: int, key: str = "s") -> PromptFacts:
    facts = prompt(segments or (1, 2, 3), key=key)
    facts.model = model
    return facts


def call(work: Work = Work.CALL, *, model: str = "", key: str = "") -> PromptFacts:
    source = SessionSource.HEADER if key else SessionSource.CHAIN
    return PromptFacts("tokenize", model, work=work, session_key=key, session_source=source)


# Who serves what


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_stays_among_those_that_serve_the_model(policy: str) -> None:
    core = mixed(policy=policy)
    for n in range(40):
        model, home = (KIMI, {"r0", "r2"}) if n % 3 else (QWEN, {"r1", "r3"})
        facts = asking(model, 100 * n, 100 * n + 1, key=f"s{n % 7}/{model}")
        assert serve(core, facts, float(n)) in home
    assert serve(core, asking(f"{KIMI}:tuned", key="t"), 99.0) == "r0"
    assert all_idle(core)


def test_load_is_spread_within_a_model() -> None:
    core = mixed(8)
    for n in range(40):
        core.arrive(asking(KIMI, 10 * n, 10 * n + 1, key=f"s{n}"), 0.0)
    inflight = [r.inflight for r in core.fleet.replicas()]
    assert inflight[1::2] == [0] * 4
    assert min(inflight[::2]) >= 8


def test_a_retry_stays_with_the_model() -> None:
    core = mixed()
    ticket = core.arrive(asking(QWEN), 0.0)
    error = ConnectFailed("connect-failed", "no")
    first = ticket.replica_id
    assert core.retry(ticket, error, 1.0)
    assert {first, ticket.replica_id} == {"r1", "r3"}
    assert not core.retry(ticket, error, 2.0)
    core.finish(ticket, Outcome.FAILED, 3.0, error=error)


def test_a_model_whose_replicas_are_down_is_not_served_elsewhere() -> None:
    core = mixed()
    for name in ("r1", "r3"):
        core.members.heard(name, Event.DRAIN, 1.0)
    with pytest.raises(Refused, match="no replica that serves 'qwen3' is ready"):
        core.arrive(asking(QWEN), 2.0)
    names = ModelNames(core.fleet)
    assert names.resolve(QWEN) == Choice(QWEN)  # it is not unknown, only away
    assert serve(core, asking(KIMI), 3.0) in {"r0", "r2"}


def test_a_suspect_home_takes_its_own_model_only() -> None:
    core = mixed()
    home = serve(core, asking(QWEN), 0.0)
    core.members.heard(home, Event.PROBE_FAILED, 1.0)
    assert serve(core, asking(QWEN, 1, 2, 3, 4), 2.0) == home
    core.pins.touch("other", home, 3.0, tokens=10)
    assert serve(core, asking(KIMI, 7, 8, key="other"), 4.0) in {"r0", "r2"}


def test_a_replica_that_has_not_said_may_serve_anything() -> None:
    core = mixed()
    core.members.join(ReplicaSpec("r9", "127.0.0.1", 40_000), 0.0)
    core.members.heard("r9", Event.PROBE_OK, 0.0)
    assert serve(core, asking("llama"), 1.0) == "r9"
    core.members.described("r9", Description(models=(QWEN,)))
    names = ModelNames(core.fleet)
    with pytest.raises(ClientError, match="No replica serves a model 'llama'"):
        names.resolve("llama")


# Names


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        (KIMI, Choice(KIMI)),
        (QWEN, Choice(QWEN)),
        # SGLang takes any name and answers in it: an alias of a model stays in the body.
        ("gpt-5", Choice(QWEN)),
        ("claude-opus-4", Choice(KIMI)),
        ("claude-haiku-4-5", Choice(QWEN)),
        # It reads an adapter behind a colon, and knows no adapter by its own name alone.
        (f"{KIMI}:tuned", Choice(f"{KIMI}:tuned")),
        ("tuned", Choice(f"{KIMI}:tuned", f"{KIMI}:tuned")),
        ("my-tuned", Choice(f"{KIMI}:tuned", f"{KIMI}:tuned")),
        ("vendor:model", Choice(QWEN, QWEN)),
        # What no replica says it has loaded, the engine may still load.
        (f"{KIMI}:evicted", Choice(KIMI)),
        ("claude-opus-4:x", Choice(KIMI, KIMI)),
        ("", Choice(QWEN)),
        ("default", Choice(QWEN)),
    ],
)
def test_what_a_name_stands_for(name: str, choice: Choice) -> None:
    aliases = {
        "gpt-5": QWEN,
        "claude-*": KIMI,
        "claude-haiku-*": QWEN,
        "my-tuned": "tuned",
        "vendor:model": QWEN,
        "qwen*": KIMI,  # what is served goes before a pattern
    }
    names = ModelNames(mixed().fleet, aliases=aliases, default_model=QWEN)
    assert names.resolve(name) == choice
    assert names.resolve(name) == choice  # as it is remembered


def test_an_engine_that_compares_names_gets_its_own() -> None:
    names = ModelNames(mixed().fleet, aliases={"gpt-5": QWEN}, default_model=KIMI)
    assert names.resolve("gpt-5", is_checked=True) == Choice(QWEN, QWEN)
    assert names.resolve(QWEN, is_checked=True) == Choice(QWEN)
    assert names.resolve("", is_checked=True) == Choice(KIMI)
    assert names.resolve("default", is_checked=True) == Choice(KIMI, KIMI)


def test_an_adapter_may_be_named_apart() -> None:
    names = ModelNames(mixed().fleet)
    assert names.resolve(KIMI, lora_name="tuned") == Choice(f"{KIMI}:tuned")
    assert names.resolve(KIMI, lora_name="evicted") == Choice(KIMI)
    assert names.resolve(f"{KIMI}:tuned", lora_name="evicted") == Choice(f"{KIMI}:tuned")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("llama", r"'llama'; served here: kimi-k2\.6, qwen3, tuned, fast\.$"),
        ("", "names no model, and this router has no default_model; served here: "),
        ("x" * 400, "x{200}'; served here"),
        ("tuned:x", "'tuned:x'"),
        ("fast2", "'fast2'"),
    ],
)
def test_an_unknown_name_is_told_what_there_is(name: str, said: str) -> None:
    names = ModelNames(mixed().fleet, aliases={"fast": QWEN, "slow": "gone"})
    with pytest.raises(ClientError, match=said) as refused:
        names.resolve(name)
    assert (refused.value.code, refused.value.http_status) == ("unknown-model", 404)


def test_nothing_is_unknown_before_all_have_said() -> None:
    core = make_core(2)
    names = ModelNames(core.fleet)
    assert names.resolve("llama") == Choice("llama")
    core.members.described("r0", Description(models=(KIMI,)))
    assert names.resolve("llama") == Choice("llama")
    core.members.described("r1", Description(models=(KIMI,)))
    with pytest.raises(ClientError):
        names.resolve("llama")
    assert names.resolve("") == names.resolve("default") == Choice(KIMI)
    for name in ("r0", "r1"):
        core.members.heard(name, Event.CONNECT_FAILED, 1.0)
        core.members.heard(name, Event.CONNECT_FAILED, 1.0)
    assert names.resolve("llama") == Choice("llama")  # nobody is ready: that is the error to tell


def test_names_follow_the_fleet() -> None:
    core = mixed(2)
    names = ModelNames(core.fleet, aliases={"fast": "llama"})
    assert names.models == (KIMI, QWEN)
    assert names.adapters == {"tuned": Served(KIMI, "tuned")}
    assert (names.aliases, names.adapter_of("tuned")) == ({}, "tuned")
    core.members.described("r0", Description(models=("llama",)))
    assert (names.models, names.adapters) == (("llama", QWEN), {})
    assert (names.aliases, names.adapter_of("tuned")) == ({"fast": Served("llama")}, None)
    core.members.leave("r1")
    assert (names.models, names.has_several) == (("llama",), False)


def test_other_work_needs_no_model() -> None:
    names = ModelNames(mixed().fleet)
    assert names.resolve("", is_needed=False) == Choice("")
    assert names.resolve(KIMI, is_needed=False) == Choice(KIMI)
    with pytest.raises(ClientError):
        names.resolve("llama", is_needed=False)
    single = ModelNames(mixed(1).fleet)
    assert single.resolve("llama", is_needed=False) == Choice("")


def test_a_named_session_is_one_for_each_model() -> None:
    core = mixed()
    names = ModelNames(core.fleet, aliases={"large": KIMI, "small": QWEN})
    for turn in range(4):
        for model, homes in (("large", {"r0", "r2"}), ("small", {"r1", "r3"})):
            facts = asking(model, *range(1, 4 + turn))
            facts.parent_key = "parent"
            settle(facts, names)
            served = serve(core, facts, float(turn))
            pin = core.pins.get(facts.session_key)
            assert served in homes
            assert pin is not None
            assert (pin.home_id, pin.n_requests) == (served, turn + 1)
            assert facts.parent_key == f"parent/{facts.model}"
    assert core.history.totals.rehomes == core.history.totals.moves == 0
    alone = make_core(2)
    facts = asking("large")
    settle(facts, ModelNames(alone.fleet))
    assert facts.session_key == "s"


# Calls


def test_calls_go_where_least_is_in_flight_and_touch_nothing_else() -> None:
    core = make_core(3)
    busy = core.arrive(prompt([1, 2, 3], key="s"), 0.0)
    before = (core.index.held_bytes(busy.replica_id), len(core.history.of("")))
    tickets = [core.arrive(call(), 1.0) for _ in range(4)]
    assert sorted([busy.replica_id, *(t.replica_id for t in tickets)])[1::2] == ["r0", "r1"]
    assert [r.inflight for r in core.fleet.replicas()] in ([2, 2, 1], [2, 1, 2], [1, 2, 2])
    assert {t.reason for t in tickets} == {"least-load"}
    for ticket in tickets:
        core.began(ticket, 2.0)
        core.finish(ticket, Outcome.DONE, 3.0)
    core.finish(busy, Outcome.DONE, 4.0)
    assert (core.index.held_bytes(busy.replica_id), len(core.history.of(""))) == before
    assert not core.history.ttfts_s
    assert [pin.key for pin in core.pins.recent(9)] == ["s"]
    assert all_idle(core)


def test_a_count_goes_home_where_nobody_waits_longer() -> None:
    core = make_core(3)
    home = serve(core, prompt([1, 2, 3], key="s"), 0.0)
    pin = core.pins.get("s")
    assert pin is not None
    known = (pin.used_s, pin.n_requests, pin.tokens)
    count = prompt([1, 2, 3, 4], key="s")
    count.work = Work.COUNT
    ticket = core.arrive(count, 5.0)
    assert (ticket.replica_id, ticket.reason) == (home, "home")
    assert core.ledger.session_inflight("s", home) == 0
    core.began(ticket, 5.1)
    core.finish(ticket, Outcome.DONE, 5.2, usage=Usage(9, 9, 9))
    core.pins.touch("giant", home, 6.0, tokens=1)
    giant = core.arrive(prompt(range(500, 700), key="giant"), 6.0)
    assert giant.replica_id == home
    away = core.arrive(count, 7.0)
    assert away.replica_id != home
    assert (pin.used_s, pin.n_requests, pin.tokens) == known
    assert len(core.history.of("s")) == 1


def test_calls_know_models_and_limits() -> None:
    core = mixed()
    first = core.arrive(call(model=QWEN), 0.0).replica_id
    assert first in {"r1", "r3"}
    others = {core.arrive(call(Work.OTHER), 0.0).replica_id for _ in range(3)}
    assert others == {"r0", "r1", "r2", "r3"} - {first}
    ticket = core.arrive(call(model=QWEN), 0.0)
    assert core.retry(ticket, ConnectFailed("connect-failed", "no"), 1.0)
    assert not core.retry(ticket, ConnectFailed("connect-failed", "no"), 1.0)


def test_what_nobody_knows_is_not_repeated_once_it_may_have_started() -> None:
    core = make_core(4)
    for work, is_repeated in ((Work.CALL, True), (Work.COUNT, True), (Work.OTHER, False)):
        ticket = core.arrive(call(work), 0.0)
        assert core.retry(ticket, ConnectFailed("connect-failed", "no"), 1.0)
        assert core.retry(ticket, StreamStalled("stream-stalled", "no"), 2.0) is is_repeated
        core.finish(ticket, Outcome.FAILED, 3.0)
