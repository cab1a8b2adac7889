"""SGLang: a recipe on one machine as its command line and environment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypeVar

from replica.engines.base import Launch
from replica.engines.sglang_flags import DRAFT, PLAIN, checked_flags
from replica.errors import ReplicaError
from replica.hardware.models import KvDtype
from replica.hardware.profiles import PROFILES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.settings import Choice, Recipe
    from replica.setup import Setup

KV_DTYPES: Final = {KvDtype.FP8: "fp8_e4m3", KvDtype.BF16: "bf16"}
_PORT_MAX: Final = 65_535
_EVENTS, _REPLAY, _LOAD = 100, 200, 300  # below the ports that systems hand out, from 30,000 on
_STEP_S: Final = 15.0

V = TypeVar("V")
Flag = tuple[str, bool | int | float | str | None]


def launch_of(
    setup: Setup,
    *,
    host: str = "127.0.0.1",
    port: int = 30_000,
    gpus: tuple[int, ...] = (),
    model_path: str | None = None,
    draft_path: str | None = None,
    program: str = "sglang",
) -> Launch:
    """The process that serves this setup.

    ``gpus`` are the indexes of the GPUs it is given, all that are visible if empty. ``model_path``
    and ``draft_path`` are folders to read instead of the recipe's models. Its publishers listen at
    100, 200 and 300 above ``port``, on all addresses: SGLang binds no other.

    Raises:
        ReplicaError: ``port-range``, ``bad-value`` for a wrong number of GPUs, ``unknown-flag`` or
            ``flag-renamed`` for a flag of the recipe, ``gpu-unsupported`` for a GPU that it is not for.
    """
    if setup.device not in setup.recipe.gpus:
        raise ReplicaError(
            "gpu-unsupported",
            f"{setup.device} is for planning only: {setup.recipe.name} runs on {', '.join(setup.recipe.gpus)}",
        )
    if gpus and len(gpus) != setup.tp:
        raise ReplicaError(
            "bad-value",
            f"{len(gpus)} GPUs for tensor parallelism {setup.tp}: give one for each rank",
        )
    recipe = setup.recipe
    ports = _ports(recipe, port)
    words = list(
        _words(setup, host=host, ports=ports, model_path=model_path, draft_path=draft_path)
    )
    environment = {name: choice.value for name, choice in recipe.environment.items()}
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    return Launch(
        engine="sglang",
        argv=(program, "serve", *words),
        environment=environment,
        host=host,
        port=port,
        model=recipe.model.served_name,
        ports=ports,
        gpus=gpus,
        profile=setup.profile if setup.profile in PROFILES else None,
        capacity_tokens=setup.capacity_tokens,
        inflight_max=recipe.scheduling.running_max.value,
        context_tokens_max=setup.context_tokens_max,
        step_s_max=step_s_max(setup),
    )


def step_s_max(setup: Setup) -> float:
    """The longest that one engine step takes, in seconds, by the hardware's closed forms.

    It is a whole chunk at the end of the longest context, or a generation step there of all that
    may run; 15 s where the hardware was not measured.
    """
    facts = PROFILES.get(setup.profile)
    if facts is None:
        return _STEP_S
    scheduling = setup.recipe.scheduling
    chunk, context = scheduling.chunk_tokens.value, setup.context_tokens_max
    prefill_s = facts.times.prefill_s(chunk, max(0, context - chunk))
    step_s = facts.times.verify_s(scheduling.running_max.value, context, context)[0]
    return round(max(prefill_s, step_s), 3)


def _ports(recipe: Recipe, port: int) -> tuple[int, ...]:
    """The server's port, then those of its publishers."""
    serving = recipe.serving
    above = [0]
    if serving.kv_events.value:
        above += [_EVENTS, _REPLAY]
        if serving.load_publishing.value:
            above.append(_LOAD)
    if port < 1 or port + above[-1] > _PORT_MAX:
        raise ReplicaError(
            "port-range",
            f"port {port}: give one from 1 to {_PORT_MAX - above[-1]}, as its publishers listen up to"
            f" {above[-1]} above it",
        )
    return tuple(port + n for n in above)


def _words(
    setup: Setup,
    *,
    host: str,
    ports: tuple[int, ...],
    model_path: str | None,
    draft_path: str | None,
) -> Iterator[str]:
    """All flags of the command line, in one order."""
    recipe = setup.recipe
    flags: list[Flag] = [
        ("model-path", model_path or recipe.model.path),
        # A folder has no revisions.
        ("revision", None if model_path else _of(recipe.model.revision)),
        ("served-model-name", recipe.model.served_name),
        ("host", host),
        ("port", ports[0]),
        ("tp-size", setup.tp if setup.tp > 1 else None),
        ("trust-remote-code", _of(recipe.model.trust_remote_code)),
        ("quantization", _of(recipe.model.quantization)),
        *_draft(recipe, draft_path),
        *_memory(recipe),
        *_scheduling(recipe),
        *_serving(recipe, ports),
        *checked_flags(recipe),
    ]
    for name, value in flags:
        if value is None or value is False:
            continue
        yield f"--{name}"
        if value is not True:
            yield f"{value:g}" if isinstance(value, float) else str(value)


def _draft(recipe: Recipe, draft_path: str | None) -> Iterator[Flag]:
    draft = recipe.draft
    if draft is None:
        return
    yield DRAFT["algorithm"], draft.algorithm.value
    yield DRAFT["path"], draft_path or draft.path
    yield DRAFT["revision"], None if draft_path else _of(draft.revision)
    yield DRAFT["quantization"], _of(draft.quantization)
    yield DRAFT["block_tokens"], draft.block_tokens.value
    yield DRAFT["window_tokens"], _of(draft.window_tokens)
    yield DRAFT["attention_backend"], _of(draft.attention_backend)
    yield DRAFT["kv_dtype"], None if draft.kv_dtype is None else KV_DTYPES[draft.kv_dtype.value]


def _memory(recipe: Recipe) -> Iterator[Flag]:
    memory = recipe.memory
    yield PLAIN["kv_dtype"], KV_DTYPES[memory.kv_dtype.value]
    yield PLAIN["mem_fraction"], memory.mem_fraction.value
    yield PLAIN["page_tokens"], _of(memory.page_tokens)
    if memory.host_gb_per_rank is not None:
        yield PLAIN["host_tier"], True
        yield PLAIN["host_gb_per_rank"], memory.host_gb_per_rank.value
        yield PLAIN["host_write_policy"], _of(memory.host_write_policy)
        yield PLAIN["host_io_backend"], _of(memory.host_io_backend)


def _scheduling(recipe: Recipe) -> Iterator[Flag]:
    scheduling = recipe.scheduling
    yield PLAIN["policy"], _of(scheduling.policy)
    yield PLAIN["running_max"], scheduling.running_max.value
    yield PLAIN["queued_max"], _of(scheduling.queued_max)
    yield PLAIN["chunk_tokens"], scheduling.chunk_tokens.value
    yield PLAIN["context_tokens_max"], _of(scheduling.context_tokens_max)
    yield PLAIN["min_free_slots_delay"], _of(scheduling.min_free_slots_delay)
    yield PLAIN["prefill_decode_interval"], _of(scheduling.prefill_decode_interval)


def _serving(recipe: Recipe, ports: tuple[int, ...]) -> Iterator[Flag]:
    serving = recipe.serving
    yield PLAIN["reasoning_parser"], _of(serving.reasoning_parser)
    yield PLAIN["tool_call_parser"], _of(serving.tool_call_parser)
    yield PLAIN["metrics"], serving.metrics.value
    yield PLAIN["cache_report"], serving.cache_report.value
    if not serving.kv_events.value:
        return
    events, replay, *load = ports[1:]
    config = {
        "publisher": "zmq",
        "topic": "kv-events",
        "endpoint": f"tcp://*:{events}",
        "replay_endpoint": f"tcp://*:{replay}",
    }
    yield PLAIN["kv_events"], json.dumps(config)
    for each in load:
        yield PLAIN["load_publishing"], f"tcp://*:{each}"


def _of(choice: Choice[V] | None) -> V | None:
    return None if choice is None else choice.value
