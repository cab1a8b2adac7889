"""What is seen before a start: program, ports, model."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from replica.engines.base import Launch
from replica.supervise.checks.preflight import launch_fault, value_of

if TYPE_CHECKING:
    from pathlib import Path


def launch(*argv: str, host: str = "127.0.0.1", port: int = 0) -> Launch:
    return Launch("sglang", argv or (sys.executable,), {}, host, port, "tiny", ports=(port,))


def test_all_is_well() -> None:
    assert launch_fault(launch(), os.defpath) is None


def test_a_program_that_is_not_there() -> None:
    found = launch_fault(launch("no-such-engine"), os.defpath)
    assert found is not None
    assert found.code == "no-engine"
    assert "no-such-engine in PATH" in found.text


def test_a_program_that_may_not_be_executed(tmp_path: Path) -> None:
    (tmp_path / "engine").write_text("#!/bin/sh\n")
    for named, path in ((str(tmp_path / "engine"), ""), ("engine", str(tmp_path))):
        found = launch_fault(launch(named), path)
        assert found is not None
        assert found.code == "no-permission"
        assert str(tmp_path / "engine") in found.text


def test_a_port_that_is_taken_and_by_whom() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = launch_fault(launch(port=port), os.defpath)
    assert found is not None
    assert found.code == "port-taken"
    assert f"127.0.0.1 port {port} is taken by process {os.getpid()} (" in found.text


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_this_machines(host: str) -> None:
    found = launch_fault(launch(host=host), os.defpath)
    assert found is not None
    assert found.code == "cannot-bind"
    assert host in found.text


def test_a_port_below_1024_needs_a_right() -> None:
    if os.geteuid() == 0:
        pytest.skip("root may bind every port")
    found = launch_fault(launch(port=80), os.defpath)
    assert found is not None
    assert found.code == "no-permission"


@pytest.mark.parametrize("flag", ["--model-path", "--speculative-draft-model-path"])
def test_a_models_folder_is_looked_at_and_a_models_name_is_not(tmp_path: Path, flag: str) -> None:
    found = launch_fault(launch(sys.executable, flag, str(tmp_path / "none")), os.defpath)
    assert found is not None
    assert found.code == "model-missing"
    assert launch_fault(launch(sys.executable, flag, "nvidia/Kimi-K2.6-NVFP4"), os.defpath) is None


def test_the_last_value_of_a_flag_counts() -> None:
    argv = ("x", "--a", "1", "--b=2", "--a=3", "--c")
    assert [value_of(argv, flag) for flag in ("--a", "--b", "--c", "--d")] == ["3", "2", None, None]
