"""A placed request, as the core's drivers hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.policy.view import Price
from router.rows import Row

if TYPE_CHECKING:
    from router.dialect.base import PromptFacts
    from router.policy.view import RouteRequest
    from router.state.cache.held import Held
    from router.state.cache.prefix_index import Mark, Node
    from router.state.fleet.ledger import Entry
    from router.state.fleet.replica import ReplicaSpec
    from router.state.history import RequestRecord
    from router.state.members.answers import Return
    from router.state.rates.learner import Job

_FREE: Final = Price()


class Ticket(Row):
    """One placed request, from ``arrive`` to ``finish``; drivers only read it.

    ``spec`` is how to reach the replica that has it; ``place`` where the prefix index has its prompt,
    once that is computed; ``marks`` when the replica last used what it held of it; ``back`` is there where
    the session goes on at its home; ``job`` is what the replica's rate is learned from.
    """

    record: RequestRecord
    facts: PromptFacts
    request: RouteRequest
    held: Held
    entry: Entry
    continues: bool
    spec: ReplicaSpec
    marks: tuple[Mark, ...]
    back: Return | None = None
    job: Job | None = None
    tried: tuple[str, ...] = ()
    is_over: bool = False
    place: Node | None = None

    @property
    def replica_id(self) -> str:
        """Where the request is now; a retry changes it."""
        return self.record.replica_id

    @property
    def reason(self) -> str:
        """Why it is there, in one word."""
        return self.record.reason

    @property
    def price(self) -> Price:
        """What this choice costs."""
        return self.record.prices.get(self.record.replica_id, _FREE)

    @property
    def session_key(self) -> str:
        """Whose request it is."""
        return self.record.session_key

    @property
    def cached_tokens(self) -> int:
        """How much of the prompt the replica is expected to hold."""
        return self.record.predicted_cached_tokens

    @property
    def prompt_tokens(self) -> int:
        """The prompt's estimated size."""
        return self.record.prompt_tokens

    @property
    def n_tries(self) -> int:
        """Replicas it was sent to, the present one included."""
        return self.record.n_tries


def priority_of(prompt_tokens: int, cached_tokens: int) -> int:
    """What an engine that serves by priority is told, the greater first: 1 for a prompt of which it holds half and more.

    A warm turn takes it a tenth of a second, a cold one seconds: that one can wait for it.
    """
    return int(2 * cached_tokens >= prompt_tokens)


def prefill_of(record: RequestRecord) -> tuple[int, int]:
    """The tokens that a placed request has computed, and those they are computed behind."""
    cached_tokens = record.predicted_cached_tokens
    return record.prompt_tokens - cached_tokens, cached_tokens
