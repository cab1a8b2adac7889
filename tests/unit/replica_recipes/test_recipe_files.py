"""Recipes: typed, nothing unknown in them, a reason and a source for each value."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import ReplicaError
from replica.hardware.models import KvDtype, model_named
from replica.settings import RECIPES, Choice, Part, load_recipe, recipe_names

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = (RECIPES / "tiny-cpu.toml").read_text()


def choices(part: Part) -> list[Choice[Any]]:
    found: list[Choice[Any]] = []
    for value in dict(part).values():
        if isinstance(value, Choice):
            found.append(value)
        elif isinstance(value, Part):
            found += choices(value)
        elif isinstance(value, dict):
            found += [each for each in value.values() if isinstance(each, Choice)]
    return found


def written(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


def refused(folder: Path, text: str) -> ReplicaError:
    with pytest.raises(ReplicaError) as caught:
        load_recipe(written(folder, text))
    return caught.value


def test_the_recipes_that_ship() -> None:
    assert recipe_names() == [
        "kimi-k2.5-nvfp4",
        "kimi-k2.6-nvfp4",
        "kimi-k2.7-code-nvfp4",
        "tiny-cpu",
    ]


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_named_as_its_file_and_each_value_has_a_reason_and_a_source(name: str) -> None:
    file = load_recipe(name)
    recipe = file.resolved()
    assert recipe.name == name
    assert recipe.variant == "interactive"
    assert {"interactive", "throughput"} <= set(file.variants)
    assert len(choices(recipe)) > 15
    assert all(len(choice.reason) >= 10 and choice.source for choice in choices(recipe))


@pytest.mark.parametrize("name", [n for n in recipe_names() if n.startswith("kimi")])
def test_a_recipe_for_kimi_is_for_both_gpus_with_the_drafter_of_its_model(name: str) -> None:
    file = load_recipe(name)
    recipe = file.resolved()
    assert recipe.facts is not None
    assert recipe.draft is not None
    model = model_named(recipe.facts)
    assert (recipe.model.path, recipe.draft.path) == (model.model_path, model.draft.model_path)
    assert (recipe.gpus, recipe.tp) == (("b200", "b300"), (4, 8))
    assert recipe.memory.host_gb_per_rank is not None
    bare = file.resolved("no-hicache")
    assert bare.memory.host_gb_per_rank is None
    assert bare.scheduling == recipe.scheduling


def test_options_add_up() -> None:
    file = load_recipe("kimi-k2.6-nvfp4")
    recipe = file.resolved("throughput", ("kv-bf16", "draft-fp8"))
    assert recipe.memory.kv_dtype.value is KvDtype.BF16
    assert recipe.draft is not None
    assert recipe.draft.quantization is not None
    assert recipe.draft.quantization.value == "fp8"
    assert recipe.scheduling.running_max.value == 32
    assert recipe.options == ("kv-bf16", "draft-fp8")
    assert file.resolved(None, ("no-draft",)).draft is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[memory]", "[memory]\nsize = 3", "memory.size: unknown key"),
        ('engine = "sglang"', 'engine = "vllm"', "engine: Input should be 'sglang'"),
        ("value = 0.10", "value = 1.5", "mem_fraction.value: Input should be less than 1"),
        ("value = 2048", "value = true", "chunk_tokens.value"),
        (', source = "arithmetic" }', " }", "mem_fraction.source: Field required"),
        (
            "[variants.interactive]",
            "[variants.interactive.memory]\nx = 1\n[variants.y]",
            "needs a summary",
        ),
        (
            'summary = "32 at once"',
            'summary = "32 at once"\nremove = ["memory.nothing"]',
            "not there",
        ),
        ('name = "tiny-cpu"', 'name = "tiny-cpu"\nextends = 3', "extends names one recipe"),
        ("gpus =", "gpus", "no TOML"),
    ],
)
def test_a_fault_in_a_recipe_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in WHOLE
    fault = refused(tmp_path, WHOLE.replace(old, new))
    assert fault.code == "bad-recipe"
    assert words in str(fault)
    assert "mine.toml" in str(fault)
    assert "\n" not in str(fault)


def test_an_unknown_key_in_a_variant_that_is_not_chosen_is_refused_too(tmp_path: Path) -> None:
    text = (
        f"{WHOLE}\n[variants.third]\nsummary = 'a third'\n[variants.third.scheduling]\nrush = 1\n"
    )
    fault = refused(tmp_path, text)
    assert "variant third): scheduling.rush: unknown key" in str(fault)


def test_a_recipe_of_ones_own_may_extend_one_that_ships(tmp_path: Path) -> None:
    text = """
        extends = "kimi-k2.6-nvfp4"
        name = "mine"
        [model]
        revision = { value = "0123abc", reason = "the one that we tested", source = "our tests" }
    """
    recipe = load_recipe(written(tmp_path, text)).resolved()
    assert recipe.model.revision is not None
    assert recipe.model.revision.value == "0123abc"
    assert recipe.model.path == "nvidia/Kimi-K2.6-NVFP4"
    twice = refused(tmp_path, 'extends = "kimi-k2.5-nvfp4"')
    assert "extends none itself" in str(twice)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("nope", "unknown-recipe"),
        ("./nope.toml", "unknown-recipe"),
        ("../x/../y", "unknown-recipe"),
    ],
)
def test_a_recipe_that_is_not_there(name: str, code: str) -> None:
    with pytest.raises(ReplicaError) as caught:
        load_recipe(name)
    assert caught.value.code == code


def test_a_variant_or_an_option_that_is_not_there() -> None:
    file = load_recipe("kimi-k2.6-nvfp4")
    for call, code, words in (
        (lambda: file.resolved("fast"), "unknown-variant", "interactive, throughput, no-hicache"),
        (lambda: file.resolved(None, ("x",)), "unknown-option", "there are kv-bf16, draft-fp8"),
    ):
        with pytest.raises(ReplicaError, match=words) as caught:
            call()
        assert caught.value.code == code


def test_the_files_are_toml_with_a_comment_on_what_they_are() -> None:
    for path in RECIPES.glob("*.toml"):
        assert path.read_text().startswith("# ")
        assert tomllib.loads(path.read_text())
