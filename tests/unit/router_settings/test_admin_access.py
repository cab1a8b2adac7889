"""How a command finds the control port and its key: flags, environment, files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from router.errors import ConfigError
from router.settings import load
from router.settings.admin import AdminAccess, admin_access

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "admin.key"
    path.write_text("the-key-in-the-file\n")
    return str(path)


def test_without_anything_it_is_the_router_on_this_machine() -> None:
    assert admin_access() == AdminAccess("http://127.0.0.1:30080")


def test_flags_go_before_the_environment(monkeypatch: pytest.MonkeyPatch, key_file: str) -> None:
    monkeypatch.setenv("HOMEPORT_ADMIN_URL", "https://router:30080/")
    monkeypatch.setenv("HOMEPORT_ADMIN_KEY", "the-key-in-the-environment")
    monkeypatch.setenv("HOMEPORT_ADMIN_CA_FILE", "ca.pem")
    found = admin_access()
    assert (found.url, found.ca_file) == ("https://router:30080", "ca.pem")
    assert found.key == "the-key-in-the-environment"
    found = admin_access(url="http://other:1", key_file=key_file, ca_file="own.pem")
    assert (found.url, found.ca_file) == ("http://other:1", "own.pem")
    assert found.key == "the-key-in-the-file"
    assert "the-key" not in repr(found)


def test_a_key_may_be_in_the_file_that_the_router_reads(
    monkeypatch: pytest.MonkeyPatch, key_file: str
) -> None:
    monkeypatch.setenv("HOMEPORT_ADMIN_KEY_FILE", key_file)
    assert admin_access().key == "the-key-in-the-file"
    monkeypatch.setenv("HOMEPORT_ADMIN_KEY", "another")
    with pytest.raises(ConfigError, match="are both set: choose one"):
        admin_access()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"url": "router:30080"}, r"--url: 'router:30080' is not of the form"),
        ({"url": "http://me:secret@router:1"}, r"--url: '\.\.\.@router:1' is not"),
        ({"key_file": "/nowhere.key"}, r"--key-file = '/nowhere.key' \(from flag\): No such file"),
        ({"cert_file": "a.pem"}, "--cert-file and --cert-key-file belong together"),
    ],
)
def test_impossible_values_are_named(flags: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as failed:
        admin_access(**flags)
    assert "secret" not in str(failed.value)


def test_a_key_that_fits_no_header_is_refused_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOMEPORT_ADMIN_KEY", "a\nb")
    with pytest.raises(ConfigError, match="HOMEPORT_ADMIN_KEY: must be visible ASCII") as failed:
        admin_access()
    assert "a\nb" not in str(failed.value)


def test_a_router_may_be_started_where_its_operators_variables_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOMEPORT_ADMIN_URL", "http://router:30080")
    monkeypatch.setenv("HOMEPORT_ADMIN_CA_FILE", "ca.pem")
    assert load({}).sources == {}
