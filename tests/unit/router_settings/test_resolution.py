"""Settings: the order of sources, and one clear line for every mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from router.errors import ConfigError
from router.settings import load

if TYPE_CHECKING:
    from pathlib import Path


def test_later_sources_win_and_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "homeport.toml"
    path.write_text('port = 1\npolicy = "sticky"\n[limits]\nconnect_s = 9\ndrain_s = 8\n')
    monkeypatch.setenv("HOMEPORT_PORT", "2")
    monkeypatch.setenv("HOMEPORT_LIMITS__DRAIN_S", "7.5")
    resolved = load({"port": 3, "policy": None, "replica": ()}, path)
    assert (resolved.settings.port, resolved.settings.policy) == (3, "sticky")
    rows = {key: (value, source) for key, value, source in resolved.rows()}
    assert rows["port"] == ("3", "flag")
    assert rows["limits.drain_s"] == ("7.5", "environment")
    assert rows["limits.connect_s"] == ("9.0", f"file {path}")
    assert rows["host"] == ('"127.0.0.1"', "default")


def test_replicas_in_the_environment_are_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOMEPORT_REPLICA", "http://a:1, http://[::1]:2/")
    assert load({}).settings.replica == ("http://a:1", "http://[::1]:2")


def test_aliases_are_a_table_or_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "homeport.toml"
    path.write_text('[aliases]\n"claude-*" = "kimi"\n"gpt-5" = "qwen"\n')
    resolved = load({}, path)
    assert resolved.settings.aliases == ("claude-*=kimi", "gpt-5=qwen")
    [row] = [row for row in resolved.rows() if row[0] == "aliases"]
    assert row[2] == f"file {path}"
    monkeypatch.setenv("HOMEPORT_ALIASES", "a=b, c*=d")
    monkeypatch.setenv("HOMEPORT_ENGINE_PATHS", "/api/*,/model_info")
    settings = load({}, path).settings
    assert settings.aliases == ("a=b", "c*=d")
    assert settings.engine_paths == ("/api/*", "/model_info")
    assert load({"aliases": ("x=y",)}, path).settings.aliases == ("x=y",)


def test_the_file_may_be_named_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "h.toml"
    path.write_text("port = 7\n")
    monkeypatch.setenv("HOMEPORT_CONFIG", str(path))
    assert load({}).settings.port == 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 1", r"prot: is not a setting \(from file"),
        ("[limits]\nconect_s = 1", r"limits\.conect_s: is not a setting \(from file"),
        ("port = 70000", r"port = 70000 \(from file .*65535"),
        ("port = true", "port = True"),
        ("[limits]\nconnect_s = nan", r"limits\.connect_s = nan"),
        ("[limits]\nconnect_s = inf", r"limits\.connect_s = inf"),
        ("[limits]\nconnect_s = -1", "greater than 0"),
        ("limits = 3", "limits = 3"),
        ('policy = "nearest"', "policy = 'nearest'.*choose one of .*home"),
        ('replica = ["ftp://x"]', "not of the form http://HOST:PORT"),
        ('replica = ["http://x"]', "not of the form http://HOST:PORT"),
        ("max_inflight_per_replica = 0", "max_inflight_per_replica = 0"),
        ("port = ", "not TOML"),
        ('session_header = "a b"', "session_header = 'a b'"),
        ('aliases = ["a"]', "aliases = 'a'.*not of the form NAME=MODEL"),
        ('[aliases]\n"a*b" = "m"', "NAME may end with"),
        ('[aliases]\na = "m*"', "NAME=MODEL"),
        ('default_model = ""', "default_model = ''"),
        ('engine_paths = ["x"]', "engine_paths = 'x'.*not a path"),
        ('engine_paths = ["/a*b"]', "not a path such as"),
    ],
)
def test_nonsense_in_the_file_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as refused:
        load({}, path)
    assert "\n" not in str(refused.value)


def test_a_missing_file_and_an_unknown_variable_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        load({}, tmp_path / "nowhere.toml")
    monkeypatch.setenv("HOMEPORT_PROT", "1")
    with pytest.raises(ConfigError, match="environment: HOMEPORT_PROT is not a setting"):
        load({})
