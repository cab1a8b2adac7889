"""Settings of the recording; the salt is never printed, not even when it is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from router.errors import ConfigError
from router.settings import load

if TYPE_CHECKING:
    from pathlib import Path

SALT = "correct horse battery"


def test_nothing_is_recorded_unless_told() -> None:
    resolved = load({})
    assert resolved.settings.record is None
    rows = {key: value for key, value, _ in resolved.rows()}
    assert rows["record"] == "null"
    assert rows["record_salt"] == "not set"


def test_the_salt_is_known_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOMEPORT_RECORD_SALT", SALT)
    resolved = load({"record": str(tmp_path / "a.rec"), "record_mib_max": "2.5"})
    salt = resolved.settings.record_salt
    assert salt is not None
    assert salt.get_secret_value() == SALT
    assert resolved.settings.record_mib_max == 2.5
    rows = {key: (value, source) for key, value, source in resolved.rows()}
    assert rows["record_salt"] == ("set", "environment")
    assert SALT not in repr(resolved) + repr(resolved.rows()) + str(resolved.settings)


@pytest.mark.parametrize("text", ['"short secret"', "1234567890123456789", '["secret secret!"]'])
def test_a_salt_that_is_wrong_is_not_shown_either(tmp_path: Path, text: str) -> None:
    path = tmp_path / "h.toml"
    path.write_text(f"record_salt = {text}\n")
    with pytest.raises(ConfigError, match=r"record_salt = \(secret\) \(from file ") as refused:
        load({}, path)
    assert text.strip('[]"') not in str(refused.value)


def test_a_short_salt_is_told_its_least_length() -> None:
    with pytest.raises(ConfigError, match="must have at least 16 characters"):
        load({"record_salt": "123456789012345"})


@pytest.mark.parametrize("value", ["0", "nan", "inf", "2000000"])
def test_the_limit_is_a_size(value: str) -> None:
    with pytest.raises(ConfigError, match="record_mib_max"):
        load({"record_mib_max": value})
