"""What a scenario says of its engines reaches them."""

from __future__ import annotations

from dataclasses import replace

from sim.fleet.driver import simulate
from sim.scenario.model import EngineSpec, FleetSpec, Scenario
from tests.doubles.small_play import SmallPlay

SCENARIO = Scenario(name="settings", duration_s=120.0, warmup_s=0.0, fleet=(FleetSpec(replicas=1),))


def test_answers_go_on_between_the_chunks_of_cold_prompts_if_the_scenario_says_so() -> None:
    slowest_s = []
    for interval in (0, 12):
        scenario = replace(SCENARIO, engine=EngineSpec(prefill_decode_interval=interval))
        play = SmallPlay(6, turns=2, first_tokens=120_000, gap_s=2.0)
        result = simulate(scenario, "round_robin", play, seed=1)
        assert result.errors == 0
        assert result.itl_s.p99 is not None
        slowest_s.append(result.itl_s.p99)
    assert slowest_s[1] < 0.5 * slowest_s[0]
