"""The pages say what the supervisor does: states, faults, exit codes, metrics."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from replica.engines.base import Launch
from replica.lifecycle import Rules, State
from replica.supervise.checks import faults
from replica.supervise.engine.printer import Printer
from replica.supervise.metrics import SupervisorMetrics
from replica.supervise.replica import Care, Supervised
from replica.supervise.talk.routers import Beat
from tests.test_tidy import section, table

if TYPE_CHECKING:
    from collections.abc import Iterator

LAUNCH = Launch("sglang", ("x",), {}, "127.0.0.1", 1, "m")
EXITS = ("STOPPED", "BROKEN", "MISUSED", "CANNOT_START", "GAVE_UP", "CUT")


def served() -> Iterator[tuple[str, str, set[str]]]:
    printer = Printer()
    care = Care(Rules(), (), {})
    replica = Supervised(("r1",), LAUNCH, care, printer, random.Random(0))
    counts = replica.counts
    counts.faults["hung"] += 1
    counts.beats["http://r", Beat.OK.value] += 1
    counts.start_s = counts.warmup_s = 1.0
    replica.lifecycle.state = State.READY
    text = SupervisorMetrics([replica], lambda: 0).text().decode()
    printer.close(1.0)
    for family in text_string_to_metric_families(text):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels}
        yield name, family.type, labels


def test_every_metric_is_documented_with_its_type_and_labels() -> None:
    rows = table(section("metrics.md", "Supervisor"))
    documented = {name: (kind, set(re.findall(r"\w+", labels))) for name, kind, labels, _ in rows}
    found = {name: (kind, labels) for name, kind, labels in served()}
    # Without a router there is no sample of it.
    found["homeport_replica_supervisor_registered"] = ("gauge", {"replica", "router"})
    assert documented == found


def test_every_state_is_documented_in_its_order() -> None:
    rows = [row[0] for row in table(section("replica.md", "Running")) if len(row) == 3]
    assert rows[: len(State)] == [state.value for state in State]


def test_every_fault_is_documented_with_what_follows() -> None:
    rows = table(section("replica.md", "Faults of a running replica"))
    assert [row[0] for row in rows] == [*faults.KINDS]
    for code, helps, what, remedy in rows:
        assert (helps == "yes") is faults.KINDS[code].heals
        assert what
        assert remedy


def test_every_exit_code_is_documented() -> None:
    page = section("replica.md", "Running")
    for name in EXITS:
        assert re.search(rf"^\| {getattr(faults, name)} \|", page, re.MULTILINE), name
