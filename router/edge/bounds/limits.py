"""Every bound of the data plane, with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, frozen=True)
class RetryLimits:
    """How much is tried again.

    Of the requests of the last minute a ``share`` may be sent a second time, and ``floor`` beyond
    it, so that a small fleet can lose a replica: a fleet that fails under its load must not get
    several times that load. ``backoff_s`` is the pause before a request is sent once more to the
    only replica there is.
    """

    share: float = 0.2
    floor: int = 20
    backoff_s: float = 0.25


@dataclass(slots=True, frozen=True)
class HoldLimits:
    """How long a refused request is held, by what it is refused for; 0 refuses at once.

    ``turn_s`` is how long a streamed request with a long prompt waits while the replica chosen for it computes
    another; then it is sent all the same, with two minutes left of the five for which Codex waits for an event.
    0: long prompts do not take turns. Where the engine itself lets short prompts pass, ``turn_short_first_s`` is enough, if
    less, as long as the caches hold what lives.

    ``unretried_s`` is the least, whatever the reason, for agents that would end their turn (Codex
    gives up on a request after a few seconds, and on a stream after 300 s without an event). At
    most ``requests_max`` with ``bytes_max`` of bodies wait; beyond that nobody else is held.
    """

    saturated_s: float = 0.0
    no_replica_ready_s: float = 0.0
    tenant_limit_s: float = 0.0
    turn_s: float = 180.0
    turn_short_first_s: float = 10.0
    unretried_s: float = 120.0
    requests_max: int = 256
    bytes_max: int = 256 * 1024 * 1024


@dataclass(slots=True, frozen=True)
class EdgeLimits:
    """Bounds of the front door. Sizes in bytes, times in seconds.

    Client side: ``arriving_bytes_max`` bounds all bodies together that have not arrived whole;
    ``request_read_s`` is the time a request may take to arrive, longer by one second
    for each ``request_bytes_per_s`` received; ``client_idle_s`` closes an idle connection;
    ``pipelined_bytes_max`` is what a client may send ahead while its request runs.
    ``connections_per_client_max`` bounds the connections of one address that is no trusted proxy;
    0 does not. ``decoded_ratio_max`` bounds what a compressed body may grow to.

    Replica side: ``first_event_s`` bounds the wait for the first event of a stream, ``answer_s``
    the wait for a whole answer that is not streamed. ``upstream_reuse_s`` is under the keep-alive
    of SGLang (5 s), so that a reused connection is rarely one that is just being closed.

    Answers: the head of a stream is held until its first event, at most ``head_hold_s``, then
    comments are sent each ``heartbeat_s`` (agents give up after 300 s without a byte). An answer
    that is not streamed is held up to ``body_hold_bytes_max``, so that it can be tried again.

    ``tries_max`` bounds the replicas one request is sent to, ``started_tries_max`` those of them that
    may have started on it: a prompt that crashes an engine must not go round the fleet.
    ``is_started_repeated``: repeat a generation that may have started (time-out or cut before its
    first event). Generations have no side effects, so this only costs the engine's work.
    ``hold`` bounds who waits at the door for room, ``retry`` what share of all may be retries.
    """

    body_bytes_max: int = 64 * 1024 * 1024
    header_bytes_max: int = 64 * 1024
    headers_max: int = 256
    connections_max: int = 10_000
    connections_per_client_max: int = 0
    decoded_ratio_max: float = 100.0
    arriving_bytes_max: int = 1024 * 1024 * 1024
    pipelined_bytes_max: int = 4 * 1024 * 1024
    write_high_bytes: int = 256 * 1024
    write_low_bytes: int = 64 * 1024
    body_hold_bytes_max: int = 1024 * 1024
    upstream_idle_connections_max: int = 64
    connect_s: float = 2.0
    first_event_s: float = 600.0
    answer_s: float = 3600.0
    head_hold_s: float = 60.0
    heartbeat_s: float = 15.0
    stream_idle_s: float = 300.0
    request_read_s: float = 60.0
    request_bytes_per_s: int = 16 * 1024
    client_idle_s: float = 75.0
    upstream_reuse_s: float = 3.0
    close_s: float = 5.0
    sweep_s: float = 0.25
    drain_s: float = 300.0
    tries_max: int = 5
    started_tries_max: int = 2
    is_started_repeated: bool = True
    hold: HoldLimits = field(default_factory=HoldLimits)
    retry: RetryLimits = field(default_factory=RetryLimits)
