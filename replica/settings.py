"""Recipes as types: what one model needs to be served well, each value with its reason and source.

A recipe is a TOML file in ``replica/recipes/`` or at a path. It has variants, of which one is chosen,
and options, of which any may be added; both change some of its values and remove others. A recipe may
extend one other. Unknown keys are refused, also in variants and options that are not chosen.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from replica.errors import ReplicaError
from replica.hardware.models import KvDtype

RECIPES: Final = Path(__file__).with_name("recipes")
_BYTES_MAX: Final = 1 << 20
_FAULTS_MAX: Final = 3

T = TypeVar("T")
Count = Annotated[int, Field(strict=True, ge=1, le=1 << 31)]
Steps = Annotated[int, Field(strict=True, ge=0, le=1_000)]
Switch = Annotated[bool, Field(strict=True)]
Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Word = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f]+$")]
Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,63}$")]
Variable = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,127}$")]


class Part(BaseModel):
    """A part of a recipe: frozen, nothing unknown in it, no infinite number."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=()
    )


class Choice(Part, Generic[T]):
    """A value that is not the engine's default, why it is so, and where that comes from."""

    value: T
    reason: Annotated[str, Field(min_length=10)]
    source: Annotated[str, Field(min_length=3)]


class ModelPart(Part):
    """The target model: where it is, and as what it is served."""

    path: Word
    revision: Choice[Word] | None = None
    served_name: Word
    quantization: Choice[Word] | None = None
    trust_remote_code: Choice[Switch] | None = None


class DraftPart(Part):
    """The DFlash drafter, and how the engine runs it."""

    path: Word
    revision: Choice[Word] | None = None
    algorithm: Choice[Literal["DFLASH"]]
    block_tokens: Choice[Count]
    window_tokens: Choice[Count] | None = None
    attention_backend: Choice[Word] | None = None
    quantization: Choice[Word] | None = None
    kv_dtype: Choice[KvDtype] | None = None


class WeightsPart(Part):
    """Where the checkpoint differs from the published one, for the memory arithmetic."""

    shared_experts: Choice[Literal["nvfp4"]] | None = None


class MemoryPart(Part):
    """The device's memory and the host tier."""

    kv_dtype: Choice[KvDtype]
    mem_fraction: Choice[Share]
    page_tokens: Choice[Count] | None = None
    host_gb_per_rank: Choice[Count] | None = None
    host_write_policy: (
        Choice[Literal["write_through", "write_back", "write_through_selective"]] | None
    ) = None
    host_io_backend: Choice[Literal["kernel", "direct"]] | None = None


class SchedulingPart(Part):
    """What the scheduler takes in, and in which order."""

    policy: Choice[Word] | None = None
    running_max: Choice[Count]
    queued_max: Choice[Count] | None = None
    chunk_tokens: Choice[Count]
    context_tokens_max: Choice[Count] | None = None
    min_free_slots_delay: Choice[Count] | None = None
    prefill_decode_interval: Choice[Steps] | None = None


class ServingPart(Part):
    """Parsers, and what the engine tells the router."""

    reasoning_parser: Choice[Word] | None = None
    tool_call_parser: Choice[Word] | None = None
    metrics: Choice[Switch]
    cache_report: Choice[Switch]
    kv_events: Choice[Switch]
    load_publishing: Choice[Switch]


class Recipe(Part):
    """A recipe with one variant and its options applied.

    ``facts`` names the model in ``replica.hardware``; without it the plan reads the model's folder.
    """

    name: Name
    summary: Word
    engine: Literal["sglang"]
    engine_version: Word
    facts: Word | None = None
    gpus: Annotated[tuple[Word, ...], Field(min_length=1)]
    tp: Annotated[tuple[Count, ...], Field(min_length=1)]
    model: ModelPart
    draft: DraftPart | None = None
    weights: WeightsPart = WeightsPart()
    memory: MemoryPart
    scheduling: SchedulingPart
    serving: ServingPart
    flags: dict[Key, Choice[bool | int | float | Word]] = Field(default_factory=dict)
    environment: dict[Variable, Choice[Word]] = Field(default_factory=dict)
    variant: str = ""
    options: tuple[str, ...] = ()


class RecipeFile:
    """One recipe file: its variants and options, and what they come to.

    Raises:
        ReplicaError: ``bad-recipe``, with the key, for any combination of a variant with an option.
    """

    def __init__(self, tree: dict[str, Any], source: str) -> None:
        self.source = source
        self._tree = dict(tree)
        self._variants = _overlays(self._tree, "variants", source)
        self._options = _overlays(self._tree, "options", source)
        if not self._variants:
            raise ReplicaError("bad-recipe", f"{source}: no variants; the first is the default")
        for variant in self._variants:
            self.resolved(variant)
            for option in self._options:
                self.resolved(variant, (option,))

    @property
    def variants(self) -> dict[str, str]:
        """The variants with a line on each; the first is the default."""
        return {name: layer["summary"] for name, layer in self._variants.items()}

    @property
    def options(self) -> dict[str, str]:
        """The options with a line on each."""
        return {name: layer["summary"] for name, layer in self._options.items()}

    def resolved(self, variant: str | None = None, options: tuple[str, ...] = ()) -> Recipe:
        """The recipe with this variant, or the default one, and these options in turn.

        Raises:
            ReplicaError: ``unknown-variant``, ``unknown-option`` or ``bad-recipe``.
        """
        chosen = next(iter(self._variants)) if variant is None else variant
        layers = [_layer("variant", chosen, self._variants, self.source)]
        layers += [_layer("option", name, self._options, self.source) for name in options]
        tree: dict[str, Any] = self._tree
        for layer in layers:
            tree = _laid_over(tree, layer, self.source)
        try:
            return Recipe.model_validate({**tree, "variant": chosen, "options": options})
        except ValidationError as failure:
            where = " + ".join((f"variant {chosen}", *options))
            raise ReplicaError(
                "bad-recipe", f"{self.source} ({where}): {_words(failure)}"
            ) from None


def recipe_names() -> list[str]:
    """The recipes that come with the product."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def load_recipe(name: str) -> RecipeFile:
    """The recipe of this name, or in the file at this path (with a slash or ending in ``.toml``).

    Raises:
        ReplicaError: ``unknown-recipe`` or ``bad-recipe``.
    """
    return RecipeFile(_tree(name, ()), name)


def _tree(name: str, seen: tuple[str, ...]) -> dict[str, Any]:
    tree = _read(name)
    parent = tree.pop("extends", None)
    if parent is None:
        return tree
    if not isinstance(parent, str) or seen:
        raise ReplicaError(
            "bad-recipe", f"{name}: extends names one recipe, which extends none itself"
        )
    return _laid_over(_tree(parent, (*seen, name)), tree, name)


def _read(name: str) -> dict[str, Any]:
    is_path = "/" in name or name.endswith(".toml")
    path = Path(name) if is_path else RECIPES / f"{name}.toml"
    if not is_path and name not in recipe_names():
        known = ", ".join(recipe_names())
        raise ReplicaError(
            "unknown-recipe", f"no recipe {name!r}: there are {known}, or give a file's path"
        )
    try:
        with path.open("rb") as file:
            raw = file.read(_BYTES_MAX + 1)
    except OSError as failure:
        raise ReplicaError(
            "unknown-recipe", f"recipe {name}: {failure.strerror or failure}"
        ) from None
    if len(raw) > _BYTES_MAX:
        raise ReplicaError("bad-recipe", f"{name}: more than {_BYTES_MAX:,} bytes")
    try:
        return tomllib.loads(raw.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as failure:
        raise ReplicaError("bad-recipe", f"{name}: no TOML: {failure}") from None


def _overlays(tree: dict[str, Any], key: str, source: str) -> dict[str, dict[str, Any]]:
    """The variants or options of a file, taken out of it."""
    found = tree.pop(key, {})
    if not isinstance(found, dict):
        raise ReplicaError("bad-recipe", f"{source}: {key} is a table of tables")
    for name, layer in found.items():
        if not isinstance(layer, dict) or not isinstance(layer.get("summary"), str):
            raise ReplicaError("bad-recipe", f"{source}: {key}.{name} needs a summary")
    return found


def _layer(
    kind: Literal["variant", "option"], name: str, known: dict[str, dict[str, Any]], source: str
) -> dict[str, Any]:
    layer = known.get(name)
    if layer is None:
        there = ", ".join(known) or "none"
        code = "unknown-variant" if kind == "variant" else "unknown-option"
        raise ReplicaError(code, f"{source} has no {kind} {name!r}: there are {there}")
    return {key: value for key, value in layer.items() if key != "summary"}


def _laid_over(below: dict[str, Any], above: dict[str, Any], source: str) -> dict[str, Any]:
    """A tree with another's values in place of its own; choices are replaced whole.

    ``remove`` lists dotted keys that the lower tree must have and that are then gone.
    """
    above = dict(above)
    removed = above.pop("remove", [])
    merged = _merged(below, above)
    if not isinstance(removed, list) or not all(isinstance(key, str) for key in removed):
        raise ReplicaError("bad-recipe", f"{source}: remove is a list of dotted keys")
    for dotted in removed:
        *path, last = dotted.split(".")
        place: Any = merged
        for key in path:
            place = place.get(key) if isinstance(place, dict) else None
        if not isinstance(place, dict) or last not in place:
            raise ReplicaError("bad-recipe", f"{source}: remove names {dotted}, which is not there")
        del place[last]
    return merged


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = {
        key: _merged(value, {}) if isinstance(value, dict) else value
        for key, value in below.items()
    }
    for key, value in above.items():
        old = merged.get(key)
        is_choice = isinstance(value, dict) and "value" in value
        if isinstance(old, dict) and isinstance(value, dict) and not is_choice:
            merged[key] = _merged(old, value)
        else:
            merged[key] = value
    return merged


def _words(failure: ValidationError) -> str:
    """What is wrong, in one line: the first faults with their keys."""
    faults = failure.errors(include_url=False, include_context=False)
    said = [
        f"{'.'.join(map(str, fault['loc']))}: {_said(fault['type'], fault['msg'])}"
        for fault in faults[:_FAULTS_MAX]
    ]
    more = len(faults) - len(said)
    return "; ".join(said) + (f"; and {more} more" if more > 0 else "")


def _said(kind: str, message: str) -> str:
    return "unknown key" if kind == "extra_forbidden" else message


def inherited_environment() -> dict[str, str]:
    """This process's environment for an engine's interpreter, without what is Python's or ours."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "HOMEPORT_"))
    }
