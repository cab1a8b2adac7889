"""The pages on the simulator name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sim.engine.checks
import sim.fleet.checks
from router.policy.registry import POLICIES
from sim.scenario.finding import shipped

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_every_invariant_is_on_its_page_in_its_number() -> None:
    stated = [
        int(number)
        for module in (sim.engine.checks, sim.fleet.checks)
        for number in re.findall(r"^(\d+)\. ", module.__doc__ or "", flags=re.MULTILINE)
    ]
    page = (DOCS / "invariants.md").read_text(encoding="utf-8")
    listed = [int(number) for number in re.findall(r"^\| (\d+) \|", page, flags=re.MULTILINE)]
    assert stated
    assert listed == stated


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_scenario_is_on_the_simulators_page(name: str) -> None:
    page = (DOCS / "simulator.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{name}` \|", page, flags=re.MULTILINE)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_is_on_the_policies_page(name: str) -> None:
    page = (DOCS / "policies.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{name}` \|", page, flags=re.MULTILINE)
