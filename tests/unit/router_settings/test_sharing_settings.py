"""Settings of what routers share: where Redis is, and a password that nothing shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from router.errors import ConfigError
from router.settings import load

if TYPE_CHECKING:
    from pathlib import Path


def test_the_password_comes_from_a_file_and_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("se-cr-et\n")
    found = load({"redis_url": "rediss://cache:6380/1", "redis_password_file": str(file)})
    assert found.settings.redis_password is not None
    assert found.settings.redis_password.get_secret_value() == "se-cr-et"
    rows = {key: value for key, value, _ in found.rows()}
    assert rows["redis_password"] == "set"
    assert "se-cr-et" not in str(rows)


def test_the_environment_reaches_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOMEPORT_REDIS_URL", "redis+cluster://a:1,b:2")
    monkeypatch.setenv("HOMEPORT_SHARING__READ_MS_MAX", "5")
    settings = load({}).settings
    assert (settings.redis_url, settings.sharing.read_ms_max) == ("redis+cluster://a:1,b:2", 5.0)


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        load({"redis_url": "redis://user:se-cr-et@cache:6379"})
    assert "redis_password_file" in str(refused.value)
    assert "se-cr-et" not in str(refused.value)


@pytest.mark.parametrize("publish_ms", ["50", "400", "nan"])
def test_words_go_round_four_to_ten_times_a_second(
    publish_ms: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOMEPORT_SHARING__PUBLISH_MS", publish_ms)
    with pytest.raises(ConfigError, match="publish_ms"):
        load({})
