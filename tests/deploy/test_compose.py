"""The compose file: valid, closed to other machines, and in step with the router's settings."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from router.settings import Settings, load
from tests.deploy.manifests import (
    COMPOSE,
    DOCKERFILE,
    ROOT,
    emulated,
    image_environment,
    of_image,
    option,
    services,
)


def _variables() -> list[tuple[str, str]]:
    """Every file under ``deploy/`` and each ``HOMEPORT_*`` name it speaks of."""
    return [
        (path.relative_to(ROOT).as_posix(), name)
        for path in sorted((ROOT / "deploy").rglob("*"))
        if path.is_file()
        for name in sorted(set(re.findall(r"HOMEPORT_[A-Z_]*[A-Z]", path.read_text())))
    ]


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", text)
    assert found is not None, text
    return 60 * int(found[1] or 0) + int(found[2] or 0)


def test_it_follows_the_compose_specification() -> None:
    check = Path(sys.executable).parent / "check-jsonschema"
    run = subprocess.run(
        [check, "--builtin-schema", "vendor.compose-spec", COMPOSE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_it_is_a_router_in_front_of_three_emulated_replicas() -> None:
    assert set(services()) == {"router", "emulated-1", "emulated-2", "emulated-3"}
    assert all(row["command"][0] == "emulate" for row in emulated().values())
    assert "command" not in services()["router"], "the image's own command serves"


@pytest.mark.parametrize(("path", "name"), _variables())
def test_deploy_speaks_of_known_settings_only(path: str, name: str) -> None:
    keys = [key for key, _, _ in load({}).rows()]
    known = {"HOMEPORT_" + key.replace(".", "__").upper() for key in keys}
    assert name in known | {"HOMEPORT_CONFIG"}, path


def test_the_router_accepts_what_the_image_and_the_compose_file_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = image_environment() | services()["router"]["environment"]
    for name, value in environment.items():
        assert isinstance(value, str), f"{name}: YAML would change the value's spelling"
        monkeypatch.setenv(name, value)
    settings = load({}).settings
    assert (settings.host, settings.admin_host) == ("0.0.0.0", "0.0.0.0")
    assert [urlsplit(url).hostname for url in settings.replica] == list(emulated())
    for url, row in zip(settings.replica, emulated().values(), strict=True):
        assert str(urlsplit(url).port) == option(row["command"], "--port")
    assert _seconds(services()["router"]["stop_grace_period"]) > settings.limits.drain_s


def test_emulated_replicas_listen_where_the_router_looks() -> None:
    for row in emulated().values():
        assert option(row["command"], "--host") == "0.0.0.0"
        assert (
            f"http://127.0.0.1:{option(row['command'], '--port')}/"
            in row["healthcheck"]["test"][-1]
        )


def test_only_the_router_is_published_and_on_loopback_only() -> None:
    assert not any("ports" in row for row in emulated().values())
    settings = Settings()
    wanted = [f"127.0.0.1:{port}:{port}" for port in (settings.port, settings.admin_port)]
    assert services()["router"]["ports"] == wanted
    assert of_image("EXPOSE") == [" ".join(port.rpartition(":")[2] for port in wanted)]


def test_the_router_starts_when_the_replicas_are_healthy() -> None:
    waits = services()["router"]["depends_on"]
    assert waits == {name: {"condition": "service_healthy"} for name in emulated()}
    assert all("healthcheck" in row for row in emulated().values())


def test_all_run_the_one_image_of_this_version_built_from_here() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for row in services().values():
        assert row["image"] == f"homeport:{version}"
        context = (COMPOSE.parent / row["build"]["context"]).resolve()
        assert context == ROOT
        assert context / row["build"]["dockerfile"] == DOCKERFILE


def test_all_run_without_privileges_and_come_back() -> None:
    for row in services().values():
        assert row["read_only"] is True
        assert row["cap_drop"] == ["ALL"]
        assert row["restart"] == "unless-stopped"
