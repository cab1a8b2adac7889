"""Every recipe as it can be set up, for tests that hold for all of them."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from typing import Any

from replica.hardware.footprint import Footprint, footprint_of_config
from replica.hardware.models import KvDtype
from replica.settings import Recipe, load_recipe, recipe_names
from replica.setup import Setup, setup_of

TINY: dict[str, Any] = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_size": 128,
    "max_position_embeddings": 131_072,
}
CPU_GIB = 8.0


def tiny_footprint(tp: int = 1) -> Footprint:
    return footprint_of_config(TINY, weights_bytes=5_000_000, tp=tp, kv_dtype=KvDtype.BF16)


def set_up(recipe: Recipe, *, gpu: str | None = None, tp: int | None = None) -> Setup:
    """A setup, with a tiny model in 8 GiB where the recipe is for a CPU."""
    if recipe.facts is not None:
        return setup_of(recipe, gpu=gpu, tp=tp)
    return setup_of(recipe, gpu=gpu, tp=tp, device_gib=CPU_GIB, footprint=tiny_footprint(tp or 1))


def kimi(
    variant: str | None = None, *options: str, gpu: str | None = None, tp: int | None = None
) -> Setup:
    return setup_of(load_recipe("kimi-k2.6-nvfp4").resolved(variant, options), gpu=gpu, tp=tp)


def every_recipe() -> list[tuple[str, Recipe, str, int]]:
    """Recipe, with each variant, and with each option on the first: on each GPU, at each TP."""
    rows = []
    for name in recipe_names():
        file = load_recipe(name)
        first = next(iter(file.variants))
        layers: list[tuple[str, tuple[str, ...]]] = [(variant, ()) for variant in file.variants]
        layers += [(first, (option,)) for option in file.options]
        for variant, options in layers:
            recipe = file.resolved(variant, options)
            for gpu in recipe.gpus:
                for tp in recipe.tp:
                    label = "-".join((name, variant, *options, gpu, f"tp{tp}"))
                    rows.append((label, recipe, gpu, tp))
    return rows


def free_port() -> int:
    """A port below those that the system hands out, free with its publishers' ports above it."""
    for port in range(12_000, 30_000, 400):
        with ExitStack() as stack, suppress(OSError):
            for number in (port, port + 100, port + 200, port + 300):
                stack.enter_context(socket.socket()).bind(("", number))
            return port
    raise AssertionError("no free ports")
