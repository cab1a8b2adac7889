"""``homeport fleet`` against a router process: what it does, prints, refuses, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.doubles.agents import chat_body
from tests.doubles.called import called
from tests.doubles.certificates import Authority
from tests.doubles.processes import COMMAND, Running, emulate, end, running, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = "hp-a-key-of-the-control-port-0000"


@pytest.fixture(scope="module")
def replica() -> Iterator[Running]:
    started = emulate(time_scale=1.0)
    try:
        started.wait_ready()
        yield started
    finally:
        end(started)


@pytest.fixture(scope="module")
def router(replica: Running) -> Iterator[Running]:
    """A router with r1 and r2 in its fleet."""
    with running("serve", "--port", "0", "--admin-port", "0", "--probe-s", "0.1") as started:
        for name in ("r1", "r2"):
            httpx2.post(f"{started.admin_url}/replicas", json={"url": replica.url, "id": name})
        until(lambda: states(started) == {"r1": "ready", "r2": "ready"})
        yield started


def states(router: Running) -> dict[str, str]:
    return {row["id"]: row["state"] for row in fleet_rows(router)}


def fleet_rows(router: Running) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = httpx2.get(f"{router.admin_url}/fleet").json()["replicas"]
    return rows


def environment(router: Running | None) -> dict[str, str]:
    return {} if router is None else {"HOMEPORT_ADMIN_URL": router.admin_url}


def fleet(router: Running | None, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return called("fleet", *words, **environment(router), **more)


def process(router: Running, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "fleet", *words],
        env=os.environ | environment(router),
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )


def done(router: Running, *words: str) -> str:
    """What a command that goes well prints."""
    ran = fleet(router, *words)
    assert (ran.returncode, ran.stderr) == (0, ""), ran
    return ran.stdout


def answered(router: Running, *words: str) -> Any:  # noqa: ANN401  (JSON)
    return json.loads(done(router, *words, "--json"))


def ask(router: Running, key: str) -> str:
    answer = httpx2.post(
        f"{router.url}/v1/chat/completions",
        content=chat_body("hello", stream=False),
        headers={"content-type": "application/json", "x-session-id": key.encode()},
        timeout=20,
    )
    return answer.headers["x-homeport-replica"]


def test_a_process_prints_and_exits_as_a_call_does(router: Running) -> None:
    for words, code in (("ls", "--json"), 0), (("show", "r9"), 1), (("weight", "r1", "0"), 2):
        ran, same = process(router, *words), fleet(router, *words)
        assert (ran.returncode, ran.stderr) == (code, same.stderr)
        assert bool(ran.stdout) is bool(same.stdout) is (code == 0)
    table = process(router, "ls").stdout
    assert max(map(len, table.splitlines())) > 80  # a pipe is no narrow terminal


def test_the_fleet_and_its_sessions_are_shown(router: Running) -> None:
    ask(router, "shown/1")
    home = answered(router, "session", "shown/1")["home"]
    table = done(router, "ls")
    for word in ("r1", "r2", "ready", "registered", "0/none", "2 of 2 replicas ready, policy home"):
        assert word in table
    assert [row["id"] for row in answered(router, "ls")["replicas"]] == ["r1", "r2"]
    sheet = done(router, "show", home)
    assert "capacity_tokens" in sheet
    assert "shown/1" in sheet
    listed = done(router, "sessions", "--replica", home, "--rows", "5")
    assert "shown/1" in listed
    assert answered(router, "sessions", "--replica", "r9") == {"sessions": []}
    assert "new" in done(router, "session", "shown/1")


def test_a_replica_is_added_weighed_limited_forgotten_and_removed(
    router: Running, replica: Running
) -> None:
    said = done(router, "add", replica.url, "--id", "r3", "--limit", "7", "--reason", "more room")
    assert said == f"r3 is starting at {replica.url}\n"
    until(lambda: states(router)["r3"] == "ready")
    assert done(router, "weight", "r3", "0.5") == "r3 has weight 0.5\n"
    assert done(router, "limit", "r3", "2") == "r3 has a limit of 2, 0 in flight\n"
    assert done(router, "limit", "r3", "none") == "r3 has a limit of 7, 0 in flight\n"
    assert done(router, "forget", "r3") == "r3 is believed to hold 0 tokens\n"
    row = next(r for r in answered(router, "ls")["replicas"] if r["id"] == "r3")
    assert (row["source"], row["weight"], row["inflight_max"]) == ("operator", 0.5, 7)
    assert done(router, "remove", "r3", "--actor", "ada") == "r3 is removed\n"
    rows = [r for r in answered(router, "changes")["changes"] if r["replica"] == "r3"]
    assert [r["event"] for r in rows] == ["remove", "change", "change", "change", "add"]
    assert (rows[0]["who"], rows[-1]["why"]) == ("ada", "more room")
    user, at, host = rows[-1]["who"].partition("@")
    assert user
    assert at
    assert host
    assert "more room" in done(router, "changes", "--rows", "10")


def test_a_session_is_pinned_moved_and_let_go(router: Running) -> None:
    key = "pinned/1 ü?#%"
    home = ask(router, key)
    other = "r2" if home == "r1" else "r1"
    assert done(router, "pin", key, other, "--for", "1h30m") == (
        f"{key} is pinned to {other} for 1h 30m\n"
    )
    assert done(router, "move", key, home) == f"{key} has its home at {home}\n"
    assert done(router, "pin", key, other) == f"{key} is pinned to {other} until it is unpinned\n"
    assert answered(router, "session", key)["pinned"] == other
    assert done(router, "unpin", key) == f"{key} is not pinned; its home is {other}\n"


def test_a_drain_that_waits_ends_when_nothing_is_in_flight(
    router: Running, replica: Running
) -> None:
    """A request runs on r4 alone; it is let go while the command waits."""
    done(router, "add", replica.url, "--id", "r4")
    until(lambda: states(router)["r4"] == "ready")
    ask(router, "long")
    done(router, "pin", "long", "r4")
    body = chat_body("long", max_tokens=20_000, homeport_emulate={"output_tokens": 20_000})
    headers = {"content-type": "application/json", "x-session-id": "long"}
    url = f"{router.url}/v1/chat/completions"
    with httpx2.stream("POST", url, content=body, headers=headers, timeout=30) as answer:
        chunks = answer.iter_bytes()
        next(chunks)
        assert answer.headers["x-homeport-replica"] == "r4"
        late = fleet(router, "drain", "r4", "--wait", "--wait-max", "1s")
        assert late.returncode == 1
        assert "r4: 1 in flight" in late.stderr
        assert "r4 still has 1 in flight after 1.0 s; it goes on draining" in late.stderr
        command = subprocess.Popen(
            [*COMMAND, "fleet", "drain", "r4", "--remove", "--wait"],
            env=os.environ | environment(router),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert command.stderr is not None
        assert command.stderr.readline() == "r4: 1 in flight\n"
    said, told = command.communicate(timeout=30)
    assert (command.returncode, said) == (0, "r4 is removed\n"), told
    assert "r4" not in states(router)


def test_a_drain_is_told_how_it_ends_and_taken_back(router: Running) -> None:
    until(lambda: all(row["inflight"] == 0 for row in fleet_rows(router)))
    assert done(router, "drain", "r1") == (
        "r1 is draining, 0 in flight; it stays until undrained\n"
    )
    assert "draining" in done(router, "ls")
    assert done(router, "drain", "r1", "--deadline", "5m") == (
        "r1 is draining, 0 in flight; it is removed in 5m 00s at the latest\n"
    )
    assert "draining (removed in " in done(router, "ls")
    assert done(router, "undrain", "r1") == "r1 is starting\n"
    until(lambda: states(router)["r1"] == "ready")
    assert done(router, "drain", "r1", "--wait") == "r1 is drained, nothing in flight\n"
    done(router, "undrain", "r1")
    until(lambda: states(router)["r1"] == "ready")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("drain r9", 1, "fleet drain: no replica 'r9' is known to this router; `homeport fleet ls` lists"),
        ("show r9", 1, "fleet show: no replica 'r9' is known"),
        ("session nobody", 1, "no session 'nobody' is known to this router; `homeport fleet sessions`"),
        ("pin nobody r1", 1, "no session 'nobody'"),
        ("add http://nowhere", 1, "url: 'http://nowhere' is not of the form"),
        ("ls --key-file /nowhere", 2, "--key-file = '/nowhere' (from flag): No such file"),
        ("ls --url nowhere", 2, "--url: 'nowhere' is not of the form http://HOST:PORT"),
        ("ls --cert-file x", 2, "belong together"),
        ("ls --url https://127.0.0.1:1 --ca-file /nowhere", 2, "cannot use the certificates in /nowhere"),
        ("drain", 2, "fleet drain: Missing argument 'REPLICA'"),
        ("drain r1 --deadline 5", 2, "'5' is no duration; write 30s"),
        ("drain r1 --deadline 25h", 2, "Invalid value for '--deadline': '25h' is not from 0.001s to 1d"),
        ("drain r1 --wait-max 5m", 2, "Invalid value for --wait-max: says how long --wait waits; add --wait"),
        ("pin s r1 --for 0.5s", 2, "Invalid value for '--for': '0.5s' is not from 1s to 30d"),
        ("pin s r1 --for 31d", 2, "Invalid value for '--for': '31d' is not from 1s to 30d"),
        ("add http://h:1 --id a/b", 2, "Invalid value for '--id': 'a/b' is no id; use 1 to 128 letters, digits and . _ - : [ ]"),
        ("weight r1 0", 2, "'0' is no number from 0.01 to 100"),
        ("limit r1 many", 2, "'many' is neither a number"),
        ("drain r1 --admin-key x", 2, "No such option: --admin-key"),
        ("sessions --rows 0", 2, "--rows"),
        ("drian r1", 2, "No such command 'drian'"),
        ("", 2, "Missing command"),
        ("ls --url http://127.0.0.1:1", 1, "cannot reach the router's control API at http://127.0.0.1:1: Connection refused; is it running"),
    ],
)  # fmt: skip
def test_a_mistake_or_a_refusal_is_one_line(
    router: Running, words: str, code: int, said: str
) -> None:
    ran = fleet(router, *words.split())
    assert (ran.returncode, ran.stdout) == (code, "")
    assert said in ran.stderr
    assert ran.stderr.startswith("homeport fleet")
    assert ran.stderr.count("\n") == 1


def test_a_reason_is_one_line_of_bounded_length(router: Running) -> None:
    for reason in ("a\nb", "x" * 501):
        ran = fleet(router, "drain", "r1", "--reason", reason)
        assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
        assert "--reason: must be one line of at most 500 characters" in ran.stderr
    assert states(router)["r1"] == "ready"


def test_what_is_no_control_port_is_said_to_be_none(router: Running, replica: Running) -> None:
    for url in (router.url, replica.url):
        ran = fleet(None, "ls", "--url", url)
        assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
        assert f"{url} answers 404: it is not the control port" in ran.stderr


def test_help_explains_the_key_and_the_exit_codes() -> None:
    ran = fleet(None, "--help")
    assert ran.returncode == 0
    for word in ("HOMEPORT_ADMIN_URL", "HOMEPORT_ADMIN_KEY_FILE", "Exit codes", "drain", "pin"):
        assert word in ran.stdout
    ran = fleet(None, "drain", "--help")
    assert ran.returncode == 0
    for word in ("--deadline", "--remove", "--wait", "--reason", "--json"):
        assert word in ran.stdout


def test_a_port_with_a_key_and_tls_is_reached_by_files(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    secret = tmp_path / "admin.key"
    secret.write_text(f"{KEY}\n")
    flags = ["--admin-key-file", str(secret), "--port", "0", "--admin-port", "0"]
    settings = tmp_path / "homeport.toml"
    settings.write_text(
        f'[tls]\ncert_file = "{pair.cert}"\nkey_file = "{pair.key}"\ncontrol = true\n'
    )
    with running("serve", *flags, "--config", str(settings)) as router:
        files = {"HOMEPORT_ADMIN_CA_FILE": authority.cert, "HOMEPORT_ADMIN_KEY_FILE": str(secret)}
        ran = fleet(router, "ls", **files)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "no replicas are known" in ran.stdout
        ran = fleet(router, "ls", HOMEPORT_ADMIN_KEY_FILE=str(secret))
        assert ran.returncode == 1
        assert "its certificate is not trusted" in ran.stderr
        assert "--ca-file" in ran.stderr
        ran = fleet(router, "ls", HOMEPORT_ADMIN_CA_FILE=authority.cert)
        assert ran.returncode == 1
        assert "wants its admin key: set HOMEPORT_ADMIN_KEY_FILE" in ran.stderr
        wrong = fleet(
            router, "ls", HOMEPORT_ADMIN_CA_FILE=authority.cert, HOMEPORT_ADMIN_KEY="another"
        )
        assert wrong.returncode == 1
        assert "does not know this admin key" in wrong.stderr
        assert KEY not in ran.stderr + wrong.stderr
