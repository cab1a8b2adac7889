"""Commands about keys, in this process: nothing they print holds a secret."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from router.cli import check, key, serve
from router.tenants.keys import hash_of
from tests.doubles.processes import running

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TEAM = "hp-planted-secret-of-the-team-00000000"
ADMIN = "hp-planted-secret-of-the-admins-000000"
REPLICA = "planted-secret-of-the-replicas-000000"
SALT = "planted-secret-salt-of-recordings-0000"
SECRETS = (TEAM, ADMIN, REPLICA, SALT)


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    """Flags that set every secret."""
    (tmp_path / "tenants.toml").write_text(f'[tenants.team]\nkeys = ["{hash_of(TEAM)}"]\n')
    (tmp_path / "admin.key").write_text(f"{ADMIN}\n")
    monkeypatch.setenv("HOMEPORT_REPLICA_API_KEY", REPLICA)
    return (
        *("--admin-key-file", str(tmp_path / "admin.key"), "--record-salt", SALT),
        *("--tenants-file", str(tmp_path / "tenants.toml")),
    )


def test_check_lists_secrets_only_as_set(
    words: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(words) == 0
    said = capsys.readouterr()
    rows = {line.split()[0]: line.split()[1:] for line in said.out.splitlines()}
    assert rows["admin_key"] == ["set", "file", str(tmp_path / "admin.key")]
    assert rows["replica_api_key"] == ["set", "environment"]
    assert rows["record_salt"] == ["set", "flag"]
    assert rows["tls.handshake_s"] == ["10.0", "default"]
    assert rows["tls.key_file"] == ["null", "default"]
    assert not [secret for secret in SECRETS if secret in said.out + said.err]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--tenants-file", "{}/bad.toml"), "bad.toml, line 2: tenants.a.keys[0] (not shown)"),
        (("--tenants-file", "{}/none.toml"), "none.toml: No such file"),
        (("--admin-key", ADMIN), "admin_key and admin_key_file are both set"),
        (("--admin-key-file", "{}/none"), "/none' (from flag): No such file"),
        (("--admin-key-file", "{}/two"), "the file must hold one word"),
        (("--admin-key-file", "{}/short"), "admin_key = (secret) (from file "),
        (("--replica-api-key", f"{REPLICA} x"), "replica_api_key = (secret) (from flag)"),
        (("--replica", f"http://u:{REPLICA}@h:1"), "'http://...@h:1' (from flag)"),
        (("--config", "{}/half.toml"), "tls: cert_file and key_file belong together"),
        (("--config", "{}/tls.toml"), "TLS file /nowhere.pem: No such file"),
        (("--config", "{}/ca.toml"), "TLS file /nowhere.pem: No such file"),
        (("--config", "{}/secret.toml"), "admin_key = (secret) (from file "),
    ],
)
def test_what_cannot_be_used_is_one_line(
    words: Sequence[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, str],
    said: str,
) -> None:
    for name, text in (
        ("bad.toml", f"[tenants.a]\nkeys = ['{TEAM}']\n"),
        ("two", f"{ADMIN} {ADMIN}"),
        ("short", "a-short-secret"),
        ("half.toml", "[tls]\ncert_file = 'x'\n"),
        ("tls.toml", "[tls]\ncert_file = '/nowhere.pem'\nkey_file = '/nowhere.key'\n"),
        ("ca.toml", "[replica_tls]\nca_file = '/nowhere.pem'\n"),
        ("secret.toml", f"admin_key = ['{ADMIN}']\n"),
    ):
        (tmp_path / name).write_text(text)
    assert check([*words, more[0], more[1].format(tmp_path)]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert len(told.err.strip().splitlines()) == 1
    assert not [secret for secret in (*SECRETS, "a-short-secret") if secret in told.out + told.err]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "homeport.internal"])
def test_beyond_loopback_the_control_port_needs_a_key(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(["--admin-host", host, "--port", "0", "--admin-port", "0"]) == 2
    told = capsys.readouterr().err
    assert f"admin_host = {host!r} (from flag)" in told
    assert "set admin_key_file or admin_key" in told
    assert len(told.strip().splitlines()) == 1
    assert check(["--admin-host", host, "--admin-key", ADMIN]) == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_on_loopback_it_needs_none(host: str) -> None:
    assert check(["--admin-host", host]) == 0


def test_with_a_key_the_control_port_may_listen_anywhere() -> None:
    words = ("--admin-host", "0.0.0.0", "--admin-key", ADMIN, "--port", "0", "--admin-port", "0")
    with running("serve", *words) as started:
        assert started.ready


def test_a_key_is_made_and_hashed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert key(["new", "team-a"]) == 0
    lines = capsys.readouterr().out.splitlines()
    made = lines[0]
    assert made.startswith("hp-")
    assert lines[-2:] == ["[tenants.team-a]", f'keys = ["{hash_of(made)}"]']
    assert "\n".join(lines).count(made) == 1
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{made}\n"))
    assert key(["hash"]) == 0
    assert capsys.readouterr().out.strip() == hash_of(made)
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    assert key(["hash"]) == 2
    assert key(["new", "a b"]) == 2
    assert key(["gnu"]) == 2
    assert key(["new", "a.b"]) == 0
    assert '[tenants."a.b"]' in capsys.readouterr().out
