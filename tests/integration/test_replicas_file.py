"""Replicas named in a file that is watched: replaced, edited in place, swapped, broken, removed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from router.control.discovery.file import replicas_in, watched_replicas
from router.control.reload import Reloader, Watched
from router.errors import ConfigError
from router.obs.metrics import Counts
from tests.doubles.discovered import Discovered, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def toml(*names: str, more: str = "") -> str:
    return "".join(
        f'[[replica]]\nurl = "http://10.0.0.{name[1:]}:30000"\nid = "{name}"\n{more}\n'
        for name in names
    )


def put(path: Path, text: str) -> None:
    """Replace a file in one step, so that nobody reads half of it."""
    new = path.with_name("new")
    new.write_text(text)
    new.replace(path)


@contextlib.asynccontextmanager
async def watching(path: Path) -> AsyncIterator[tuple[Discovered, Reloader, Counts]]:
    found, counts = Discovered(), Counts()
    group = await asyncio.to_thread(watched_replicas, str(path), found.outlet)
    reloader = await asyncio.to_thread(Reloader, [group], counts, interval_s=0.01)
    reloader.start()
    try:
        yield found, reloader, counts
    finally:
        reloader.stop()


async def test_a_file_that_is_replaced_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(toml("r1", "r2", more='capacity_tokens = 1000\nprofile = "p"'))
    async with watching(path) as (found, _, counts):
        await found.until_named("r1", "r2")
        spec = found.replica("r1").spec
        assert (spec.source, spec.url) == ("file", "http://10.0.0.1:30000")
        assert (spec.capacity_tokens, spec.profile) == (1_000, "p")
        put(path, toml("r2", "r3"))
        await found.until_named("r2", "r3")
        assert found.states()["r1"] == "draining"
        assert counts.reloads["replicas", "done"] == 1


async def test_a_file_that_is_edited_in_place_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps({"replica": [{"url": "http://h1:1"}]}))
    async with watching(path) as (found, _, _):
        await found.until_named("h1:1")
        rows = [{"url": "http://h1:1"}, {"url": "https://[::1]:2", "api_key": "k"}]
        path.write_text(json.dumps({"replica": rows}))
        await found.until_named("h1:1", "::1:2")
        assert found.replica("::1:2").spec.is_tls
        assert found.replica("::1:2").spec.api_key == "k"


async def test_a_config_map_is_followed_through_its_links(tmp_path: Path) -> None:
    for name, rows in (("v1", toml("r1")), ("v2", toml("r2"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "fleet.toml").write_text(rows)
    data, path = tmp_path / "..data", tmp_path / "fleet.toml"
    data.symlink_to("v1")
    path.symlink_to("..data/fleet.toml")
    async with watching(path) as (found, _, _):
        await found.until_named("r1")
        (tmp_path / "..new").symlink_to("v2")
        (tmp_path / "..new").replace(data)
        await found.until_named("r2")


@pytest.mark.parametrize(
    "bad",
    ["", "[[replica]]\n", "replica = 3", "[[replica", toml("r1") + "[[replica]]\nurl='x'\n", None],
    ids=["empty", "no-url", "kind", "cut", "one-of-two", "removed"],
)
async def test_a_file_that_cannot_be_used_changes_nothing(
    tmp_path: Path, bad: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(toml("r1", "r2"))
    async with watching(path) as (found, _, counts):
        before = found.core.fleet.n_changes
        if bad is None:
            path.unlink()
        else:
            put(path, bad)
        await found.until_failed(3)
        assert found.core.fleet.n_changes == before
        assert counts.unusable_files["replicas"]
        assert caplog.text.count("reload-refused") == 1
        put(path, toml("r2"))
        await found.until_named("r2")
        [health] = found.counts.healths
        await until(lambda: not health.is_failing)


async def test_a_file_may_name_nobody_but_has_to_say_so(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(toml("r1"))
    async with watching(path) as (found, _, _):
        put(path, "replica = []\n")
        await found.until_named()
        assert found.failures == 0


async def test_a_file_that_stays_is_heard_each_round_and_read_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(toml("r1"))
    async with watching(path) as (found, reloader, counts):
        [health] = found.counts.healths
        heard_s, before = health.heard_s, found.core.fleet.n_changes
        await until(lambda: health.heard_s > heard_s)
        assert counts.reloads["replicas", "done"] == 0
        reloader.ask()
        await until(lambda: counts.reloads["replicas", "done"] == 1)
        assert found.core.fleet.n_changes == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"`replica`.*write `replica = \[\]` to name none"),
        ("replica = [", "not TOML"),
        ("[[replica]]\nid = 'a'", r"`url` - at `\$.replica\[0\]`"),
        ("[[replica]]\nurl = 3", r"\$\.replica\[0\]\.url"),
        ("[[replica]]\nurl = 'ftp://h:1'", r"replica\[0\]\.url: 'ftp://h:1' is not of the form"),
        ("[[replica]]\nurl = 'http://u:secret@h:1/x'", r"replica\[0\]\.url: 'h:1/x'"),
        ("[[replica]]\nurl = 'http://h:1'\nlease_s = 9", "lease_s"),
        ("[[replica]]\nurl = 'http://h:1'\nid = 'a b'", r"replica\[0\]\.id"),
        ("[[replica]]\nurl = 'http://h:1'\ninflight_max = 0", r"inflight_max"),
        ("[[replica]]\nurl = 'http://h:1'\napi_key = 'a secret'", r"api_key"),
        ("[[replica]]\nurl='http://h:1'\n[[replica]]\nurl='http://h:1'", "'h:1' is named twice"),
    ],
)
def test_a_mistake_is_named_with_its_field(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        replicas_in(str(path))
    assert str(path) in f"{caught.value}"
    assert "secret" not in f"{caught.value}"


def test_a_file_that_is_missing_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        replicas_in(str(tmp_path / "none.toml"))
    large = tmp_path / "large.json"
    large.write_bytes(b" " * (5 << 20))
    with pytest.raises(ConfigError, match="larger than 4 MiB"):
        replicas_in(str(large))
    many = tmp_path / "many.json"
    many.write_text(json.dumps({"replica": [{"url": f"http://h:{n}"} for n in range(1, 2_002)]}))
    with pytest.raises(ConfigError, match="names 2001 replicas; at most 2000 are read"):
        replicas_in(str(many))
    deep = tmp_path / "deep.json"
    deep.write_text('{"replica": ' + "[" * 100_000)
    with pytest.raises(ConfigError, match=r"JSON|nested|replica"):
        replicas_in(str(deep))


@pytest.mark.parametrize("broken", ["n = " + "9" * 5_000, "n = " + "[" * 5_000])
async def test_what_no_reader_takes_does_not_end_the_watching(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(toml("r1"))
    async with watching(path) as (found, _, counts):
        await found.until_named("r1")
        put(path, broken)
        await until(lambda: counts.unusable_files["replicas"])
        assert found.states().keys() == {"r1"}
        put(path, toml("r1", "r2"))
        await found.until_named("r1", "r2")
        assert counts.reloads["replicas", "refused"] == 1


async def test_a_fault_that_nobody_thought_of_is_a_refusal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "any"
    path.write_text("1")
    counts, used = Counts(), []

    def use(found: str) -> str:
        if found == "bad":
            raise KeyError(found)
        used.append(found)
        return "n=1"

    group = Watched("any", (str(path),), path.read_text, use)
    reloader = await asyncio.to_thread(Reloader, [group], counts, interval_s=0.01)
    reloader.start()
    try:
        put(path, "bad")
        await until(lambda: counts.reloads["any", "refused"] == 1)
        assert "reason=\"KeyError: 'bad'\"" in caplog.text
        put(path, "good")
        await until(lambda: used == ["good"])
        assert not counts.unusable_files["any"]
    finally:
        reloader.stop()
