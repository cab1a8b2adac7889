"""What follows from a scenario: the facts of a group's replicas, and how many sessions there are."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar

from replica.hardware.profiles import PROFILES, engine_facts, profile_named
from replica.hardware.steps import PrefillCoefficients, StepCoefficients

if TYPE_CHECKING:
    from replica.hardware.profiles import EngineFacts
    from replica.hardware.steps import StepTimes
    from sim.scenario.model import FleetSpec, Scenario

_Row = TypeVar("_Row", PrefillCoefficients, StepCoefficients)


def facts_of(group: FleetSpec) -> EngineFacts:
    """One replica of the group: its profile, with what the group says otherwise.

    Token counts are rounded down to whole pages, at least one of the device pool and of a chunk.
    Without the drafter its weights and KV leave more room, and every step is a plain decode.
    ``speed`` divides every step time; what comes back from the host tier takes as long as it did.

    Raises:
        ValueError: the profile is unknown, or the accept length lies outside of what a verify step
            can yield; the message begins with the field's name.
    """
    try:
        facts = profile_named(group.profile)
    except ValueError as failure:
        raise ValueError(f"profile: {failure}") from failure
    if not group.has_draft:
        facts = engine_facts(
            gpu_name=facts.gpu, tp=facts.tp, kv_dtype=facts.kv_dtype, has_draft=False
        )
    accept_length = facts.accept_length if group.accept_length is None else group.accept_length
    if not 1.0 <= accept_length <= facts.verify_tokens:
        raise ValueError(
            f"accept_length: {accept_length:g} is not within 1 and the {facts.verify_tokens} "
            "tokens that a step checks"
        )
    page = facts.page_tokens
    return replace(
        facts,
        capacity_tokens=max(page, _whole(group.capacity_tokens, facts.capacity_tokens, page)),
        host_capacity_tokens=_whole(group.host_tokens, facts.host_capacity_tokens, page),
        chunk_tokens=max(page, _whole(group.chunk_tokens, facts.chunk_tokens, page)),
        max_running_requests=group.max_running_requests or facts.max_running_requests,
        accept_length=accept_length,
        accept_spread_ratio=(
            facts.accept_spread_ratio if group.accept_spread is None else group.accept_spread
        ),
        times=facts.times if group.speed == 1.0 else _at_speed(facts.times, group.speed),
    )


def lanes_of(scenario: Scenario) -> int:
    """Sessions at a time in the whole fleet, at least one."""
    workload = scenario.workload
    if workload.sessions_in_all is not None:
        return workload.sessions_in_all
    return max(1, round(workload.sessions_per_replica * scenario.n_replicas))


def profile_names() -> tuple[str, ...]:
    """The profiles that a group may have."""
    return tuple(PROFILES)


def _whole(tokens: int | None, otherwise: int, page_tokens: int) -> int:
    return (otherwise if tokens is None else tokens) // page_tokens * page_tokens


def _at_speed(times: StepTimes, speed: float) -> StepTimes:
    return replace(
        times,
        prefill=_row_at_speed(times.prefill, speed),
        decode=_row_at_speed(times.decode, speed),
        verify=_row_at_speed(times.verify, speed),
        drafter_step_s=times.drafter_step_s / speed,
        host_step_s=times.host_step_s / speed,
    )


def _row_at_speed(row: _Row, speed: float) -> _Row:
    return replace(row, **{part.name: getattr(row, part.name) / speed for part in fields(row)})
