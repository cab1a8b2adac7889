"""A model's folder: missing, half there, unreadable, whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from replica.supervise.checks.preflight import model_fault

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def tensors(path: Path, *, n_bytes: int = 64) -> None:
    header = json.dumps({"w": {"dtype": "U8", "shape": [n_bytes], "data_offsets": [0, n_bytes]}})
    raw = header.encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(n_bytes))


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    names = ["model-1.safetensors", "model-2.safetensors"]
    for name in names:
        tensors(tmp_path / name)
    index = {"weight_map": {"a": names[0], "b": names[1]}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


def cut(folder: Path) -> None:
    path = folder / "model-2.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def emptied(folder: Path) -> None:
    (folder / "model-2.safetensors").write_bytes(b"")


def garbled(folder: Path) -> None:
    (folder / "model-2.safetensors").write_bytes((20).to_bytes(8, "little") + b"x" * 64)


def nested(folder: Path) -> None:
    raw = b"[" * 100_000
    (folder / "model-2.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw)


def unlisted(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("[]")


def without_weights(folder: Path) -> None:
    for path in folder.glob("model*"):
        path.unlink()
    (folder / "model-1.safetensors.incomplete").write_bytes(b"x")


def test_a_whole_folder_has_no_fault(whole: Path) -> None:
    assert model_fault(str(whole)) is None


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda folder: (folder / "model-2.safetensors").unlink(),
            "model-2.safetensors",
        ),
        (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
        (lambda folder: (folder / "config.json").write_text("[1,"), "config.json cannot be read"),
        (cut, "63 of 64 bytes"),
        (emptied, "model-2.safetensors"),
        (garbled, "model-2.safetensors"),
        (nested, "model-2.safetensors"),
        (unlisted, "is no JSON object"),
        (without_weights, "files of weights are missing"),
    ],
)
def test_half_a_folder_is_incomplete_and_the_file_is_named(
    whole: Path, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(whole)
    found = model_fault(str(whole))
    assert found is not None
    assert found.code == "model-incomplete"
    assert words in found.text
    assert str(whole) in found.text
    assert not found.heals


def test_a_folder_that_is_not_there_is_missing(tmp_path: Path) -> None:
    found = model_fault(str(tmp_path / "none"))
    assert found is not None
    assert found.code == "model-missing"


def test_dummy_weights_need_the_configuration_only(whole: Path) -> None:
    without_weights(whole)
    assert model_fault(str(whole), has_weights=False) is None
    assert model_fault(str(whole)) is not None
