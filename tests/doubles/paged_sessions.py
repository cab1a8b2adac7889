"""Sessions of a core whose replicas tell of their pages: their turns, tied and not."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from router.dialect.base import Usage
from router.state.history import Outcome
from tests.doubles.core_rig import make_core
from tests.doubles.paged_replica import PAGE_TOKENS, PagedReplica
from tests.doubles.prompts import prompt

if TYPE_CHECKING:
    import random

    from router.core import RouterCore, Ticket

N_HEAD = 2


@dataclass
class Talk:
    """A session whose segments have sizes of their own in bytes and in tokens."""

    key: str
    dice: random.Random
    segments: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def grow(self) -> None:
        self.segments.append(self.dice.getrandbits(60))
        self.lengths.append(self.dice.randrange(50, 4_000))
        self.tokens += [self.dice.getrandbits(17) for _ in range(self.dice.randrange(5, 150))]

    def ask(self, core: RouterCore, now_s: float) -> Ticket:
        facts = prompt(self.segments, key=self.key, head_segments=N_HEAD)
        facts.ends_bytes = array("I", accumulate(self.lengths))
        return core.arrive(facts, now_s)


def rig(n: int = 2, policy: str = "home") -> tuple[RouterCore, dict[str, PagedReplica]]:
    core = make_core(n, policy=policy)
    replicas = {f"r{i}": PagedReplica(core, f"r{i}") for i in range(n)}
    for replica in replicas.values():
        replica.restart()
    return core, replicas


def talk_of(key: str, dice: random.Random, head: Talk | None = None) -> Talk:
    talk = Talk(key, dice)
    if head is None:
        for _ in range(N_HEAD + 1):
            talk.grow()
    else:
        talk.segments, talk.lengths = head.segments[:N_HEAD], head.lengths[:N_HEAD]
        talk.tokens = head.tokens[: sum(1 for _ in head.tokens)]
    return talk


def tied_turn(core: RouterCore, replicas: dict[str, PagedReplica], talk: Talk, now_s: float) -> int:
    """One turn that is tied; answers predicted less reported cached tokens."""
    ticket = talk.ask(core, now_s)
    replica = replicas[ticket.replica_id]
    cached = replica.cached_tokens(talk.tokens)
    pages = replica.compute(talk.tokens)
    core.began(ticket, now_s)
    core.finish(ticket, Outcome.DONE, now_s, usage=Usage(len(talk.tokens), 3, cached))
    assert core.members.tied(ticket, len(talk.tokens), PAGE_TOKENS, pages)
    return ticket.cached_tokens - cached


def plain_turn(core: RouterCore, replicas: dict[str, PagedReplica], talk: Talk) -> tuple[int, int]:
    """One turn that nobody ties; answers predicted and reported cached tokens."""
    ticket = talk.ask(core, 1.0)
    replica = replicas[ticket.replica_id]
    cached = replica.cached_tokens(talk.tokens)
    replica.compute(talk.tokens)
    core.began(ticket, 1.0)
    core.finish(ticket, Outcome.DONE, 1.0, usage=Usage(len(talk.tokens), 3, cached))
    return ticket.cached_tokens, cached
