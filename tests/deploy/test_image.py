"""The image: what it is built from, what it runs, and what it says of its ports."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from router.settings import Settings
from tests.deploy.manifests import (
    DOCKERFILE,
    ROOT,
    copied,
    image_check,
    image_environment,
    of_image,
    stages,
)

BIN = Path(sys.executable).parent
BUILD_NAMES = re.compile(r"/\^\(([a-z|-]+)\)==/")


def _project() -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def _is_sent(path: str) -> bool:
    """Whether ``.dockerignore`` lets a path into the build: the last pattern that matches decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if line.startswith("#") or not line:
            continue
        if fnmatch(path, pattern) or fnmatch(path.partition("/")[0], pattern):
            sent = line.startswith("!")
    return sent


def test_the_linter_has_nothing_to_say() -> None:
    run = subprocess.run(
        [BIN / "hadolint", DOCKERFILE], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (0, "")


def test_every_stage_starts_from_one_pinned_python_that_the_project_supports() -> None:
    bases = {stage[0][1].split()[0] for stage in stages()}
    (base,) = bases
    found = re.fullmatch(r"python:(\d+\.\d+\.\d+)-slim-[a-z]+", base)
    assert found is not None
    assert found[1] in SpecifierSet(str(_project()["requires-python"]))


def test_it_runs_without_privileges_and_ends_by_the_signal_the_router_drains_on() -> None:
    (user,) = of_image("USER")
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user), "a number lets a cluster check it is not root"
    assert of_image("STOPSIGNAL") == ["SIGTERM"]
    assert image_environment()["PYTHONSAFEPATH"] == "1"


def test_it_exposes_the_ports_that_the_router_listens_on() -> None:
    settings = Settings()
    assert of_image("EXPOSE") == [f"{settings.port} {settings.admin_port}"]
    assert repr(str(settings.admin_port)) in image_check()[-1]


def test_the_control_port_stays_on_loopback_until_the_operator_opens_it() -> None:
    assert "HOMEPORT_ADMIN_HOST" not in image_environment()


def test_everything_from_a_registry_is_installed_by_hash() -> None:
    installs = [
        part
        for stage in stages()
        for word, arguments in stage
        if word == "RUN"
        for part in arguments.split("&&")
        if "pip" in part and " install " in part
    ]
    assert installs
    for part in installs:
        assert "--require-hashes -r requirements/" in part or "--no-deps /dist/" in part


def test_the_build_stage_takes_all_that_the_build_backend_needs_from_the_lock() -> None:
    found = BUILD_NAMES.search(DOCKERFILE.read_text())
    assert found is not None
    needed, known = ["hatchling"], set[str]()
    while needed:
        name = needed.pop()
        known.add(name)
        for line in requires(name) or []:
            row = Requirement(line)
            if row.marker is None or row.marker.evaluate({"extra": ""}):
                needed.append(canonicalize_name(row.name))
    assert set(found[1].split("|")) == known
    locked = re.findall(
        r"^([a-z0-9-]+)==", (ROOT / "requirements/dev.txt").read_text(), re.MULTILINE
    )
    assert known <= set(locked)


def test_what_is_copied_exists_and_is_sent_to_the_build() -> None:
    assert copied()
    for path in copied():
        assert (ROOT / path).exists(), path
        assert _is_sent(path), path


@pytest.mark.parametrize(
    "path",
    [".git", ".venv", ".hypothesis", "tests", "bench", "docs", "dist", "router/__pycache__"],
)
def test_the_rest_stays_out_of_the_build(path: str) -> None:
    assert not _is_sent(path)


def test_what_is_copied_is_enough_to_build_the_wheel(tmp_path: Path) -> None:
    source, dist = tmp_path / "src", tmp_path / "dist"
    source.mkdir()
    skipped = shutil.ignore_patterns("__pycache__")
    for path in copied():
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, source / path, ignore=skipped)
        else:
            shutil.copy(ROOT / path, source / path)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist)]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entries,) = (name for name in names if name.endswith("entry_points.txt"))
        commands = archive.read(entries).decode()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"hashing", "router", "replica", "sim"}
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert "homeport = router.cli:main" in commands
    assert "emulate = sim.cli.emulate:emulate" in commands


@pytest.mark.timeout(900)
def test_it_builds_and_runs_where_docker_does() -> None:
    docker = shutil.which("docker")
    if (
        docker is None
        or subprocess.run([docker, "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs a running Docker engine (`docker info` fails)")
    tag = "homeport:tested"
    subprocess.run([docker, "build", "-f", DOCKERFILE, "-t", tag, ROOT], check=True)
    for arguments in (["--version"], ["check"], ["emulate", "--help"]):
        subprocess.run([docker, "run", "--rm", "--read-only", tag, *arguments], check=True)
