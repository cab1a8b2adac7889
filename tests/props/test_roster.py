"""Whatever sources and operators say in whatever order, the fleet is what the rules make of it.

1. Who is named by a source that counts is in the fleet, with what the first such source says of it.
2. Who is named no more drains, and leaves at a tick that finds nothing in flight there, or its time over: at
   an operator's deadline, if that comes first.
3. Named again before that, it stays.
4. A lease that ends is a source that names no more, but who is named by nobody else leaves at once.
5. A removal is at once. Sources that go on naming the replica do not count for it until they have
   stopped; a registration, or an operator's own word, makes all of them count.
6. A replica drains while an operator's drain stands, or its source wants it. A drain with an end
   removes the replica as an operator does. A registration ends an operator's drain.
7. What is said again unchanged changes nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from router.core import RouterCore
from router.policy import registry
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event, State
from router.state.members.roster import Offer, Roster, Source

if TYPE_CHECKING:
    from router.state.fleet.ledger import Entry

LEAVE_S = 30.0
NAMES = ("a", "b", "c", "d")
WHOLE = (Source.STATIC, Source.FILE, Source.KUBERNETES, Source.DNS)


@dataclass
class Rules:
    """The rules above on plain tables; ``inside`` is who is in the fleet."""

    said: dict[Source, dict[str, Offer]] = field(default_factory=lambda: {s: {} for s in Source})
    lease: dict[str, float] = field(default_factory=dict)
    muted: set[tuple[Source, str]] = field(default_factory=set)
    inside: set[str] = field(default_factory=set)
    leaving: dict[str, float] = field(default_factory=dict)
    drained: dict[str, tuple[float | None, bool]] = field(default_factory=dict)

    def word(self, name: str) -> Offer | None:
        for source in Source:
            if name in self.said[source] and (source, name) not in self.muted:
                return self.said[source][name]
        return None

    def follow(self, now_s: float) -> None:
        for name in NAMES:
            for source in Source:
                if name not in self.said[source]:
                    self.muted.discard((source, name))
            if self.word(name) is not None:
                self.inside.add(name)
                self.leaving.pop(name, None)
            elif name in self.inside:
                until_s, _ = self.drained.get(name, (None, False))
                left_s = LEAVE_S if until_s is None else min(LEAVE_S, max(0.0, until_s - now_s))
                self.leaving.setdefault(name, now_s + left_s)

    def out(self, name: str) -> None:
        self.inside.discard(name)
        self.leaving.pop(name, None)
        self.drained.pop(name, None)

    def remove(self, name: str) -> None:
        self.out(name)
        self.lease.pop(name, None)
        for source in (Source.OPERATOR, Source.REGISTERED):
            self.said[source].pop(name, None)
        self.muted |= {(source, name) for source in Source if name in self.said[source]}

    def named(self, source: Source, spec: ReplicaSpec, now_s: float) -> None:
        name = spec.replica_id
        self.said[source][name] = Offer(spec)
        if source is Source.REGISTERED:
            self.lease.pop(name, None)
            if spec.lease_s is not None:
                self.lease[name] = now_s + spec.lease_s
        self.drained.pop(name, None)
        self.muted -= {(source, name) for source in Source}
        self.follow(now_s)

    def tick(self, now_s: float, inflight: dict[str, int]) -> None:
        for name in [name for name, until_s in self.lease.items() if until_s < now_s]:
            del self.lease[name]
            del self.said[Source.REGISTERED][name]
            if self.word(name) is None:
                self.out(name)
        self.follow(now_s)
        for name in sorted(self.inside):
            if name in self.leaving:
                if not inflight.get(name) or self.leaving[name] <= now_s:
                    self.out(name)
            elif name in self.drained:
                until_s, leaves = self.drained[name]
                is_over = until_s is not None and until_s <= now_s
                if is_over or (leaves and not inflight.get(name)):
                    self.remove(name)

    def drains(self, name: str) -> bool:
        word = self.word(name)
        return name in self.leaving or name in self.drained or (word is not None and word.drains)


class Play:
    """A roster over a real core, and the rules beside it, told the same at random."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.core = RouterCore(registry.make("home"), random.Random(0))
        self.roster = Roster(self.core.members, self.core.fleet, leave_drain_s=LEAVE_S)
        self.rules = Rules()
        self.now_s = 0.0
        self.entries: list[tuple[str, Entry]] = []

    def spec(self, name: str, source: Source) -> ReplicaSpec:
        port = 30_000 + NAMES.index(name) + self.dice.choice((0, 0, 0, 100))
        inflight_max = self.dice.choice((None, None, 8))
        lease_s = self.dice.choice((None, 20.0)) if source is Source.REGISTERED else None
        return ReplicaSpec(
            name, "h", port, source=source, inflight_max=inflight_max, lease_s=lease_s
        )

    def step(self) -> None:
        acts = (self.say, self.say, self.name, self.renew, self.withdraw, self.drain, self.undrain)
        more = (self.remove, self.tick, self.tick, self.work, self.end, self.probe)
        self.dice.choice(acts + more)()
        self.now_s += self.dice.choice((0.0, 0.5, 3.0, 12.0))

    def say(self) -> None:
        source = self.dice.choice(WHOLE)
        names = self.dice.sample(NAMES, self.dice.randrange(len(NAMES) + 1))
        before = self.rules.said[source]
        said = [
            before[name]
            if name in before and self.dice.random() < 0.5
            else Offer(self.spec(name, source), drains=self.dice.random() < 0.2)
            for name in names
        ]
        known = {r.replica_id for r in self.core.fleet.replicas()}
        has_joined = self.roster.offers(source, said, self.now_s)
        assert has_joined == bool({r.replica_id for r in self.core.fleet.replicas()} - known)
        self.rules.said[source] = {offer.spec.replica_id: offer for offer in said}
        self.rules.follow(self.now_s)
        n_changes = self.core.fleet.n_changes
        assert not self.roster.offers(source, [replace(offer) for offer in said], self.now_s)
        assert self.core.fleet.n_changes == n_changes

    def name(self) -> None:
        source = self.dice.choice((Source.OPERATOR, Source.REGISTERED, Source.REGISTERED))
        spec = self.spec(self.dice.choice(NAMES), source)
        replica = self.roster.offer(source, spec, self.now_s)
        assert replica.replica_id == spec.replica_id
        self.rules.named(source, spec, self.now_s)

    def renew(self) -> None:
        name = self.dice.choice(NAMES)
        assert (self.roster.renew(name, self.now_s) is not None) == (name in self.rules.inside)
        offer = self.rules.said[Source.REGISTERED].get(name)
        if offer is not None and offer.spec.lease_s is not None:
            self.rules.lease[name] = self.now_s + offer.spec.lease_s

    def withdraw(self) -> None:
        name = self.dice.choice(NAMES)
        source = self.dice.choice((Source.OPERATOR, Source.OPERATOR, Source.REGISTERED))
        was_named = name in self.rules.said[source]
        assert self.roster.withdraw(source, name, self.now_s) == was_named
        self.rules.said[source].pop(name, None)
        if source is Source.REGISTERED:
            self.rules.lease.pop(name, None)
        self.rules.follow(self.now_s)

    def drain(self) -> None:
        name = self.dice.choice(NAMES)
        deadline_s, leaves = self.dice.choice((None, 5.0)), self.dice.random() < 0.3
        found = self.roster.drain(name, self.now_s, deadline_s=deadline_s, leaves=leaves)
        assert (found is not None) == (name in self.rules.inside)
        if name in self.rules.leaving:
            self.rules.leaving[name] = self.now_s + (LEAVE_S if deadline_s is None else deadline_s)
        if name in self.rules.inside:
            until_s = None if deadline_s is None else self.now_s + deadline_s
            self.rules.drained[name] = (until_s, leaves)

    def undrain(self) -> None:
        name = self.dice.choice(NAMES)
        found = self.roster.undrain(name, self.now_s)
        assert (found is not None) == (name in self.rules.inside)
        self.rules.drained.pop(name, None)

    def remove(self) -> None:
        name = self.dice.choice(NAMES)
        assert self.roster.remove(name) == (name in self.rules.inside)
        self.rules.remove(name)

    def tick(self) -> None:
        inflight = {r.replica_id: r.load.inflight for r in self.core.fleet.replicas()}
        self.rules.tick(self.now_s, inflight)
        gone = self.roster.expire(self.now_s)
        ended = self.core.tick(self.now_s)
        assert not set(gone) & set(ended)
        self.roster.left(ended)

    def work(self) -> None:
        known = [r.replica_id for r in self.core.fleet.replicas()]
        if known:
            name = self.dice.choice(known)
            entry = self.core.ledger.open(name, "", tokens=1, prefill_s=0.0, prefill_tokens=0)
            self.entries.append((name, entry))

    def end(self) -> None:
        while self.entries and self.dice.random() < 0.8:
            self.core.ledger.close(self.entries.pop()[1])

    def probe(self) -> None:
        for replica in self.core.fleet.replicas():
            self.core.members.heard(replica.replica_id, Event.PROBE_OK, self.now_s)

    def check(self) -> None:
        fleet, rules = self.core.fleet, self.rules
        assert {r.replica_id for r in fleet.replicas()} == rules.inside
        for replica in fleet.replicas():
            name = replica.replica_id
            word = rules.word(name)
            if word is not None:
                assert replica.spec == word.spec
                assert self.roster.sources(name)[0] == word.spec.source
            assert (replica.state is State.DRAINING) == rules.drains(name)
            if name in rules.leaving:
                assert replica.leaves_drained
                assert replica.drain_until_s == rules.leaving[name]
            elif name in rules.drained:
                until_s, leaves = rules.drained[name]
                assert replica.leaves_drained == leaves
                if until_s is None or until_s > self.now_s:
                    assert replica.drain_until_s == until_s
                else:  # overdue; asked again at another address, its time is that
                    assert replica.drain_until_s is not None
                    assert replica.drain_until_s <= self.now_s
            else:
                assert not replica.leaves_drained
                assert replica.drain_until_s is None
        assert self.roster.counts() == {s.value: len(said) for s, said in rules.said.items()}


@given(st.integers(min_value=0, max_value=1 << 32))
@settings(deadline=None, max_examples=200)
def test_the_fleet_is_what_the_rules_make_of_what_was_said(seed: int) -> None:
    play = Play(seed)
    for _ in range(60):
        play.step()
        play.check()
