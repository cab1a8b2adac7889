"""The records of a recording: one kind for each thing the core is told, or answers.

``docs/recording.md`` is the format's page. A record is an array whose first member is its kind, then
the fields in the order they have here. Fields are only ever added at the end, with a default;
anything else makes another version of the format.

Times are seconds on the router's monotonic clock: only differences mean anything. Sealed names are
8 bytes (``router.recording.seal``). Whatever a client sent is sealed or a number; names that the
fleet's operator chose (replica ids, hosts, profiles) are plain. A placed request is named by its
*ticket*, the serial number of its first decision; an arrival by its number in the recording, from 1.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from router.core import CoreParameters
from router.dialect.base import SessionSource, Work
from router.state.cache.feeds import Said
from router.state.cache.pages import Kind, Medium
from router.state.health.table import Event
from router.state.history import Outcome

SEALED_BYTES = 8

Sealed = Annotated[bytes, msgspec.Meta(min_length=SEALED_BYTES, max_length=SEALED_BYTES)]
"""A keyed digest of a session's key, a model's name or a link of a chain."""

Rate = tuple[float, float, float, float]
"""A prefill rate's terms, in the order of ``PrefillRate``."""

Count = Annotated[int, msgspec.Meta(ge=0)]


class _Record(msgspec.Struct, array_like=True, gc=False, tag_field="kind"):
    """What all kinds have in common."""


class Header(_Record, tag=0):
    """The first record: which core it was, so that an equal one can be built.

    ``maker`` is the program and its version, ``policy`` a name in the registry, ``seed`` seeds the
    core's dice. ``links_max`` bounds the chains that later ones refer back to.
    """

    maker: str
    policy: str
    seed: int
    parameters: CoreParameters
    links_max: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)]


# What it is told


class Join(_Record, tag=1):
    """A replica was named or registered (again); the fields are those of ``ReplicaSpec``."""

    now_s: float
    replica_id: str
    host: str
    port: int
    source: str
    capacity_tokens: int | None
    profile: str | None
    inflight_max: int | None
    lease_s: float | None
    rate: Rate | None = None


class Leave(_Record, tag=2):
    """A replica was removed."""

    replica_id: str


class Renew(_Record, tag=3):
    """A replica's lease was renewed."""

    now_s: float
    replica_id: str


class Described(_Record, tag=4):
    """A replica said what it is; ``models`` and ``adapters`` are sealed."""

    replica_id: str
    capacity_tokens: int | None
    profile: str | None
    models: tuple[Sealed, ...]
    reports_cached: bool
    adapters: tuple[Sealed, ...] = ()
    n_caches: int = 1
    started: str = ""
    chunk_tokens: int = 0
    rate: Rate | None = None


class Heard(_Record, tag=5):
    """A probe or an operator told about a replica's health."""

    now_s: float
    replica_id: str
    event: Event


class Observed(_Record, tag=6):
    """A replica's load report was read; the fields are those of ``Observation``."""

    replica_id: str
    running: int
    waiting: int
    waiting_uncached_tokens: int
    seen_s: float
    ours: int
    ours_backlog_s: float
    used_ratio: float = 0.0
    stamp: tuple[float, ...] = ()
    prefill_tokens: int = 0
    prefill_busy_us: int = 0
    heard_s: float = 0.0


class Tick(_Record, tag=7):
    """Time passed; ``ended`` (an answer) are the replicas whose lease ran out by that."""

    now_s: float
    ended: tuple[str, ...]


class Arrive(_Record, tag=8):
    """A request asked for a place; the fields are those of ``PromptFacts``.

    ``session``, ``parent`` and ``model`` are sealed. The chain is told by what is new in it: it has
    the first ``common`` segments of the arrival that came ``back`` arrivals earlier (0: none),
    then those of ``links``, 8 sealed bytes each, with ``lengths_bytes`` canonical bytes each.
    ``tenant`` is sealed as a session is, None if there is none.
    ``output_tokens_max`` is cut off at 2**53. ``is_any_model``: it named none, whatever ``model`` is.
    ``may_wait``: for its turn, at the door.
    """

    now_s: float
    dialect: str
    model: Sealed
    session: Sealed
    source: SessionSource
    parent: Sealed | None
    is_stream: bool
    is_readable: bool
    output_tokens_max: Count | None
    head_segments: Count
    n_messages: Count
    back: Count
    common: Count
    links: bytes
    lengths_bytes: tuple[Count, ...]
    tenant: Sealed | None = None
    work: Work = Work.GENERATION
    is_any_model: bool = False
    bound_to: str = ""
    may_wait: bool = False


class Retry(_Record, tag=9):
    """A placed request failed before its first event and is to go elsewhere.

    ``fault`` is the error's class, ``code`` its code, ``http_status`` the replica's own status if it
    answered one.
    """

    ticket: int
    now_s: float
    fault: str
    code: str
    http_status: int | None = None


class Blame(_Record, tag=10):
    """A replica failed a request that is not tried again."""

    ticket: int
    now_s: float
    fault: str
    code: str
    http_status: int | None = None


class Began(_Record, tag=11):
    """A request's first model event came."""

    ticket: int
    now_s: float


class Finish(_Record, tag=12):
    """A request is over.

    The tokens are what the engine reported, all None if it reported nothing; ``cached_tokens`` None
    if only that is unknown. ``fault`` and ``code`` are None if nothing failed.
    """

    ticket: int
    now_s: float
    outcome: Outcome
    prompt_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    fault: str | None
    code: str | None
    http_status: int | None = None


class Drain(_Record, tag=13):
    """A replica was told to drain."""

    now_s: float
    replica_id: str
    deadline_s: float | None
    leaves: bool


class Undrain(_Record, tag=14):
    """A replica that drains may take requests again."""

    now_s: float
    replica_id: str


class Fed(_Record, tag=40):
    """A cache of a replica is followed from now on, or no more; the fields are those of ``Feeding``."""

    now_s: float
    replica_id: str
    said: Said
    page_tokens: int
    rank: int
    n_ranks: int


class Paged(_Record, tag=41):
    """A replica published what changed in one of its caches.

    Each change is its kind, its medium, the sealed page before (empty for none) and the sealed pages.
    """

    now_s: float
    replica_id: str
    rank: int
    changes: tuple[tuple[Kind, Medium, bytes, bytes], ...]


class Tied(_Record, tag=42):
    """The pages of a placed request's prompt were learned.

    They are the first ``kept`` of the prompt that its session was tied to before, then ``pages``, sealed.
    """

    ticket: int
    tokens: int
    page_tokens: int
    kept: Count
    pages: bytes


# What other routers tell


class Pinned(_Record, tag=60):
    """Another router told of a session (sealed), or the store knew it; the fields are those of ``ToldPin``."""

    now_s: float
    session: Sealed
    home_id: str
    version: Count
    turn: Count
    tokens: Count
    prompt_tokens: Count
    prompt_bytes: Count
    output_tokens: Count
    tail: Sealed
    tail_segments: Count
    served_id: str
    age_s: float
    source: str
    wins: bool
    fixed_id: str
    fixed_for_s: float | None


class Loaded(_Record, tag=61):
    """Another router told what it has in flight: a replica and a ``PeerLoad``'s fields a row, for ``ttl_s``."""

    now_s: float
    router: str
    ttl_s: float
    loads: tuple[tuple[str, Count, Count, Count, Count, Count], ...]


class Parted(_Record, tag=62):
    """Other routers cannot be heard from now on, or can be again."""

    is_apart: bool


# What it answers


class Placed(_Record, tag=20):
    """The answer to an arrival, or to a retry: where the request goes.

    ``ranked`` is the policy's order, the chosen replica first. ``home_id`` was the session's home
    before. Tokens are the router's estimates.
    """

    ticket: int
    ranked: tuple[str, ...]
    reason: str
    home_id: str | None
    prompt_tokens: int
    cached_tokens: int


class Refusal(_Record, tag=21):
    """The answer to an arrival that nobody may take; ``retry_after_s`` was told to the client."""

    code: str
    retry_after_s: float | None


class Stayed(_Record, tag=22):
    """The answer to a retry for which no replica was left."""

    ticket: int


# What an operator does


class Weighed(_Record, tag=45):
    """A replica was given another weight."""

    replica_id: str
    weight: float


class Limited(_Record, tag=46):
    """A replica was given a limit of requests in flight; None took it back."""

    replica_id: str
    inflight_max: int | None


class Emptied(_Record, tag=47):
    """A replica's cache was told to be empty."""

    replica_id: str


class Fixed(_Record, tag=48):
    """A session (sealed) was fixed to a replica, ``for_s`` from then on (None: without an end).

    It was released if ``replica_id`` is None; ``now_s`` is None then.
    """

    now_s: float | None
    session: Sealed
    replica_id: str | None
    for_s: float | None


class Moved(_Record, tag=49):
    """A session (sealed) was given another home."""

    now_s: float
    session: Sealed
    replica_id: str


class End(_Record, tag=30):
    """The last record of a recording that was ended, and why: ``closed``, or a fault's words."""

    reason: str


Member = Join | Leave | Renew | Described | Heard | Observed | Drain | Undrain | Fed | Paged
"""What members are told."""

Operated = Weighed | Limited | Emptied | Fixed | Moved
"""What an operator does."""

Told = Pinned | Loaded | Parted
"""What other routers tell."""

Input = Member | Operated | Told | Tick | Arrive | Retry | Blame | Began | Finish | Tied
Output = Placed | Refusal | Stayed
Record = Header | Input | Output | End
