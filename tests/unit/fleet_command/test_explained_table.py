"""A decision as a table: aligned, 100 columns wide, and nothing that steers the terminal."""

from __future__ import annotations

import re
from typing import Any

import pytest

from router.explaining.document import plain
from router.explaining.next_turn import next_turn
from router.explaining.table import lines
from router.state.health.table import Event
from tests.doubles.core_rig import make_core, serve
from tests.doubles.prompts import prompt


def view(policy: str = "home", n: int = 4) -> dict[str, Any]:
    core = make_core(n, policy=policy)
    for turn in range(1, 4):
        serve(
            core, prompt(range(20 * turn), key="agent-7"), 10.0 * turn, cached=19_000 * (turn - 1)
        )
    [other] = [f"r{i}" for i in range(n) if f"r{i}" != core.pins.recent(1)[0].home_id][:1]
    core.members.heard(other, Event.DRAIN, 40.0)
    found = next_turn(core, "agent-7", 50.0)
    assert found is not None
    return plain(found, policy)


def with_long_names(shown: dict[str, Any]) -> dict[str, Any]:
    for row in shown["replicas"]:
        row["id"] = f"replica-{row['id']}.inference.svc.cluster.local:30000"
        if row["price"] is not None:
            row["price"] = dict.fromkeys(row["price"], 1_234.567)
        if row["why_not"]:
            row["why_not"] = "cheaper by 0.4 s, less than what a move must save (3 s)"
        row |= {"backlog_s": 1_234.5, "live_tokens": 7_200_000, "report_age_s": 4_000.0}
    return shown


@pytest.mark.parametrize("policy", ["home", "least_inflight"])
def test_it_says_where_why_what_else_and_on_what_ground(policy: str) -> None:
    shown = lines(view(policy))
    assert re.fullmatch(rf"agent-7 goes to r\d \(\S+; policy {policy}\)", shown[0])
    assert shown[1].startswith("because ")
    assert "60.1k prompt" in shown[2]
    prices, grounds = (n for n, line in enumerate(shown) if line.startswith("replica "))
    assert shown[prices + 1].endswith("<- chosen")
    assert shown[prices + 4].endswith("draining: takes no new requests")
    assert "reported 19.0 s" in shown[grounds + 1]
    assert max(map(len, shown)) <= 100


@pytest.mark.parametrize("policy", ["home", "least_inflight"])
def test_columns_are_aligned_and_fit_whatever_is_in_them(policy: str) -> None:
    shown = lines(with_long_names(view(policy)))
    names = [line for line in shown if line.startswith("replica-")]
    assert len(names) == 8
    assert len({line.split()[0] for line in names}) == 4
    why = shown[next(n for n, line in enumerate(shown) if line.endswith("why not"))].index(
        "why not"
    )
    for line in names[:4]:
        assert line[why - 1] == " " != line[why]
    assert max(map(len, shown[4:])) <= 100
    assert {line.split()[0] for line in names} == {f"replica-r{n}..." for n in range(4)}
    alike = view(policy)
    for n, row in enumerate(alike["replicas"]):
        row["id"] = f"in-rack-7-{n}-of-the-whole-{n % 2}"
    assert "in-rack-7-2-of-the-whole-0  " in "\n".join(lines(alike))
    for n, row in enumerate(alike["replicas"]):
        row["id"] = f"{n}-is-the-number-of-the-{n}"
    assert "2-is-the...of-the-2  " in "\n".join(lines(alike))


def test_it_says_that_a_long_prompt_would_wait_for_its_turn() -> None:
    words = "waits for its turn first: another long prompt is computed there; 60.1k prompt"
    shown = view()
    assert words not in "\n".join(lines(shown))
    assert words in "\n".join(lines(shown | {"awaits_turn": True}))


def test_of_many_replicas_some_are_shown() -> None:
    shown = lines(view(n=9), rows_max=2)
    assert shown[-1] == "and 7 more replicas"
    assert sum(line.startswith("r") and not line.startswith("replica") for line in shown) == 4


def test_who_is_refused_is_said() -> None:
    core = make_core(1)
    serve(core, prompt(range(5), key="s"), 1.0)
    core.members.heard("r0", Event.CONNECT_FAILED, 2.0)
    found = next_turn(core, "s", 3.0)
    assert found is not None
    shown = lines(plain(found, "home"))
    assert shown[0] == "s would be refused (no-replica-ready; policy home)"
    assert any(line.endswith("down: cannot be reached") for line in shown)


def test_names_do_not_steer_the_terminal() -> None:
    shown = view()
    bad = "a\x1b[2J\x07\u202eb"
    shown |= {"key": bad, "model": bad, "told_by": bad, "home": bad}
    for row in shown["replicas"]:
        row |= {"id": bad, "why_not": bad}
    assert all(line.isprintable() for line in lines(shown))
