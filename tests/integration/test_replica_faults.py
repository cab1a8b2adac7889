"""Engines that cannot be started, or are of no use: one message, a stable code, an exit code, nothing left behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.doubles import frail_engine
from tests.doubles.marked import NAME, new_mark, none_left
from tests.doubles.processes import COMMAND
from tests.doubles.supervised import supervised

if TYPE_CHECKING:
    from collections.abc import Callable

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.10 GiB."
CONFIG = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "hidden_size": 128,
    "max_position_embeddings": 4096,
}
END_S_MAX = 30.0
QUICK = ("--no-metrics", "--restarts", "1", "--stop-timeout", "1", "--drain-timeout", "1")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that looks like a whole model."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    header = json.dumps({"w": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}).encode()
    (folder / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes(64)
    )
    return folder


@pytest.fixture
def engine(tmp_path: Path) -> Callable[..., str]:
    """A program in place of SGLang's, that does what its words say."""

    def program(*words: str) -> str:
        path = tmp_path / "engine"
        script = (sys.executable, str(Path(frail_engine.__file__)), *words)
        path.write_text(f'#!/bin/sh\nexec {shlex.join(script)} "$@"\n')
        path.chmod(0o755)
        return str(path)

    return program


def run(model: Path, program: str, *flags: str) -> tuple[int, str]:
    """The exit code and what it said on stderr; nothing may be left of it."""
    mark = new_mark()
    words = ("replica", "run", "tiny-cpu", "--model-path", str(model), "--program", program)
    ended = subprocess.run(
        [*COMMAND, *words, *QUICK, *flags],
        env={**os.environ, NAME: mark},
        capture_output=True,
        text=True,
        timeout=END_S_MAX,
        check=False,
    )
    assert none_left(mark) == {}
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr


def last_message(said: str) -> str:
    return next(
        line for line in reversed(said.splitlines()) if line.startswith("homeport replica run: ")
    )


def test_a_port_that_is_taken_is_one_message_with_its_holder(
    model: Path, engine: Callable[..., str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, said = run(model, engine(), "--port", str(port))
    assert code == 3
    message = last_message(said)
    assert f"port {port} is taken by process {os.getpid()}" in message
    assert "choose other ports with --port" in message
    assert message.endswith("[port-taken]")


def test_a_missing_model_and_half_a_model(model: Path, engine: Callable[..., str]) -> None:
    code, said = run(model / "none", engine(), "--port", "0")
    assert code == 3
    assert last_message(said).endswith("[model-missing]")
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    code, said = run(model, engine(), "--port", "0")
    assert code == 3
    assert "63 of 64 bytes" in last_message(said)
    assert last_message(said).endswith("[model-incomplete]")


def test_no_engine_and_one_that_may_not_be_executed(model: Path, tmp_path: Path) -> None:
    code, said = run(model, "no-such-engine", "--port", "0")
    assert code == 3
    assert last_message(said).endswith("[no-engine]")
    (tmp_path / "plain").write_text("no program")
    code, said = run(model, str(tmp_path / "plain"), "--port", "0")
    assert code == 3
    assert last_message(said).endswith("[no-permission]")


def test_an_address_of_another_machine(model: Path, engine: Callable[..., str]) -> None:
    code, said = run(model, engine(), "--port", "31000", "--host", "192.0.2.1")
    assert code == 3
    assert "192.0.2.1 port 31000" in last_message(said)
    assert last_message(said).endswith("[cannot-bind]")


def test_too_little_memory_is_not_tried_twice(model: Path, engine: Callable[..., str]) -> None:
    code, said = run(model, engine(f"say={OOM}", "exit=1"), "--port", "0")
    assert code == 3
    assert OOM in last_message(said)
    assert "homeport replica plan" in last_message(said)
    assert last_message(said).endswith("[out-of-memory]")
    assert f"  | {OOM}" in said  # the last lines


def test_an_engine_that_ends_by_itself_is_tried_again_and_given_up(
    model: Path, engine: Callable[..., str]
) -> None:
    code, said = run(model, engine("say=something odd", "exit=0"), "--port", "0")
    assert code == 4
    assert "failed after 1 restarts: the engine ended with exit code 0" in last_message(said)
    assert "  | something odd" in said
    assert said.count("| something odd") == 3  # two starts, and the last lines


def test_one_that_says_ready_and_generates_nothing_is_not_ready(
    model: Path, engine: Callable[..., str]
) -> None:
    code, said = run(model, engine("mute"), "--port", "0")
    assert code == 4
    assert "it does not generate: an answer without a token" in last_message(said)
    assert last_message(said).endswith("[warmup-failed]")
    assert "replica ready" not in said


def test_one_that_is_never_ready_has_a_deadline(model: Path, tmp_path: Path) -> None:
    program = tmp_path / "slow"
    program.write_text("#!/bin/sh\nsleep 600\n")
    program.chmod(0o755)
    flags = ("--port", "0", "--start-timeout", "0.5", "--restarts", "0")
    code, said = run(model, str(program), *flags)
    assert code == 4
    assert last_message(said).endswith("[start-timeout]")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--gpus", "0-2,x"), "give indexes such as 0-3"),
        (("--router", "10.0.0.1:30080"), "give its control port as http://HOST:PORT"),
        (("--router", "http://r:1", "--router-key-file", "/none"), "key cannot be read from /none"),
        (("--shared-head", "/none"), "--shared-head /none cannot be read"),
        (("--log-level", "loud"), "--log-level loud"),
        (("--drain-timeout", "inf"), "--drain-timeout inf: give a number"),
        (("--name", "a b"), "--name a b"),
        (("--restarts", "-1"), "--restarts"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    model: Path, engine: Callable[..., str], flags: tuple[str, ...], words: str
) -> None:
    code, said = run(model, engine(), "--port", "0", *flags)
    assert code == 2
    assert len(said.splitlines()) == 1
    assert words in said


def test_a_metrics_port_that_is_taken(model: Path, engine: Callable[..., str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        mark = new_mark()
        words = ("replica", "run", "tiny-cpu", "--model-path", str(model), "--program", engine())
        ended = subprocess.run(
            [*COMMAND, *words, "--port", "0", "--metrics-port", port],
            env={**os.environ, NAME: mark},
            capture_output=True,
            text=True,
            timeout=END_S_MAX,
            check=False,
        )
    assert ended.returncode == 1
    assert "choose another --metrics-port" in ended.stderr
    assert none_left(mark) == {}


def test_a_family_a_flood_and_a_crash_end_with_the_engine(
    model: Path, engine: Callable[..., str]
) -> None:
    program = engine("family", "flood", "stubborn", "late=9")
    words = ("tiny-cpu", "--model-path", str(model), "--program", program)
    with supervised("--stop-timeout", "0.5", words=words) as supervisor:
        first = set(supervisor.family())
        url = supervisor.running.ready[0]["url"]
        with pytest.raises(OSError, match=r"Remote end closed|reset"):
            urllib.request.urlopen(f"{url}/die", timeout=10)
        supervisor.wait_ready(2)
        second = set(supervisor.family())
        assert len(first & second) == 1  # the supervisor
        assert "code=crashed" in supervisor.output
        assert "exit code 9" in supervisor.output
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait_ended() == 5  # it had to be killed
        assert supervisor.left() == {}
