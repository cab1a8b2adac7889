"""``homeport sim explain``: some decisions of one run, with what they rest on and what then happened."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

from router.explaining.document import plain
from router.explaining.table import COLUMNS, lines
from sim.fleet.explaining import explained, slowest
from sim.jobs.commands import Outcome, title_of
from sim.jobs.errors import RunError
from sim.jobs.results import document
from sim.jobs.running import loaded, rare_collections
from sim.scenario.errors import ScenarioError
from sim.scenario.facts import lanes_of
from sim.workload.play.building import build
from sim.workload.traces.errors import TraceError

if TYPE_CHECKING:
    from sim.fleet.explaining import Explained, Pick, Watch
    from sim.jobs.commands import Asked
    from sim.scenario.model import Scenario
    from sim.workload.play.turns import Play

_NAMED_MAX = 3
_HELD_S_MIN = 0.01


def explain(asked: Asked, pick: Pick | None, *, n_slowest: int, rows_max: int) -> Outcome:
    """Explain the picked decisions of the first policy's run; None: those of the slowest requests.

    Raises:
        ScenarioError: something in the scenario is impossible, or the run has no such decision.
        RunError: the run failed.
    """
    scenario = asked.draft.scenario()
    policy = scenario.policies[0]
    try:
        watch = _watched(asked, scenario, policy, pick, n_slowest)
    except (TraceError, OSError) as failure:
        raise RunError(str(failure), is_input=True) from failure
    except AssertionError as failure:
        raise RunError(
            f"{scenario.name}, {policy}, seed {scenario.seed}: {failure}",
            repeat=asked.repeat(policy),
        ) from failure
    found = sorted(watch.found.values(), key=lambda one: (-(one.ttft_s or 0.0), one.row))
    if not found:
        raise ScenarioError(_not_found(watch))
    told = [*title_of(scenario)]
    for one in found:
        told += ["", *_lines(one, policy, rows_max)]
    words = ["--policy" if word == "--policies" else word for word in asked.arguments]
    made = document(scenario, words)
    return Outcome(told, {**made, "decisions": [_plain(one, policy) for one in found]})


def _watched(
    asked: Asked, scenario: Scenario, policy: str, pick: Pick | None, n_slowest: int
) -> Watch:
    content, seed = loaded(scenario), scenario.seed

    def make_play() -> Play:
        return build(scenario.workload, content, n_lanes=lanes_of(scenario), seed=seed)

    with rare_collections():
        if pick is None:
            asked.batch.say(f"{scenario.name}, {policy}: once to find the slowest requests")
            pick = slowest(scenario, policy, make_play, n_slowest, seed=seed)
            if not pick.rows:
                raise ScenarioError(f"{scenario.name}: no measured request has a first token")
        asked.batch.say(f"{scenario.name}, {policy}: as far as the decisions that are asked for")
        return explained(scenario, policy, make_play, pick, seed=seed)


def _not_found(watch: Watch) -> str:
    pick, turns = watch.pick, watch.turns
    if pick.session is not None and pick.session not in turns:
        some = ", ".join(list(turns)[:_NAMED_MAX])
        return f"--session {pick.session}: no request of this run has that key; there are {len(turns):,}: {some}, ..."
    if pick.session is not None and pick.turn is not None and pick.turn > turns[pick.session]:
        return f"--turn {pick.turn}: {pick.session} has {turns[pick.session]} requests in this run"
    return f"--at {pick.at_s or 0.0:g}: nothing that fits is decided from then on"


def _lines(one: Explained, policy: str, rows_max: int) -> list[str]:
    head, *more = lines(plain(one.decision, policy), rows_max=rows_max)
    title = f"at {one.at_s:,.1f} s, request {one.turn}: {head}"
    then = fill(_what_happened(one), COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
    return [title, *more, "", *then.splitlines()]


def _what_happened(one: Explained) -> str:
    """One line: the first token, the cached tokens, the answer."""
    if one.ttft_s is None or not one.replica_id:
        return "then: it was not answered in this run"
    said = [f"then: first token after {one.ttft_s:,.2f} s at {one.replica_id}"]
    if one.held_s >= _HELD_S_MIN:
        said.append(f"{one.held_s:,.2f} s of it at the door until it was its turn")
    if one.reported_prompt_tokens is not None:
        expected = next(
            (r.cached_tokens for r in one.decision.replicas if r.replica_id == one.replica_id), 0
        )
        said.append(
            f"{one.reported_cached_tokens or 0:,} of {one.reported_prompt_tokens:,} prompt tokens cached"
            f" ({expected:,} expected)"
        )
    if one.answer_s is not None:
        said.append(f"{one.output_tokens or 0:,} tokens in {one.answer_s:,.1f} s")
    else:
        said.append("not over when the run ended" if one.outcome == "unfinished" else one.outcome)
    if one.tries > 1:
        said.append(f"sent {one.tries} times")
    return ", ".join(said)


def _plain(one: Explained, policy: str) -> dict[str, object]:
    return {
        "request": one.turn,
        "at_s": one.at_s,
        "decision": plain(one.decision, policy),
        "then": {
            "outcome": one.outcome,
            "replica": one.replica_id or None,
            "tries": one.tries,
            "ttft_s": one.ttft_s,
            "held_s": one.held_s,
            "prompt_tokens": one.reported_prompt_tokens,
            "cached_tokens": one.reported_cached_tokens,
            "output_tokens": one.output_tokens,
            "answer_s": one.answer_s,
        },
    }
