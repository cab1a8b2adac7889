"""What a recipe comes to as a process, held word for word in ``argv/``.

A file has the first variant at the first TP in full, then what each other variant, option or TP
adds (+) and leaves out (-). ``python -m tests.unit.replica_recipes.test_recipe_argv`` writes them anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replica.commands.command import shell_text
from replica.engines.emulated import POLICIES
from replica.engines.emulated import launch_of as emulated
from replica.engines.registry import engine_named
from replica.engines.sglang import launch_of
from replica.engines.sglang_flags import FLAGS, OWN, RENAMED
from replica.errors import ReplicaError
from replica.hardware.profiles import PROFILES
from replica.settings import Choice, Recipe, load_recipe, recipe_names
from replica.setup import setup_of
from sim.engine import rules
from tests.unit.replica_recipes.setups import every_recipe, kimi, set_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.engines.base import Launch

GOLDEN = Path(__file__).parent / "argv"


def launched(recipe: Recipe, tp: int | None = None) -> list[str]:
    return shell_text(launch_of(set_up(recipe, tp=tp))).splitlines()


def described(name: str) -> str:
    """A recipe's golden text."""
    file = load_recipe(name)
    first = file.resolved()
    whole = launched(first)
    parts = ["\n".join(whole)]
    others = [(f"variant {v}", launched(file.resolved(v))) for v in list(file.variants)[1:]]
    others += [(f"option {o}", launched(file.resolved(None, (o,)))) for o in file.options]
    others += [(f"tp {tp}", launched(first, tp)) for tp in first.tp[1:]]
    for title, lines in others:
        changes = [f"- {line.strip()}" for line in whole if line not in lines]
        changes += [f"+ {line.strip()}" for line in lines if line not in whole]
        parts.append("\n".join([title, *changes]))
    return "\n\n".join(parts) + "\n"


def with_flag(name: str, value: bool | int | str) -> Recipe:  # noqa: FBT001
    recipe = load_recipe("kimi-k2.6-nvfp4").resolved()
    choice: Choice[bool | int | float | str] = Choice(
        value=value, reason="for a test", source="test"
    )
    return recipe.model_copy(update={"flags": {**recipe.flags, name: choice}})


def refused(recipe: Recipe) -> ReplicaError:
    with pytest.raises(ReplicaError) as caught:
        launch_of(setup_of(recipe))
    return caught.value


@pytest.mark.parametrize("name", recipe_names())
def test_the_command_line_is_as_it_was(name: str) -> None:
    assert described(name) == (GOLDEN / f"{name}.txt").read_text()


@pytest.mark.parametrize(("label", "recipe", "gpu", "tp"), every_recipe())
def test_every_recipe_resolves_to_a_process(label: str, recipe: Recipe, gpu: str, tp: int) -> None:
    setup = set_up(recipe, gpu=gpu, tp=tp)
    launch = launch_of(setup, port=20_000)
    assert launch.argv[:2] == ("sglang", "serve"), label
    assert launch.capacity_tokens == setup.capacity_tokens > 0
    assert launch.ports == (20_000, 20_100, 20_200, 20_300)
    flags = [word for word in launch.argv if word.startswith("--")]
    assert len(flags) == len(set(flags))
    twin = emulated(setup, port=20_000)
    assert twin.argv[:2] == ("homeport", "emulate")
    assert twin.profile in PROFILES
    assert (twin.capacity_tokens, twin.model) == (launch.capacity_tokens, launch.model)


def test_gpus_folders_and_addresses_are_in_the_command_line() -> None:
    launch = launch_of(
        kimi(),
        host="10.0.0.7",
        port=31_000,
        gpus=(4, 5, 6, 7),
        model_path="/models/k2",
        draft_path="/models/d",
    )
    words = " ".join(launch.argv)
    assert launch.environment["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"
    assert "--host 10.0.0.7 --port 31000" in words
    assert "--model-path /models/k2 --served-model-name" in words
    assert "--speculative-draft-model-path /models/d --speculative-draft-model-q" in words
    assert "revision" not in words
    config = launch.argv[launch.argv.index("--kv-events-config") + 1]
    assert json.loads(config)["replay_endpoint"] == "tcp://*:31200"


def test_the_longest_step_is_a_chunk_at_the_end_of_the_longest_context() -> None:
    facts = PROFILES["b200-tp4-fp8"]
    expected = facts.times.prefill_s(8192, 262_144 - 8192)
    assert launch_of(kimi()).step_s_max == pytest.approx(expected, abs=0.001)
    assert launch_of(set_up(load_recipe("tiny-cpu").resolved())).step_s_max == 15.0


@pytest.mark.parametrize("name", RENAMED)
def test_a_flag_that_is_gone_is_named_with_its_successor(name: str) -> None:
    fault = refused(with_flag(name, 8))
    assert fault.code == "flag-renamed"
    assert f"no --{name}; it is now {RENAMED[name]}" in str(fault)


@pytest.mark.parametrize(
    ("name", "value", "code", "words"),
    [
        ("attention-backnd", "x", "unknown-flag", "did you mean --attention-backend?"),
        ("page-size", 64, "unknown-flag", "has a key of its own"),
        ("watchdog-timeout", "soon", "bad-value", "expected a number"),
        ("watchdog-timeout", True, "bad-value", "expected a number"),
        ("sleep-on-idle", 1, "bad-value", "expected true"),
    ],
)
def test_a_flag_that_recipes_do_not_use(name: str, value: str | int, code: str, words: str) -> None:
    fault = refused(with_flag(name, value))
    assert fault.code == code
    assert words in str(fault)


def test_a_variable_that_means_nothing_any_more() -> None:
    recipe = load_recipe("kimi-k2.6-nvfp4").resolved()
    choice = Choice[str](value="1", reason="an old recipe", source="test")
    old = recipe.model_copy(update={"environment": {"SGLANG_ENABLE_SPEC_V2": choice}})
    assert "no variable SGLANG_ENABLE_SPEC_V2; use nothing" in str(refused(old))


def test_the_tables_of_flags_do_not_overlap() -> None:
    assert not FLAGS.keys() & OWN
    assert not FLAGS.keys() & RENAMED.keys()


@pytest.mark.parametrize(
    ("launch", "code"),
    [
        (lambda: launch_of(kimi(), port=65_500), "port-range"),
        (lambda: launch_of(kimi(), port=0), "port-range"),
        (lambda: launch_of(kimi(), gpus=(0, 1)), "bad-value"),
        (lambda: launch_of(kimi(gpu="h200", tp=8)), "gpu-unsupported"),
        (lambda: emulated(kimi(), port=70_000), "port-range"),
        (lambda: engine_named("vllm")(kimi()), "no-engine"),
    ],
)
def test_a_launch_that_cannot_be(launch: object, code: str) -> None:
    assert callable(launch)
    with pytest.raises(ReplicaError) as caught:
        launch()
    assert caught.value.code == code


def test_an_emulated_launch_has_the_sizes_of_the_plan() -> None:
    setup = kimi("throughput", "kv-bf16", gpu="b300", tp=8)
    launch: Launch = emulated(setup, command=("python", "-m", "x"), time_scale=20.0, kv_events=True)
    words = " ".join(launch.argv)
    assert words.startswith("python -m x emulate --profile b300-tp8-bf16 ")
    assert (
        f"--capacity-tokens {setup.capacity_tokens} --host-tokens {setup.host_capacity_tokens} "
        in words
    )
    assert "--time-scale 20 " in words
    assert "--max-running-requests 32 --max-queued-requests 64 --schedule-policy " in words
    assert words.endswith(
        "--schedule-policy shortest-prefill-first --prefill-decode-interval 12 --kv-events"
    )


@pytest.mark.parametrize("engine", [launch_of, emulated])
def test_an_operator_can_turn_the_interval_between_prefill_steps_off(
    engine: Callable[..., Launch], tmp_path: Path
) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(
        'extends = "kimi-k2.6-nvfp4"\nname = "ours"\n[scheduling]\n'
        'prefill_decode_interval = { value = 0, reason = "as it was before", source = "our habit" }\n'
    )
    recipe = load_recipe(str(path)).resolved()
    argv = engine(setup_of(recipe, gpu="b200", tp=4)).argv
    assert argv[argv.index("--prefill-decode-interval") + 1] == "0"
    path.write_text(path.read_text().replace("value = 0", "value = 1001"))
    with pytest.raises(ReplicaError, match="prefill_decode_interval"):
        load_recipe(str(path))


def test_an_emulated_launch_tells_the_orders_that_are_emulated() -> None:
    assert POLICIES == rules.POLICIES


if __name__ == "__main__":
    for each in recipe_names():
        (GOLDEN / f"{each}.txt").write_text(described(each))
