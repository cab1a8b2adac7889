"""The command line: help, mistakes, and a clean end; as processes where that is more than a call."""

from __future__ import annotations

import signal
import subprocess

import httpx2
import pytest

from tests.doubles.called import called
from tests.doubles.processes import COMMAND, running


def homeport(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=30, check=False
    )


def test_help_lists_the_commands_and_an_unknown_one_names_them() -> None:
    listed = homeport("--help")
    assert listed.returncode == 0
    for name in ("serve", "check", "emulate", "demo"):
        assert name in listed.stdout
        assert called(name, "--help").returncode == 0
    assert homeport().returncode == 2
    unknown = homeport("server")
    assert unknown.returncode == 2
    assert "no command 'server'" in unknown.stderr
    assert "serve" in unknown.stderr
    assert homeport("--version").stdout.startswith("homeport 0.")


def test_check_prints_each_setting_with_its_source() -> None:
    done = homeport("check", "--port", "31999", "--replica", "http://127.0.0.1:1")
    assert done.returncode == 0
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert rows["port"] == ["31999", "flag"]
    assert rows["replica"] == ['["http://127.0.0.1:1"]', "flag"]
    assert rows["limits.connect_s"] == ["2.0", "default"]


@pytest.mark.parametrize("command", ["check", "serve"])
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--port", "99999"), "port = '99999' (from flag)"),
        (("--policy", "nearest"), "policy = 'nearest' (from flag): is not a policy"),
        (("--replica", "localhost:1"), "not of the form http://HOST:PORT"),
        (("--config", "/nowhere.toml"), "config file /nowhere.toml: No such file"),
        (("--probe-s", "nan"), "probe_s = 'nan' (from flag)"),
        (("--port", "abc"), "abc"),
        (("--bogus",), "--bogus"),
        (("extra",), "extra"),
        (("--port", "30080"), "port and admin_port are both 30080"),
    ],
)
def test_nonsense_is_one_line_and_exit_2(command: str, flags: tuple[str, ...], said: str) -> None:
    done = called(command, *flags)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_a_taken_port_is_one_line_and_exit_1() -> None:
    with running("serve", "--port", "0", "--admin-port", "0") as first:
        port = first.url.rsplit(":", 1)[1]
        done = homeport("serve", "--port", port, "--admin-port", "0")
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_ends_cleanly(number: signal.Signals) -> None:
    with running("serve", "--port", "0", "--admin-port", "0") as router:
        assert httpx2.get(f"{router.url}/health").status_code == 503
        router.signal(number)
        assert router.wait() == 0
    assert not any("Traceback" in line for line in router.lines)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("emulate", "--profile", "h100"), "b200-tp4-fp8"),
        (("emulate", "--count", "0"), "--count"),
        (("emulate", "--log-level", "loud"), "--log-level"),
        (("demo", "--replicas", "x"), "--replicas"),
        (("demo", "--polizy", "home"), "--polizy"),
    ],
)
def test_mistakes_of_other_commands_are_one_line_too(arguments: tuple[str, ...], said: str) -> None:
    done = called(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.parametrize("command", ["check", "serve", "emulate", "demo"])
def test_a_process_tells_a_mistake_as_a_call_does(command: str) -> None:
    done, same = homeport(command, "--bogus"), called(command, "--bogus")
    assert (done.returncode, done.stdout) == (same.returncode, same.stdout) == (2, "")
    assert done.stderr == same.stderr
    assert "--bogus" in done.stderr
