"""A model's folder: whole, half there, or a drafter's of another model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import ReplicaError
from replica.hardware.models import KIMI_K26
from replica.machine.model_files import check_draft, is_folder, read_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONFIG = {"num_hidden_layers": 61, "hidden_size": 7168, "vocab_size": 163_840}


def shard(path: Path, n_bytes: int) -> None:
    """A safetensors file of one tensor."""
    head = json.dumps(
        {"w": {"dtype": "U8", "shape": [n_bytes], "data_offsets": [0, n_bytes]}}
    ).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + bytes(n_bytes))


def model(folder: Path, config: dict[str, Any] | None = None) -> Path:
    """A folder that is whole: two files of weights and their index."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config or CONFIG))
    names = ["model-1.safetensors", "model-2.safetensors"]
    for n, name in enumerate(names):
        shard(folder / name, 100 * (n + 1))
    index = {"weight_map": {"a": names[0], "b": names[1], "c": names[1]}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def cut(folder: Path) -> None:
    path = folder / "model-2.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def downloading(folder: Path) -> None:
    place = folder / ".cache/huggingface/download"
    place.mkdir(parents=True)
    (place / "x.incomplete").touch()


def without_index(folder: Path) -> None:
    for path in folder.glob("model*"):
        path.unlink()


def test_a_whole_folder(tmp_path: Path) -> None:
    files = read_model(str(model(tmp_path / "m")))
    assert files.weights_bytes == 300
    assert files.config == CONFIG


def test_a_single_file_needs_no_index(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "model.safetensors.index.json").unlink()
    assert read_model(str(folder)).weights_bytes == 300


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ReplicaError, match="there is no folder") as caught:
        read_model(str(tmp_path / "no"))
    assert caught.value.code == "model-missing"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json is missing"),
        (lambda f: (f / "config.json").write_text("{"), "config.json cannot be read"),
        (lambda f: (f / "config.json").write_text("[" * 100_000), "config.json cannot be read"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json is no JSON object"),
        (
            lambda f: (f / "model-1.safetensors").unlink(),
            "1 files of weights are missing: model-1.safetensors",
        ),
        (cut, "model-2.safetensors has 199 of 200 bytes"),
        (lambda f: (f / "model-2.safetensors").write_bytes(b"\xff" * 20), "is no safetensors file"),
        (lambda f: (f / "model-2.safetensors").write_bytes(b""), "cannot be read or is cut short"),
        (downloading, "1 downloads have not ended"),
        (without_index, "all files of weights are missing: any .safetensors"),
    ],
)
def test_a_folder_that_is_half_there(
    tmp_path: Path, damage: Callable[[Path], object], words: str
) -> None:
    folder = model(tmp_path / "m")
    damage(folder)
    with pytest.raises(ReplicaError) as caught:
        read_model(str(folder))
    assert caught.value.code == "model-incomplete"
    assert words in str(caught.value)
    assert "download it again" in str(caught.value)


def test_a_drafter_is_for_one_target(tmp_path: Path) -> None:
    target = read_model(str(model(tmp_path / "target", {"text_config": CONFIG})))
    fits = {"num_target_layers": 61, "hidden_size": 7168, "vocab_size": 163_840}
    good = read_model(str(model(tmp_path / "good", fits)))
    check_draft(good, target=target, facts=None)
    check_draft(good, target=None, facts=KIMI_K26)
    for n, wrong in enumerate(
        ({"num_target_layers": 48}, {"hidden_size": 4096}, {"vocab_size": 7})
    ):
        other = read_model(str(model(tmp_path / f"other{n}", {**fits, **wrong})))
        with pytest.raises(ReplicaError, match=next(iter(wrong))) as caught:
            check_draft(other, target=target, facts=None)
        assert caught.value.code == "draft-mismatch"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("nvidia/Kimi", False),
        ("/m", True),
        ("./m/n", True),
        ("m", True),
        ("a/b/c", True),
        ("~/m", True),
    ],
)
def test_a_name_of_the_hub_is_no_folder(path: str, expected: bool) -> None:  # noqa: FBT001
    assert is_folder(path) is expected
