"""Whether a model's folder is there, readable and whole; weights are judged by their headers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from replica.supervise.checks.faults import fault

if TYPE_CHECKING:
    from pathlib import Path

    from replica.lifecycle import Fault

_INDEX: Final = "model.safetensors.index.json"
_LENGTH_BYTES: Final = 8
_HEADER_BYTES_MAX: Final = 100 << 20  # the format's own limit
_UNFINISHED: Final = (".incomplete", ".part", ".aria2", ".download")


def model_fault(folder: Path, *, has_weights: bool = True) -> Fault | None:
    """What is wrong with a model's folder; None if an engine can load it as far as can be told.

    ``has_weights`` False: the engine makes dummy weights, only the configuration is needed.
    """
    try:
        if not folder.is_dir():
            return fault("model-missing", f"there is no folder {folder}")
        names = {path.name for path in folder.iterdir()}
        config = folder / "config.json"
        if "config.json" not in names:
            return fault("model-incomplete", f"{config} is missing")
        if not isinstance(_json(config), dict):
            return fault("model-incomplete", f"{config} is no JSON object")
        return _weights_fault(folder, names) if has_weights else None
    except PermissionError as failure:
        return fault("no-permission", f"{failure.filename} cannot be read by this user")
    except OSError as failure:
        return fault("model-missing", f"{failure.filename or folder}: {failure.strerror}")


def _weights_fault(folder: Path, names: set[str]) -> Fault | None:
    wanted = sorted(name for name in names if name.endswith(".safetensors"))
    if _INDEX in names:
        index = _json(folder / _INDEX)
        placed = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(placed, dict):
            return fault("model-incomplete", f"{folder / _INDEX} names no weights")
        wanted = sorted({str(name) for name in placed.values()})
        missing = [name for name in wanted if name not in names]
        if missing:
            text = f"{len(missing)} of {len(wanted)} weight files are missing in {folder}"
            return fault("model-incomplete", f"{text}, the first is {missing[0]}")
    if not wanted:
        if any(name.endswith((".bin", ".pt", ".gguf")) for name in names):
            return None
        unfinished = any(name.endswith(_UNFINISHED) for name in names)
        hint = " (a download is not finished)" if unfinished else ""
        return fault("model-incomplete", f"there are no weights in {folder}{hint}")
    for name in wanted:
        if what := _short(folder / name):
            return fault("model-incomplete", what)
    return None


def _short(path: Path) -> str | None:
    """What is wrong with a safetensors file's length, by its own header."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if size < _LENGTH_BYTES or length > min(size, _HEADER_BYTES_MAX):
            return f"{path} has {size} bytes: it is cut off, or no safetensors file"
        try:
            header = json.loads(file.read(length))
            ends = [
                int(row["data_offsets"][1])
                for name, row in header.items()
                if name != "__metadata__"
            ]
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            return f"{path} has a damaged header"
    whole = _LENGTH_BYTES + length + max(ends, default=0)
    return None if size >= whole else f"{path} has {size} of {whole} bytes"


def _json(path: Path) -> Any:  # noqa: ANN401  (whatever the file holds)
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
