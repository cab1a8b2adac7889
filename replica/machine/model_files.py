"""A model's folder: its config, and whether its weights are whole."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from replica.errors import ReplicaError

if TYPE_CHECKING:
    from replica.hardware.models import Model

_JSON_BYTES_MAX: Final = 256 << 20
_LENGTH_BYTES: Final = 8
_LISTED: Final = 3


@dataclass(slots=True, frozen=True)
class ModelFiles:
    """A folder that is whole; ``weights_bytes`` is what its tensors take."""

    folder: Path
    config: dict[str, Any]
    weights_bytes: int


def is_folder(path: str) -> bool:
    """Whether this names a folder, there or not, rather than a model of the hub (``owner/name``)."""
    return path.startswith((".", "/", "~")) or path.count("/") != 1 or Path(path).is_dir()


def read_model(path: str) -> ModelFiles:
    """The model in this folder.

    Raises:
        ReplicaError: ``model-missing`` without a folder, ``model-incomplete`` where a file is
            missing, cut short or unreadable; the message names it.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ReplicaError(
            "model-missing",
            f"there is no folder {path}: download the model there (hf download MODEL --local-dir {path})",
        )
    config = _json(folder / "config.json")
    parts = sorted((folder / ".cache" / "huggingface" / "download").glob("**/*.incomplete"))
    if parts:
        raise _incomplete(folder, f"{len(parts)} downloads have not ended")
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = _json(index).get("weight_map")
        if not isinstance(names, dict) or not names:
            raise _incomplete(folder, f"{index.name} names no files")
        shards = [folder / str(name) for name in sorted(set(names.values()))]
    else:
        shards = sorted(folder.glob("*.safetensors"))
    missing = [shard.name for shard in shards if not shard.is_file()]
    if missing or not shards:
        listed = ", ".join(missing[:_LISTED]) or "any .safetensors"
        raise _incomplete(folder, f"{len(missing) or 'all'} files of weights are missing: {listed}")
    return ModelFiles(folder, config, sum(_tensor_bytes(shard) for shard in shards))


def check_draft(draft: ModelFiles, *, target: ModelFiles | None, facts: Model | None) -> None:
    """See that a drafter is one for this target, by what its config says of it.

    Raises:
        ReplicaError: ``draft-mismatch``, with the key and both values.
    """
    wanted: dict[str, object] = {}
    if target is not None:
        text = target.config.get("text_config", target.config)
        keys = ("num_hidden_layers", "hidden_size", "vocab_size")
        wanted = {key: text.get(key) for key in keys} if isinstance(text, dict) else {}
    elif facts is not None:
        wanted = {"num_hidden_layers": facts.layers, "hidden_size": facts.hidden_size}
    own = {"num_hidden_layers": "num_target_layers"}
    for key, value in wanted.items():
        name = own.get(key, key)
        has = draft.config.get(name)
        if value is not None and has is not None and has != value:
            raise ReplicaError(
                "draft-mismatch",
                f"the drafter in {draft.folder} is for another model: its {name} is {has}, the target's {key} is"
                f" {value}; use the drafter that was trained for it",
            )


def _tensor_bytes(shard: Path) -> int:
    """Bytes of the tensors in a file, which must be as long as its head says."""
    try:
        with shard.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if length > _JSON_BYTES_MAX:
                raise _incomplete(shard.parent, f"{shard.name} is no safetensors file")
            head = json.loads(file.read(length))
        ends = [row["data_offsets"][1] for name, row in head.items() if name != "__metadata__"]
        wanted = max(ends, default=0)
        has = shard.stat().st_size - _LENGTH_BYTES - length
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        raise _incomplete(shard.parent, f"{shard.name} cannot be read or is cut short") from None
    if has != wanted:
        raise _incomplete(shard.parent, f"{shard.name} has {has:,} of {wanted:,} bytes of tensors")
    return int(wanted)


def _json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _JSON_BYTES_MAX:
            raise _incomplete(path.parent, f"{path.name} is too long")
        tree = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise _incomplete(path.parent, f"{path.name} is missing") from None
    except (OSError, ValueError, RecursionError):
        raise _incomplete(path.parent, f"{path.name} cannot be read") from None
    if not isinstance(tree, dict):
        raise _incomplete(path.parent, f"{path.name} is no JSON object")
    return tree


def _incomplete(folder: Path, what: str) -> ReplicaError:
    return ReplicaError(
        "model-incomplete",
        f"the model in {folder} is not whole: {what}; download it again, finished files are kept",
    )
