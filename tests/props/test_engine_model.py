"""Properties of the engine model: invariants under any course of events, and of the prefix tree."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from replica.hardware.profiles import profile_named
from sim.engine.cache import Node, PrefixTree
from sim.engine.checks import check_events, check_state, check_tree
from sim.engine.pool import SharedPrefixes
from sim.engine.replica_model import ReplicaModel
from sim.engine.requests import Began, Ended, EngineRequest, Event, Progress, QueueFull
from sim.engine.rules import ORDERS, EngineRules

PAGE = 64
FACTS = replace(
    profile_named("b200-tp4-fp8"),
    capacity_tokens=40 * PAGE,
    chunk_tokens=4 * PAGE,
    max_running_requests=4,
)


@dataclass(frozen=True)
class Act:
    """One thing a driver does, ``after_s`` the one before."""

    after_s: float
    kind: str  # submit, cancel, look, slow or flush
    session: int
    grown_tokens: int
    output_tokens: int


acts = st.builds(
    Act,
    after_s=st.one_of(st.just(0.0), st.floats(0.0, 0.05), st.floats(0.0, 2.0)),
    kind=st.sampled_from(
        ["submit", "submit", "submit", "submit", "submit", "cancel", "look", "slow", "flush"]
    ),
    session=st.integers(0, 3),
    grown_tokens=st.integers(1, 600),
    output_tokens=st.one_of(st.integers(1, 300), st.integers(300, 1_200)),
)


rules = st.builds(
    EngineRules,
    order=st.sampled_from(ORDERS),
    is_chunk_mixed=st.booleans(),
    prefill_decode_interval=st.sampled_from([0, 0, 1, 5]),
    output_ratio=st.sampled_from([0.0, 0.7, 1.0]),  # at 0 requests have to be retracted
)


class Course:
    """Runs acts on a model, asking it ``1 + extra_looks`` times between any two.

    ``is_growing``: all prompts of a session have one array, which grows.
    """

    def __init__(
        self,
        *,
        extra_looks: int,
        seed: int | None,
        host_capacity_tokens: int,
        rules: EngineRules | None = None,
        shared: SharedPrefixes | None = None,
        is_growing: bool = False,
    ) -> None:
        facts = replace(FACTS, host_capacity_tokens=host_capacity_tokens)
        dice = None if seed is None else Random(seed)
        self.model = ReplicaModel(
            facts, rules=rules, max_queued_requests=5, dice=dice, shared=shared
        )
        self.extra_looks = extra_looks
        self.taken: list[EngineRequest] = []
        self.events: list[Event] = []
        self.refused: list[str] = []
        self.sizes = Counter[int]()
        self.paths: defaultdict[int, array[int]] | None = None
        if is_growing:
            self.paths = defaultdict(lambda: array("Q"))
        self.now_s = 0.0

    def run(self, course: list[Act]) -> None:
        for index, act in enumerate(course):
            until_s = self.now_s + act.after_s
            for look in range(self.extra_looks):
                look_s = min(until_s, self.now_s + act.after_s * look / self.extra_looks)
                self.events += self.model.advance(look_s)
                assert self.model.report(look_s).at_s <= look_s
                assert self.model.prefill_left_s(look_s) >= 0.0
                check_state(self.model)
            self.now_s = until_s
            self._do(f"r{index}", act)
            check_state(self.model)
        while (at_s := self.model.next_at()) is not None:
            self.now_s = at_s
            self.events += self.model.advance(at_s)
            check_state(self.model)

    def _do(self, rid: str, act: Act) -> None:
        if act.kind == "submit":
            request = self._grown(rid, act)
            try:
                self.model.submit(request, self.now_s)
                self.taken.append(request)
            except QueueFull:
                self.refused.append(rid)
        elif act.kind == "cancel" and self.taken:
            victim = self.taken[act.grown_tokens % len(self.taken)].rid
            self.model.cancel(victim, self.now_s)
        elif act.kind == "slow":
            self.model.slow(1.0 + act.session, self.now_s)
        elif act.kind == "flush":
            self.model.flush(self.now_s)
        else:
            self.events += self.model.advance(self.now_s)

    def _grown(self, rid: str, act: Act) -> EngineRequest:
        """The session's next turn; it starts anew when it would outgrow the pool."""
        size = self.sizes[act.session] + act.grown_tokens
        if size + act.output_tokens > FACTS.capacity_tokens:
            size = act.grown_tokens
        self.sizes[act.session] = size
        last = (size + act.output_tokens) // PAGE
        # Sessions share their first three pages.
        ids = [i if i < 3 else ((act.session + 1) << 32) + i for i in range(last)]
        first = size // PAGE
        pages, output_pages = array("Q", ids[:first]), array("Q", ids[first:])
        if self.paths is not None:
            pages = self.paths[act.session]
            pages.extend(ids[len(pages) :])
        asked = act.output_tokens * (1 + act.grown_tokens % 3)
        return EngineRequest(
            rid,
            size,
            act.output_tokens,
            pages,
            output_pages,
            priority=act.session * 15,
            output_tokens_max=asked,
        )

    def milestones(self) -> list[Event | tuple[object, ...]]:
        """All but what depends on how often the driver looks."""
        found: list[Event | tuple[object, ...]] = []
        for event in self.events:
            if isinstance(event, Began):
                found.append(event)
            elif isinstance(event, Ended):
                found.append((event.rid, event.at_s, event.output_tokens, event.reason))
        return found


@given(
    st.lists(acts, max_size=25),
    st.sampled_from([0, 60 * PAGE]),
    st.sampled_from([None, 1]),
    st.integers(1, 7),
    rules,
    st.booleans(),
)
@settings(deadline=None, max_examples=200)
def test_invariants_hold_and_looking_changes_nothing(  # noqa: PLR0917 - hypothesis passes it
    course: list[Act],
    host_capacity_tokens: int,
    seed: int | None,
    extra_looks: int,
    rules: EngineRules,
    is_shared: bool,  # noqa: FBT001 - hypothesis passes it
) -> None:
    once, often = (
        Course(
            extra_looks=looks,
            seed=seed,
            host_capacity_tokens=host_capacity_tokens,
            rules=rules,
            shared=SharedPrefixes() if is_shared else None,
            is_growing=looks > 0,
        )
        for looks in (0, extra_looks)
    )
    for each in (once, often):
        each.run(course)
        check_events(each.taken, each.events)
    assert once.milestones() == often.milestones()
    assert once.refused == often.refused
    assert once.model.loads(once.now_s) == often.model.loads(once.now_s)
    idle = once.model.loads(once.now_s)
    assert (idle.running, idle.waiting, idle.used_tokens, idle.waiting_uncached_tokens) == (0,) * 4
    assert idle.total_ended == len(once.taken)


@given(st.lists(acts, max_size=15))
@settings(deadline=None, max_examples=50)
def test_one_large_step_tells_the_same_as_many(course: list[Act]) -> None:
    """Submissions at their times, then one single look at the end."""
    submits = [replace(act, kind="submit") for act in course]
    once, often = (
        Course(extra_looks=looks, seed=None, host_capacity_tokens=60 * PAGE) for looks in (0, 5)
    )
    often.run(submits)
    for index, act in enumerate(submits):
        once.now_s += act.after_s
        once._do(f"r{index}", act)
    once.events += once.model.advance(often.now_s)
    assert not any(isinstance(event, Progress) for event in once.events)
    assert once.milestones() == often.milestones()


def pages_of(branch: int, count: int) -> array[int]:
    """Sequences that part at every second page, by the bits of ``branch``."""
    ids, prefix = [], 1
    for i in range(count):
        prefix = prefix * 2 + (branch >> (i // 2) & 1 if i % 2 == 0 else 0)
        ids.append(prefix)
    return array("Q", ids)


def ids_of(node: Node) -> array[int]:
    return array("Q", map(node.id_at, range(node.start, node.stop)))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "add", "evict", "lock", "unlock"]),
            st.integers(0, 31),
            st.integers(1, 20),
        ),
        max_size=60,
    )
)
@settings(deadline=None, max_examples=200)
def test_the_tree_agrees_with_a_set_of_pages(steps: list[tuple[str, int, int]]) -> None:
    tree = PrefixTree()
    held: set[int] = set()
    locks: list[tuple[Node, array[int]]] = []
    for kind, branch, count in steps:
        pages = pages_of(branch, count)
        found = tree.match(pages, count)
        have = found[1]
        assert have == next((i for i, page in enumerate(pages) if page not in held), count)
        if kind == "add":
            shift = have * (branch % 3) // 2  # the whole path, the end of it, or just what is new
            node = tree.extend(tree.lock(*found), pages[shift:], count, shift=shift)
            held |= set(pages)
            tree.unlock(node)
        elif kind == "lock":
            locks.append((tree.lock(*found), pages[:have]))
        elif kind == "unlock" and locks:
            tree.unlock(locks.pop(branch % len(locks))[0])
        elif kind == "evict":
            pinned = {page for _, locked in locks for page in locked}
            dropped = tree.evict(count)
            assert dropped >= min(count, len(held - pinned))
            left = {page for node in tree.nodes() for page in ids_of(node)}
            assert pinned <= left <= held
            assert len(left) == len(held) - dropped
            held = left
        assert held == {page for node in tree.nodes() for page in ids_of(node)}
        check_tree(tree)
        assert tree.n_pages == len(held)
        assert tree.pinned_pages == len({page for _, locked in locks for page in locked})
