"""What a supervisor takes from its environment, and what of it an engine gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import ReplicaError
from replica.supervise.settings import engine_environment, router_accesses

if TYPE_CHECKING:
    from pathlib import Path

URL = "http://10.0.0.2:30080"


def test_an_engine_gets_the_environment_without_the_keys_to_routers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOMEPORT_ADMIN_KEY", "secret")
    monkeypatch.setenv("HOMEPORT_ADMIN_KEY_FILE", "/run/key")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    given = engine_environment()
    assert given["NCCL_DEBUG"] == "WARN"
    assert not {"HOMEPORT_ADMIN_KEY", "HOMEPORT_ADMIN_KEY_FILE"} & given.keys()


def test_a_key_comes_from_the_flag_else_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "flag").write_text("of-the-flag\n")
    (tmp_path / "file").write_text("of-the-file\n")

    def key(flag: Path | None = None) -> str | None:
        return router_accesses((URL,), key_file=flag, ca_file=None)[0].key

    assert key() is None
    monkeypatch.setenv("HOMEPORT_ADMIN_KEY", "of-the-variable")
    assert key() == "of-the-variable"
    monkeypatch.setenv("HOMEPORT_ADMIN_KEY_FILE", str(tmp_path / "file"))
    assert key() == "of-the-file"
    assert key(tmp_path / "flag") == "of-the-flag"
    (tmp_path / "flag").write_text("two words")
    with pytest.raises(ReplicaError, match="visible ASCII"):
        key(tmp_path / "flag")


def test_urls_are_control_ports_each_once_and_passwords_are_not_shown() -> None:
    given = (f"{URL}/", URL, "https://[::1]:1")
    urls = [each.url for each in router_accesses(given, key_file=None, ca_file=None)]
    assert urls == [URL, "https://[::1]:1"]
    for wrong in (
        "10.0.0.2:30080",
        "ftp://x:1",
        f"{URL}/fleet",
        "http://u:secret@x:1",
        "http://x:y",
    ):
        with pytest.raises(ReplicaError, match="--router") as caught:
            router_accesses((wrong,), key_file=None, ca_file=None)
        assert "secret" not in str(caught.value)


def test_a_ca_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("no certificate")
    with pytest.raises(ReplicaError, match="--router-ca-file"):
        router_accesses(("https://x:1",), key_file=None, ca_file=tmp_path / "ca")
