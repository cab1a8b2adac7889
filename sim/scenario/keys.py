"""The keys of a scenario: what each is called in TOML, which field it fills, and what it may be."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from router.policy.registry import POLICIES
from sim.engine.rules import ORDERS
from sim.scenario.facts import profile_names
from sim.scenario.model import FaultKind, Start, WorkloadPace
from sim.workload.fitted.mix import CLAUDE_CODE, PRESETS
from sim.workload.traces.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_YEAR_S: Final = 366.0 * 86_400.0
_REPLICAS_MAX: Final = 4_096
_LANES_MAX: Final = 1_000_000
_TOKENS_MAX: Final = 1 << 40


class Kind(StrEnum):
    """What a value is; in words as messages say it."""

    NUMBER = "a number"
    COUNT = "a whole number"
    TEXT = "a text"
    FLAG = "true or false"
    CHOICE = "one of"
    CHOICES = "a list of"
    COUNTS = "a list of whole numbers"


@dataclass(frozen=True, slots=True)
class Key:
    """One key. ``low`` and ``high`` bound a number or each of a list; ``is_above``: ``low`` itself is not allowed."""

    name: str
    about: str
    kind: Kind
    field: str
    low: float = 0.0
    high: float = float("inf")
    is_above: bool = False
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """What the value may be, in words."""
        if self.kind in (Kind.CHOICE, Kind.CHOICES):
            return f"{self.kind} {', '.join(self.choices)}"
        if self.kind in (Kind.TEXT, Kind.FLAG):
            return str(self.kind)
        if self.high == float("inf"):
            return f"{self.kind}, {'more than' if self.is_above else 'at least'} {self.low:g}"
        bounds = f"{_plain(self.low)} to {_plain(self.high)}"
        return f"{self.kind}, {'over ' if self.is_above else ''}{bounds}"


def _plain(bound: float) -> str:
    return f"{bound:,.0f}" if bound == int(bound) else f"{bound:g}"


def _number(
    name: str, about: str, low: float = 0.0, high: float = _YEAR_S, *, is_above: bool = False
) -> Key:
    return Key(name, about, Kind.NUMBER, name, low, high, is_above)


def _count(name: str, about: str, low: int = 0, high: int = _TOKENS_MAX) -> Key:
    return Key(name, about, Kind.COUNT, name, low, high)


def _text(name: str, about: str) -> Key:
    return Key(name, about, Kind.TEXT, name)


def _flag(name: str, about: str, field: str) -> Key:
    return Key(name, about, Kind.FLAG, field)


def _choice(name: str, about: str, choices: Sequence[str]) -> Key:
    return Key(name, about, Kind.CHOICE, name, choices=tuple(map(str, choices)))


def _table(*keys: Key) -> dict[str, Key]:
    return {key.name: key for key in keys}


SCENARIO: Final = _table(
    _text("name", "what the scenario is called; else the file's name"),
    _text("about", "what it shows and what to look at"),
    _count("seed", "all dice are derived from it", 0, 1 << 53),
    _number("duration_s", "virtual seconds of the whole run", is_above=True),
    _number("warmup_s", "virtual seconds at its beginning that no figure counts"),
    Key("policies", "routing policies to try", Kind.CHOICES, "policies", choices=tuple(POLICIES)),
)
WORKLOAD: Final = _table(
    _text("trace", "recorded traffic, a path from the scenario's folder; else fitted traffic"),
    _choice(
        "preset", "what fitted traffic is fitted to; [workload.mix] changes it", tuple(PRESETS)
    ),
    _choice("trace_format", "instead of what is recognised; needs a trace", tuple(FORMATS)),
    _choice(
        "pace",
        "closed: lanes that send when they were answered; open: at recorded times, needs a trace",
        tuple(WorkloadPace),
    ),
    Key(
        "sessions",
        "at a time, for each replica of the beginning",
        Kind.NUMBER,
        "sessions_per_replica",
        high=10_000,
        is_above=True,
    ),
    _count("sessions_in_all", "at a time, instead of sessions", 1, _LANES_MAX),
    _flag("once", "each session is played once, then the run ends", "is_once"),
    _choice("start", "where in its first session a lane begins", tuple(Start)),
    _number(
        "rate_factor",
        "recorded pauses, in open loop times, are divided by it",
        0,
        1e6,
        is_above=True,
    ),
    _number("gap_s_max", "longer pauses are cut to this"),
    _count("context_tokens_max", "longer prompts are cut to this", 64),
    _flag(
        "shared_heads", "equal sizes of tools and system prompt mean equal ones", "has_shared_heads"
    ),
    _count("output_tokens_asked", "what clients allow for an answer; engines reserve by it", 1),
)
FLEET: Final = _table(
    _choice("profile", "hardware, tensor parallelism and KV type", profile_names()),
    _count("replicas", "how many of them", 1, _REPLICAS_MAX),
    _count("capacity_tokens", "KV tokens on the device, instead of the profile's", 64),
    _count("host_tokens", "KV tokens in the host tier; 0: none", 0),
    _count("max_running_requests", "requests that run at once", 1, 4_096),
    _count("chunk_tokens", "tokens of one prefill step", 64, 1 << 20),
    _number("accept_length", "tokens that a verify step yields", 1, 64),
    _number(
        "accept_spread",
        "how far requests differ in that, a share of the way to what is possible",
        0,
        1,
    ),
    _flag("draft", "with the drafter; without: one token a step and more room for KV", "has_draft"),
    _number("speed", "times as fast as the profile", 0.01, 100),
)
ENGINE: Final = _table(
    _choice("order", "who of those that wait is next", ORDERS),
    _count("prefill_decode_interval", "generation steps between two prefill steps", 0, 1_000),
    _flag("mixed_chunk", "generation goes on within prefill steps", "is_chunk_mixed"),
    _count("max_queued_requests", "more that wait are refused; else any number", 1, 1 << 20),
)
ROUTERS: Final = _table(
    _count("count", "routers, each with beliefs of its own", 1, 64),
    _number("probe_s", "seconds between questions to each replica", 0.01, 3_600),
    _number("delay_s", "seconds until an answer to a question is there", 0, 60),
    _flag(
        "spread_by_session",
        "a session's requests all go to one router; else to any",
        "is_spread_by_session",
    ),
    _flag("shared", "they share sessions and load through a store", "is_shared"),
    _flag("apart", "they share nothing, and place sessions so that all agree", "is_apart"),
    _count("inflight_max", "requests at once that a router sends to one replica", 1, 1 << 20),
)
FAULT: Final = _table(
    _choice("kind", "what happens", tuple(FaultKind)),
    _number("at_s", "when"),
    Key(
        "replicas",
        "to which, numbered from 0 as the fleet began, later ones counted on",
        Kind.COUNTS,
        "replicas",
        0,
        2 * _REPLICAS_MAX,
    ),
    _count("count", "how many come", 1, _REPLICAS_MAX),
    _number("duration_s", "how long; else for good", is_above=True),
    _number("factor", "how many times slower", 1, 1_000, is_above=True),
    _number("startup_s", "from a process's start until it is ready"),
    _number("drain_s", "the longest wait for requests of a drained replica"),
    _count("router", "to which router, numbered from 0", 0, 63),
    _number("skew_s", "how far its clock is ahead", 0, 86_400),
)
SLO: Final = _table(
    _number("ttft_p50_s", "time to first token, median at most", is_above=True),
    _number("ttft_p90_s", "nine of ten at most", is_above=True),
    _number("ttft_p99_s", "99 of 100 at most", is_above=True),
    _number("tok_per_s_per_user", "output tokens a second of one request, at least", is_above=True),
    _number("errors_ratio", "share of requests that may fail", 0, 1),
)
TABLES: Final = {
    "": SCENARIO,
    "workload": WORKLOAD,
    "fleet": FLEET,
    "engine": ENGINE,
    "routers": ROUTERS,
    "fault": FAULT,
    "slo": SLO,
}
"""The keys of every table by its name; those of the empty name stand at the top."""

MIX: Final = {field.name: getattr(CLAUDE_CODE, field.name) for field in fields(CLAUDE_CODE)}
"""The parameters of fitted traffic and their defaults, the keys of ``[workload.mix]``."""

ARRAYS: Final = ("fleet", "fault")
"""Tables of which there may be several: ``[[fleet]]``."""

FAULT_KEYS: Final = {
    FaultKind.CRASH: ("replicas", "duration_s", "startup_s"),
    FaultKind.SLOW: ("replicas", "duration_s", "factor"),
    FaultKind.FLUSH: ("replicas",),
    FaultKind.SCALE_UP: ("count", "startup_s"),
    FaultKind.SCALE_DOWN: ("replicas", "drain_s"),
    FaultKind.ROUTER_LOSS: ("router",),
    FaultKind.REDIS_LOSS: ("duration_s",),
    FaultKind.PARTITION: ("router", "duration_s"),
    FaultKind.CLOCK_SKEW: ("router", "skew_s"),
    FaultKind.STALE_LOADS: ("replicas", "duration_s"),
}
"""What else each kind of fault may say; the first of each it must say."""


def described() -> Iterator[str]:
    """Every key in lines for a person: its path, what it is, what it may be."""
    for table, keys in TABLES.items():
        head = f"[[{table}]]" if table in ARRAYS else f"[{table}]"
        yield head if table else "at the top"
        for name, key in keys.items():
            yield f"  {name}: {key.about} ({key.allowed})"
        yield ""
    yield "[workload.mix]"
    yield "  parameters of fitted traffic; what each is in claude-code:"
    for name, value in MIX.items():
        yield f"  {name}: {value:g}"
    yield ""
    yield "[[variant]]"
    yield "  name, about, and set: a table of paths and values, for --variant and sweeps"
    yield ""
    yield "[sweep]"
    yield "  what `homeport sim sweep` goes over: paths or short names, each a list of values"
