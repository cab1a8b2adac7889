"""``homeport replica``: what is printed, in tables and as JSON, and one line for each mistake."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from replica.cli import replica
from replica.engines.sglang_check import SCRIPT, engine_python
from replica.errors import ReplicaError
from tests.unit.replica_recipes.setups import free_port
from tests.unit.replica_recipes.test_model_files import cut, model

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 128,
    "max_position_embeddings": 131_072,
}
ENGINE = """import json, sys
questions = json.load(sys.stdin)
answer = {answer!r}
open(sys.argv[-1], "w").write(json.dumps([answer for _ in questions]))
"""


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def tree(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert replica([*words, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert replica(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


def engine(folder: Path, **answer: object) -> str:
    """An engine's interpreter that gives this answer to whatever it is asked."""
    path = folder / "python"
    whole = {"stage": "accepted", "version": "0.5.23", "error": None, "asked": {}, "resolved": {}}
    script = folder / "engine.py"
    script.write_text(ENGINE.format(answer={**whole, **answer}))
    # A shell, for an interpreter's path may have a space.
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert replica(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"\n  {name} " in said for name in ("plan", "command", "check"))
    assert replica([]) == 2
    capsys.readouterr()
    assert "no command 'x'; there are: plan, command, check" in refused(capsys, "x")


@pytest.mark.parametrize("name", ["plan", "command", "check"])
def test_each_command_has_help(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert replica([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert all(
        flag in said
        for flag in ("RECIPE", "--gpu", "--tp", "--kv-dtype", "--mem-fraction", "--json")
    )


def test_a_plan_in_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert replica(["plan", "kimi-k2.6-nvfp4", "--host-ram-gib", "1024"]) == 0
    said = capsys.readouterr().out
    for words in (
        "4 x b200, KV in fp8, memory fraction 0.9, 16 requests at once",
        "target weights                             140.70",
        "485,888       24         4         2",
        "the host tier pins 940 GB in 4 ranks",
        "weights alone counted, as published tables do: 889,401 tokens",
        "100k cold                5.355",
        "kv-bf16",
        "warning host-memory: the host tier of 2 replicas on 8 GPUs pins 1,880 GB",
        "warning hicache-with-dflash",
    ):
        assert words in said, words


def test_a_plan_as_json_is_in_step_with_what_was_asked(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("plan", "kimi-k2.6-nvfp4", "--gpu", "b300", "--tp", "8", "--kv-dtype", "bf16")
    made = tree(capsys, *words, "--mem-fraction", "0.85", "--accept-length", "3")
    assert (made["gpu"], made["tp"], made["kv_dtype"], made["mem_fraction"]) == (
        "b300",
        8,
        "bf16",
        0.85,
    )
    assert made["capacity_tokens"] == pytest.approx(2.27e6, rel=0.005)
    assert made["sessions"][1] == {
        "tokens": 100_000,
        "device": made["capacity_tokens"] // 100_000,
        "host": made["host"]["tokens"] // 100_000,
    }
    assert made["decode"][0]["user_tokens_per_s"] == pytest.approx(
        3e3 / made["decode"][0]["step_ms"], rel=0.01
    )
    options = {row["option"]: row for row in made["each_option"]}
    assert set(options) == {"draft-fp8", "draft-kv-fp8", "shared-experts-nvfp4", "no-draft"}
    assert all(row["more_tokens"] > 0 for row in options.values())
    assert "accept-length" not in {row["code"] for row in made["warnings"]}


def test_a_plan_for_a_cpu_reads_the_models_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = str(model(tmp_path / "m", CONFIG))
    made = tree(capsys, "plan", "tiny-cpu", "--model-path", folder, "--memory-gib", "10")
    assert made["capacity_tokens"] == int(((1.0 - 0.06) * 2**30 - 300) // (512 * 64)) * 64
    assert made["kv_bytes_per_token"] == 512
    here = tree(capsys, "plan", "tiny-cpu", "--model-path", folder)
    assert here["memory_gib_per_gpu"]["device_gib"] > 0.1


def test_a_command_can_be_copied_to_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert replica(["command", "--recipe", "kimi-k2.6-nvfp4", "--gpus", "0-3"]) == 0
    words = shlex.split(capsys.readouterr().out.replace("\\\n", " "))
    made = tree(capsys, "command", "kimi-k2.6-nvfp4", "--gpus", "0,1,2,3")
    variables = [f"{name}={value}" for name, value in made["environment"].items()]
    assert words == [*variables, *made["argv"]]
    assert made["environment"]["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert made["ports"] == [30_000, 30_100, 30_200, 30_300]
    twin = tree(capsys, "command", "kimi-k2.6-nvfp4", "--engine", "emulated")
    assert (twin["engine"], twin["argv"][:2]) == ("emulated", ["homeport", "emulate"])
    assert twin["capacity_tokens"] == made["capacity_tokens"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("plan", "nope"), "unknown-recipe", "there are kimi-k2.5-nvfp4, "),
        (("plan", "kimi-k2.6-nvfp4", "--variant", "x"), "unknown-variant", "interactive"),
        (("plan", "kimi-k2.6-nvfp4", "--option", "x"), "unknown-option", "kv-bf16"),
        (("plan", "kimi-k2.6-nvfp4", "--tp", "3"), "tp-unsupported", "use --tp 4 or 8"),
        (("plan", "kimi-k2.6-nvfp4", "--kv-dtype", "nvfp4"), "kv-dtype-unsupported", "fp8, bf16"),
        (("plan", "kimi-k2.6-nvfp4", "--mem-fraction", "2"), "bad-value", "between 0 and 1"),
        (("plan", "kimi-k2.6-nvfp4", "--mem-fraction", "0.7"), "does-not-fit", "above 0.796"),
        (("plan", "kimi-k2.6-nvfp4", "--model-path", "./no"), "model-missing", "no folder ./no"),
        (("plan", "kimi-k2.6-nvfp4", "--accept-length", "9"), "bad-value", "8 tokens"),
        (("plan", "tiny-cpu"), "model-missing", "--model-path"),
        (
            ("command", "kimi-k2.6-nvfp4", "--gpu", "h200", "--tp", "8"),
            "gpu-unsupported",
            "planning only",
        ),
        (("command", "kimi-k2.6-nvfp4", "--gpus", "0,x"), "bad-value", "0-3 or 0,2,4-7"),
        (("command", "kimi-k2.6-nvfp4", "--gpus", "0,1"), "bad-value", "one for each rank"),
        (("command", "kimi-k2.6-nvfp4", "--port", "65500"), "port-range", "1 to 65235"),
        (("command", "kimi-k2.6-nvfp4", "--engine", "vllm"), "no-engine", "sglang, emulated"),
        (
            ("check", "kimi-k2.6-nvfp4", "--gpu", "h200", "--tp", "8"),
            "gpu-unsupported",
            "planning only",
        ),
        (("check", "kimi-k2.6-nvfp4", "--python", "/no/python"), "no-engine", "no such file"),
    ],
)
def test_a_mistake_is_one_line_with_a_code(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: str, said: str
) -> None:
    line = refused(capsys, *words)
    assert line.startswith(f"homeport replica {words[0]}: ")
    assert line.endswith(f" [{code}]\n")
    assert said in line


def test_a_mistake_in_the_flags_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "name one RECIPE" in refused(capsys, "plan")
    assert "name one RECIPE" in refused(capsys, "check", "tiny-cpu", "--recipe", "kimi-k2.6-nvfp4")
    assert "--tp" in refused(capsys, "plan", "kimi-k2.6-nvfp4", "--tp", "x")
    assert "--nope" in refused(capsys, "check", "kimi-k2.6-nvfp4", "--nope")


def test_a_folder_that_is_half_there_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = model(tmp_path / "m")
    cut(folder)
    line = refused(capsys, "check", "kimi-k2.6-nvfp4", "--model-path", str(folder))
    assert line.endswith("[model-incomplete]\n")


def test_a_check_that_finds_all_well(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    resolved = {"sampling_backend": "flashinfer", "page_size": 64}
    python = engine(tmp_path, asked={"page_size": 64}, resolved=resolved)
    words = ("check", "kimi-k2.6-nvfp4", "--python", python, "--port", str(free_port()))
    made = tree(capsys, *words)
    assert made["is_accepted"] is True
    assert made["resolved_differently"] == [
        {"field": "sampling_backend", "asked": None, "resolved": "flashinfer"}
    ]
    assert {row["what"]: row["state"] for row in made["findings"]}["arguments"] == "ok"
    assert replica(words) == 0
    said = capsys.readouterr().out
    assert "SGLang 0.5.23 accepts them for 4 x b200" in said
    assert "sampling_backend" in said


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (
            ("parse", "ambiguous option: --cuda-graph-bs could match --x"),
            "flag-renamed",
            "cuda-graph-bs-decode",
        ),
        (("parse", "unrecognized arguments: --rush"), "flag-refused", "--rush"),
        (("check", "ValueError: no\ngood"), "engine-refuses", "ValueError: no good"),
        (("import", "ModuleNotFoundError: sglang"), "no-engine", "cannot be imported"),
    ],
)
def test_a_check_that_sglang_refuses(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    answer: tuple[str, str],
    code: str,
    said: str,
) -> None:
    python = engine(tmp_path, stage=answer[0], error=answer[1])
    words = ("check", "kimi-k2.6-nvfp4", "--python", python, "--port", str(free_port()))
    made = tree(capsys, *words, code=1)
    row = next(row for row in made["findings"] if row["what"] == "arguments")
    assert (row["state"], row["code"], made["is_accepted"]) == ("fail", code, False)
    assert said in row["message"]


def test_another_version_of_the_engine_is_noted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    python = engine(tmp_path, version="0.5.24")
    words = ("check", "kimi-k2.6-nvfp4", "--python", python, "--port", str(free_port()))
    rows = tree(capsys, *words)["findings"]
    assert rows[0]["code"] == "engine-version"
    assert rows[0]["state"] == "note"


def test_an_engine_that_says_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\necho 'no room left' >&2\nexit 3\n")
    silent.chmod(0o755)
    line = refused(capsys, "check", "kimi-k2.6-nvfp4", "--python", str(silent))
    assert "it said: no room left [engine-silent]" in line


def test_a_port_that_is_taken_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        words = ("check", "kimi-k2.6-nvfp4", "--python", engine(tmp_path), "--port", str(port))
        made = tree(capsys, *words, code=1)
    row = next(row for row in made["findings"] if row["code"] == "port-taken")
    assert f"{port} cannot be bound: it is taken by process {os.getpid()} (" in row["message"]
    assert "--port" in row["message"]


def test_the_engines_interpreter_is_that_of_its_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ReplicaError, match="no sglang command is on the PATH"):
        engine_python()
    command = tmp_path / "sglang"
    python = tmp_path / "an environment" / "python"
    python.parent.mkdir()
    python.touch()
    command.write_text(f"#!{sys.base_prefix}/bin/python3\nprint()\n")
    command.chmod(0o755)
    assert str(engine_python()) == f"{sys.base_prefix}/bin/python3"
    for words in (
        f'"{python}"',
        str(python),
    ):  # as pip writes it where a path has a space or is long
        command.write_text(f"#!/bin/sh\n'''exec' {words} \"$0\" \"$@\"\n' '''\nprint()\n")
        assert engine_python() == python
    command.write_text("#!/usr/bin/no-such python\n")
    with pytest.raises(ReplicaError, match="does not name its interpreter"):
        engine_python()


def test_the_script_for_the_engine_imports_nothing_of_ours() -> None:
    lines = SCRIPT.read_text().splitlines()
    imported = [line for line in lines if line.startswith(("import ", "from "))]
    assert imported
    assert not [
        line for line in imported if line.split()[1].partition(".")[0] in ("replica", "sglang")
    ]
