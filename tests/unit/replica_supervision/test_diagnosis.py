"""The cause of an engine's end, from its exit and its last lines."""

from __future__ import annotations

import signal

import pytest

from replica.supervise.checks.diagnosis import cause
from replica.supervise.checks.faults import KINDS
from replica.supervise.engine.process import Exit

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.10 GiB. GPU 0 has a total ..."
)
POOL = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: ..."
HOST = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory"
)
TAKEN = "OSError: [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use"
NO_CONFIG = "OSError: /models/x does not appear to have a file named config.json."
CUT = "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer"
DENIED = "PermissionError: [Errno 13] Permission denied: '/models/x/config.json'"
USAGE = "sglang serve: error: unrecognized arguments: --no-such-flag"
PLAIN = "ValueError: something else"


@pytest.mark.parametrize(
    ("ended", "line", "code"),
    [
        (Exit(1), OOM, "out-of-memory"),
        (Exit(-signal.SIGKILL), POOL, "out-of-memory"),
        (Exit(1), HOST, "host-out-of-memory"),
        (Exit(1), TAKEN, "port-taken"),
        (Exit(1), NO_CONFIG, "model-missing"),
        (Exit(1), CUT, "model-incomplete"),
        (Exit(1), DENIED, "no-permission"),
        (Exit(2), USAGE, "bad-flags"),
        (Exit(1), PLAIN, "exited-early"),
        (Exit(0), PLAIN, "exited-early"),
        (Exit(-signal.SIGSEGV), PLAIN, "killed"),
        (Exit(None), PLAIN, "killed"),
        (Exit(127, 2), PLAIN, "no-engine"),
        (Exit(127, 13), PLAIN, "no-permission"),
    ],
)
def test_a_start_that_fails_has_a_cause(ended: Exit, line: str, code: str) -> None:
    found = cause(ended, ["loading", line, "bye"], was_ready=False)
    assert found.code == code
    assert found.heals == KINDS[code].heals
    if code not in ("exited-early", "killed", "no-engine") and ended.not_executed is None:
        assert line[:40] in found.text


def test_memory_is_named_before_what_fell_over_because_of_it() -> None:
    assert cause(Exit(1), [OOM, DENIED], was_ready=False).code == "out-of-memory"


def test_an_engine_in_use_that_ends_has_crashed() -> None:
    assert cause(Exit(1), [PLAIN], was_ready=True).code == "crashed"
    assert cause(Exit(2), [USAGE], was_ready=True).code == "crashed"


def test_the_kernels_own_kills_are_told_from_others() -> None:
    killed = Exit(-signal.SIGKILL)
    assert cause(killed, [], was_ready=True, oom_killed=True).code == "host-out-of-memory"
    assert cause(killed, [], was_ready=True).code == "killed"
    lines = [
        "RuntimeError: can't start new thread",
        "[2026-11-30 13:52:59] Received sigquit from a child process.",
    ]
    own = cause(killed, lines, was_ready=False)
    assert own.code == "exited-early"
    assert "ended itself; it said: RuntimeError: can't start new thread" in own.text
    assert cause(killed, lines[1:], was_ready=True).code == "crashed"
    assert cause(Exit(1), [], was_ready=True, oom_killed=True).code == "crashed"


def test_a_line_of_any_length_is_shown_in_part() -> None:
    assert len(cause(Exit(1), [OOM + "x" * 10_000], was_ready=False).text) < 500
