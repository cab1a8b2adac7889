"""What holds across the repository: sizes, tables in step with the code, clean imports."""

from __future__ import annotations

import ast
import random
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.control.api.answers import CONTROL_CODES
from router.control.api.table import CALLS
from router.core import CoreParameters, RouterCore
from router.errors import CODES
from router.obs.metrics import METRICS, Counts, RouterMetrics
from router.obs.sources import SourceCounts
from router.policy import registry
from router.settings import LimitSettings, Settings
from router.state.cache.feeds import Feeding, Said
from router.state.fleet.replica import ReplicaSpec
from router.state.shared.desk import DeskCounts
from router.tenants.gate import Gate
from router.tenants.model import Tenant

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("hashing", "router", "replica", "sim")
SOURCES: Final = [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]

LINES_MAX: Final = 399
LONG_LINES_MAX: Final = 499
LONG_FILES: Final[dict[str, str]] = {}
"""Path -> why the file may have up to LONG_LINES_MAX lines."""
FUNCTION_LINES_MAX: Final = 59

PIN: Final = re.compile(
    r"[a-z0-9][a-z0-9._-]*(\[[a-z,]+\])?==[A-Za-z0-9.!+]+( ; [^;]+?)?( --hash=sha256:[0-9a-f]{64})+"
)
UNFINISHED: Final = re.compile(r"\b(?:TO[D]O|FI[X]ME|X[X]X)\b")
MACHINE_PATH: Final = re.compile(r"(?<![\w.~])/(?:work|home|root)/")
CONFIGURES_THE_LINT: Final = "pyproject.toml"


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def section(page: str, title: str = "") -> str:
    """A page up to its first second-level heading, or the part below the heading of this title."""
    parts = re.split(r"^## (.+)\n", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE)
    return parts[0] if not title else parts[parts.index(title) + 1]


def table(text: str) -> list[list[str]]:
    """The rows of a table whose first cell is code; cells without blanks and back-ticks."""
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip().replace("`", "") for cell in row[1:-1].split("|")] for row in rows]


def tracked() -> dict[str, str]:
    """Every text file that git knows, by path."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("needs git")
    run = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if run.returncode:
        pytest.skip("needs a git checkout")
    found: dict[str, str] = {}
    for name in run.stdout.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file():
            try:
                found[name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
    return found


# Sizes and words


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_file_is_short_and_says_what_lives_in_it(path: Path) -> None:
    text = path.read_text()
    limit = LONG_LINES_MAX if name_of(path) in LONG_FILES else LINES_MAX
    assert len(text.splitlines()) <= limit
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno + 1 <= FUNCTION_LINES_MAX, node.name


def test_the_list_of_long_files_names_none_that_is_short_or_gone() -> None:
    for name in LONG_FILES:
        assert len((ROOT / name).read_text().splitlines()) > LINES_MAX, name


def test_nothing_is_left_unfinished_and_no_path_of_a_machine_is_named() -> None:
    for name, text in tracked().items():
        if name != CONFIGURES_THE_LINT:
            assert not UNFINISHED.search(text), name
        assert not MACHINE_PATH.search(text), name


def test_every_test_file_has_a_name_of_its_own() -> None:
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, n in names.items() if n > 1] == []


# Tables in step with the code


def test_every_error_code_is_documented_with_its_status() -> None:
    rows = table(section("errors.md"))
    assert {code: int(status) for code, status, *_ in rows} == CODES
    assert len(rows) == len(CODES)
    assert all(len(row) == 5 and all(row) for row in rows)


def test_the_settings_that_the_errors_speak_of_exist() -> None:
    limits = re.findall(r"`limits\.(\w+)`", (ROOT / "docs/errors.md").read_text())
    assert limits
    assert set(limits) <= set(LimitSettings.model_fields)
    named = re.findall(r"`(repeat_started|max_inflight\w+)", (ROOT / "docs/errors.md").read_text())
    assert set(named) <= set(Settings.model_fields)


def test_the_codes_of_the_control_api_are_documented_with_their_status() -> None:
    page = section("errors.md", "Codes of the control API only")
    rows = {code: int(status) for code, status, *_ in table(page)}
    assert rows == CONTROL_CODES
    assert not CONTROL_CODES.keys() & CODES.keys()
    for code in {code for call in CALLS for code in call.codes} - CONTROL_CODES.keys():
        assert f"`{code}`" in page


def test_every_metric_is_documented_with_its_type_and_labels() -> None:
    core = RouterCore(registry.make("home"), random.Random(0), CoreParameters())
    core.members.join(ReplicaSpec("r1", "127.0.0.1", 30_000), 0.0)
    counts = Counts()
    counts.requests["openai-chat", "done"] += 1
    counts.reloads["tenants", "done"] += 1
    counts.events["r1", "gap"] += 1
    counts.ties["tied"] += 1
    core.members.fed("r1", Feeding(Said.BEGUN, 64), 0.0)
    core.members.fed("r1", Feeding(Said.WHOLE, 64), 0.0)
    counts.unusable_files["tenants"] = False
    counts.probes.ended["ready", "ok"] += 1
    counts.probes.took["ready"].add(0.001)
    counts.probes.load_changed_s["r1"] = 0.0
    counts.sharing.desk = DeskCounts()
    counts.sharing.troubles["full"] += 1
    counts.sharing.readings["late"] += 1
    gate = Gate([Tenant("a")], 0.0, is_isolated=False)
    gate.accounts["a"].ended["done"] += 1
    gate.accounts["a"].refused["x"] += 1
    for table_of in (
        counts.errors,
        counts.turned_away,
        counts.decisions,
        counts.price_us,
        counts.operator_changes,
    ):
        table_of["x"] += 1
    served: dict[str, tuple[str, set[str]]] = {}
    sources = SourceCounts(lambda: {"file": 1}, lambda: 0.0)
    sources.begin("file")
    text = RouterMetrics(core, counts, gate=gate, sources=sources).text().decode()
    for family in text_string_to_metric_families(text):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        served[name] = (family.type, labels)
    assert set(served) == set(METRICS)
    rows = table(section("metrics.md"))
    documented = {name: (kind, set(re.findall(r"\w+", labels))) for name, kind, labels, _ in rows}
    assert documented == served
    assert len(rows) == len(METRICS)


def test_every_dependency_is_justified() -> None:
    tree = project()
    groups = tree["dependency-groups"]
    for title, lines in (
        ("Runtime", tree["project"]["dependencies"]),
        (
            "Extras",
            [line for extra in tree["project"]["optional-dependencies"].values() for line in extra],
        ),
        ("Lint", groups["lint"]),
        ("Test", groups["test"]),
        ("Development", [line for line in groups["dev"] if isinstance(line, str)]),
    ):
        names = [re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0] for line in lines]
        rows = table(section("dependencies.md", title))
        assert sorted(name for name, _ in rows) == sorted(names), title
        assert all(reason for _, reason in rows), title


def test_the_change_log_begins_with_this_version() -> None:
    found = re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert found is not None
    assert found[1] == project()["project"]["version"]


@pytest.mark.parametrize("name", ["dev", "engine", "serve"])
def test_a_lock_pins_and_hashes_every_line_and_names_no_host(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    lines = re.sub(r" *\\\n *", " ", text).splitlines()
    assert lines
    assert [line for line in lines if not PIN.fullmatch(line)] == []


def test_the_engine_is_locked_as_it_is_listed() -> None:
    """All but torch, whose CPU build has another file in each place that carries it, so no hash."""
    folder = ROOT / "requirements"
    listed = re.findall(r"^[^#\s]+$", (folder / "engine.in").read_text(), flags=re.MULTILINE)
    locked = re.findall(r"^([^ #]+==[^ ]+) \\$", (folder / "engine.txt").read_text(), re.MULTILINE)
    assert {line.lower().replace("_", "-") for line in listed} == {
        line.replace("_", "-") for line in locked
    }
    torch = (folder / "engine-torch.txt").read_text().splitlines()
    assert [line for line in torch if not line.startswith("#")] == ["torch==2.13.0+cpu"]


# Imports


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("router.cli", {"aiohttp", "asyncio", "httptools", "pydantic", "replica", "sim", "uvloop"}),
        ("replica.cli", {"aiohttp", "asyncio", "pydantic", "rich", "router", "sim", "typer"}),
        ("replica.commands.plan", {"aiohttp", "asyncio", "pydantic", "rich", "router", "sim"}),
        ("router.commands.fleet", {"aiohttp", "httptools", "pydantic", "rich", "uvloop"}),
        ("router.core", {"aiohttp", "asyncio", "httptools", "pydantic", "socket"}),
        ("router.recording.player", {"aiohttp", "asyncio", "httptools", "pydantic", "socket"}),
        ("router.dialect", {"aiohttp", "asyncio", "httptools", "pydantic", "socket"}),
        ("router.framing.requests", {"aiohttp", "asyncio", "socket", "uvloop"}),
        ("sim.cli.emulate", {"aiohttp", "asyncio", "hashing", "replica", "router"}),
        ("sim.cli.demo", {"aiohttp", "asyncio", "hashing", "replica", "router"}),
        ("sim.cli.traces", {"aiohttp", "asyncio", "hashing", "replica", "router"}),
        ("sim.cli.simulate", {"aiohttp", "asyncio", "hashing", "replica", "router"}),
        ("sim.fleet.driver", {"aiohttp", "asyncio", "httptools", "pydantic", "redis", "socket"}),
        ("sim.engine.replica_model", {"aiohttp", "asyncio", "hashing", "router"}),
        ("sim.live.emulator", {"hashing", "router"}),
        ("sim.live.demo", {"hashing", "router"}),
    ],
)
def test_importing_a_module_loads_no_more_than_it_needs(module: str, unwanted: set[str]) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert module.partition(".")[0] in loaded
    assert not loaded & unwanted
