"""How a plan looks in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from replica.plan.figures import CONTEXT_TOKENS, SESSION_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.plan.cautions import Caution
    from replica.plan.figures import Plan
    from replica.settings import RecipeFile

_TOLD_WIDTH_MIN: Final = 100
"""Columns of a terminal from which on the options are told in words too."""


def show(
    plan: Plan, beware: Sequence[Caution], steps: Sequence[dict[str, Any]], *, about: RecipeFile
) -> None:
    """Print it."""
    console = Console(highlight=False, soft_wrap=False)
    setup, recipe = plan.setup, plan.setup.recipe
    chosen = ", ".join((f"variant {recipe.variant}", *(f"option {n}" for n in recipe.options)))
    console.print(Text(f"{recipe.name}: {recipe.summary}"))
    console.print(Text(f"{chosen} (there are {', '.join(about.variants)})"))
    console.print(
        Text(
            f"{setup.tp} x {setup.device}, KV in {recipe.memory.kv_dtype.value}, memory fraction"
            f" {recipe.memory.mem_fraction.value:g}, {recipe.scheduling.running_max.value} requests at once"
        )
    )
    titled: list[tuple[str, Table]] = [
        ("memory of each device", _memory(plan)),
        ("tokens, and sessions that they hold", _tokens(plan)),
    ]
    if plan.prefill:
        titled.append(("expected prefill, alone", _speeds(plan)))
        titled.append((_generation(plan), _steps(plan)))
    if steps:
        titled.append(("with --option", _ladder(steps, console.width)))
    for title, table in titled:
        console.print(Text(f"\n{title}", style="bold"))
        console.print(table, end="")
        if title.startswith("tokens"):
            _below(plan, console)
    if beware:
        console.print()
    for each in beware:
        console.print(Text.assemble(("warning ", "yellow"), f"{each.code}: {each.words}"))


def _table(left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _memory(plan: Plan) -> Table:
    memory, share = plan.memory, plan.setup.footprint
    table = _table(("what",), ("GiB",))
    rows = [
        ("target weights", memory.target_gib),
        ("draft weights", memory.draft_gib),
        (_reserved_for(plan), memory.reserved_gib),
        (f"KV pool, {share.kv_bytes:,} B a token", memory.kv_gib),
        (f"the drafter's KV, {share.draft_kv_bytes:,} B a token", memory.draft_kv_gib),
        ("graphs and metadata, estimated", memory.graphs_gib),
        ("activations and communication, estimated", memory.activations_gib),
        ("headroom", memory.headroom_gib),
    ]
    for name, gib in rows:
        if gib:
            table.add_row(name, f"{gib:.2f}")
    table.add_section()
    table.add_row("in all", f"{memory.device_gib:.2f}")
    return table


def _reserved_for(plan: Plan) -> str:
    return "the engine's own processes" if plan.setup.gpu is None else "images' embeddings"


def _tokens(plan: Plan) -> Table:
    sizes = [f"at {size // 1000}k" for size in SESSION_TOKENS]
    table = _table(("tier",), ("tokens", *sizes))
    for tier, tokens in (("device", plan.capacity_tokens), ("host", plan.host_capacity_tokens)):
        if tokens:
            table.add_row(tier, f"{tokens:,}", *(f"{tokens // size:,}" for size in SESSION_TOKENS))
    return table


def _below(plan: Plan, console: Console) -> None:
    """What is not a row of the tokens' table."""
    if plan.host_gb:
        console.print(Text(f"the host tier pins {plan.host_gb:,.0f} GB in {plan.setup.tp} ranks"))
    if plan.weights_only_tokens is not None:
        console.print(
            Text(
                f"weights alone counted, as published tables do: {plan.weights_only_tokens:,} tokens"
            )
        )


def _speeds(plan: Plan) -> Table:
    table = _table(("prompt",), ("seconds", "tokens/s"))
    for row in plan.prefill:
        behind = f" after {row.cached_tokens // 1000}k cached" if row.cached_tokens else " cold"
        name = f"{row.new_tokens // 1000}k{behind}"
        table.add_row(name, f"{row.took_s:.3f}", f"{row.tokens_per_s:,.0f}")
    return table


def _generation(plan: Plan) -> str:
    accepted = f", {plan.accept_length:g} tokens a step" if plan.accept_length > 1 else ""
    return f"expected generation at {CONTEXT_TOKENS // 1000}k{accepted}"


def _steps(plan: Plan) -> Table:
    table = _table((), ("at once", "ms a step", "tokens/s each", "in all"))
    for row in plan.decode:
        table.add_row(
            str(row.batch),
            f"{row.step_s * 1e3:.1f}",
            f"{row.user_tokens_per_s:,.0f}",
            f"{row.tokens_per_s:,.0f}",
        )
    return table


def _ladder(steps: Sequence[dict[str, Any]], width: int) -> Table:
    is_told = width >= _TOLD_WIDTH_MIN
    columns = ("option", "what") if is_told else ("option",)
    table = _table(columns, ("weights GiB", "B a token", "tokens", "more"))
    table.columns[0].no_wrap = True
    for row in steps:
        table.add_row(
            row["option"],
            *([row["summary"]] if is_told else []),
            f"{row['weights_gib']:.2f}",
            f"{row['token_bytes']:,}",
            f"{row['capacity_tokens']:,}",
            f"{row['more_tokens']:+,}",
        )
    return table
