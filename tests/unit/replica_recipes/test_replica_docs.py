"""``docs/replica.md`` says what the code does."""

from __future__ import annotations

import pytest

from replica.errors import CODES
from replica.plan.cautions import CAUTIONS
from replica.plan.figures import plan_of
from replica.settings import Recipe, load_recipe, recipe_names
from replica.setup import changed, setup_of
from tests.test_tidy import section, table

PAGE = "replica.md"


def test_every_code_is_documented() -> None:
    rows = table(section(PAGE, "Errors"))
    assert [row[0] for row in rows] == [*CODES]
    assert all(len(row) == 3 and all(row) for row in rows)


def test_every_warning_is_documented() -> None:
    assert [row[0] for row in table(section(PAGE, "Plan"))] == [*CAUTIONS]


def test_every_recipe_variant_and_section_is_documented() -> None:
    text = section(PAGE, "Recipes")
    for name in recipe_names():
        assert f"| `{name}` |" in text
    file = load_recipe("kimi-k2.6-nvfp4")
    for variant in file.variants:
        assert f"| `{variant}` |" in text
    for option in file.options:
        assert f"`{option}`" in text
    for field in ("model", "draft", "memory", "scheduling", "serving", "flags", "environment"):
        assert field in Recipe.model_fields
        assert f"`[{field}]`" in text


def test_the_table_of_tokens_is_what_the_formula_gives() -> None:
    recipe = load_recipe("kimi-k2.6-nvfp4").resolved()
    rows = [line for line in section(PAGE, "Plan").splitlines() if line.startswith("| B")]
    assert len(rows) == 6
    for row in rows:
        name, published, leaves = (cell.strip() for cell in row[1:-1].split("|"))
        gpu, rest = name.split(" TP")
        setup = setup_of(changed(recipe, kv_dtype=rest.split()[1]), gpu=gpu, tp=int(rest[0]))
        known = plan_of(setup).weights_only_tokens
        assert known is not None
        assert float(published.split()[0]) * 1e6 == pytest.approx(known, rel=0.005), row
        places = len(leaves.split()[0].partition(".")[2])
        assert leaves == f"{setup.capacity_tokens / 1e6:.{places}f} M", row
