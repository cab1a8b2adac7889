"""What an operator does to a running fleet, over the control API."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.doubles.agents import chat_body
from tests.doubles.processes import COMMAND, Running, emulate, end, running, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = "a/b ü"
QUOTED = "a%2Fb%20%C3%BC"


@pytest.fixture(scope="module")
def replica() -> Iterator[Running]:
    started = emulate()
    try:
        started.wait_ready()
        yield started
    finally:
        end(started)


@pytest.fixture
def router() -> Iterator[Running]:
    with running("serve", "--port", "0", "--admin-port", "0", "--probe-s", "0.1") as started:
        yield started


@pytest.fixture
def admin(router: Running, replica: Running) -> Iterator[httpx2.Client]:
    """A control API whose fleet is r1 and r2, both ready."""
    with httpx2.Client(base_url=router.admin_url, timeout=10) as client:
        for name in ("r1", "r2"):
            client.post("/replicas", json={"url": replica.url, "id": name})
        until(lambda: set(states(client).values()) == {"ready"})
        yield client


def states(admin: httpx2.Client) -> dict[str, str]:
    return {row["id"]: row["state"] for row in admin.get("/fleet").json()["replicas"]}


def row(admin: httpx2.Client, name: str) -> dict[str, Any]:
    return next(r for r in admin.get("/fleet").json()["replicas"] if r["id"] == name)


def ask(router: Running, key: str = KEY, text: str = "hello") -> str:
    """One turn of a session; answers where it was served and why."""
    answer = httpx2.post(
        f"{router.url}/v1/chat/completions",
        content=chat_body(text, stream=False),
        headers={"content-type": "application/json", "x-session-id": key.encode()},
        timeout=20,
    )
    assert answer.status_code == 200, answer.text
    return f"{answer.headers['x-homeport-replica']} {answer.headers['x-homeport-reason']}"


def changes(admin: httpx2.Client) -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    rows = admin.get("/changes").json()["changes"]
    return [(r["event"], r["replica"] or r["session"], r["before"], r["after"]) for r in rows]


def test_a_session_is_pinned_moved_and_let_go(router: Running, admin: httpx2.Client) -> None:
    home = ask(router).split()[0]
    other = "r2" if home == "r1" else "r1"
    pinned = admin.put(f"/sessions/{QUOTED}/pin", json={"replica": other, "for_s": 600})
    assert pinned.status_code == 200
    assert pinned.json() | {"pin_left_s": 0} == {
        "key": KEY,
        "home": other,
        "pinned": other,
        "pin_left_s": 0,
    }
    assert 590 < pinned.json()["pin_left_s"] <= 600
    assert ask(router) == f"{other} pinned"
    assert admin.get(f"/sessions/{QUOTED}").json()["pinned"] == other
    moved = admin.post(f"/sessions/{QUOTED}/move", json={"replica": home}).json()
    assert (moved["home"], moved["pinned"]) == (home, None)
    assert ask(router) == f"{home} home"
    admin.put(f"/sessions/{QUOTED}/pin", json={"replica": home})
    let_go = admin.delete(f"/sessions/{QUOTED}/pin").json()
    assert let_go == {"key": KEY, "home": home, "pinned": None, "pin_left_s": None}
    assert ask(router) == f"{home} home"
    assert [event for event, *_ in changes(admin)] == ["unpin", "pin", "move", "pin"]


def test_weight_and_limit_are_set_and_taken_back(router: Running, admin: httpx2.Client) -> None:
    changed = admin.patch("/replicas/r1", json={"weight": 0.01, "inflight_max": 3}).json()
    assert (changed["weight"], changed["inflight_max"]) == (0.01, 3)
    assert {ask(router, f"s{n}").split()[0] for n in range(6)} == {"r2"}
    assert (row(admin, "r1")["weight"], row(admin, "r1")["inflight_max"]) == (0.01, 3)
    back = admin.patch("/replicas/r1", json={"weight": 1, "inflight_max": None}).json()
    assert (back["weight"], back["inflight_max"]) == (1.0, None)
    assert "r1" in {ask(router, f"t{n}").split()[0] for n in range(8)}
    assert changes(admin) == [
        (
            "change",
            "r1",
            {"weight": 0.01, "inflight_max": 3},
            {"weight": 1.0, "inflight_max": None},
        ),
        (
            "change",
            "r1",
            {"weight": 1.0, "inflight_max": None},
            {"weight": 0.01, "inflight_max": 3},
        ),
    ]


def test_a_drain_may_be_taken_back_or_end_with_removal(admin: httpx2.Client) -> None:
    drained = admin.post("/replicas/r1/drain", json={"deadline_s": 300}).json()
    assert drained["state"] == "draining"
    assert drained["drain"]["remove"] is False
    assert 299 < drained["drain"]["left_s"] <= 300
    assert admin.post("/replicas/r1/undrain").json()["drain"] is None
    until(lambda: states(admin) == {"r1": "ready", "r2": "ready"})
    assert admin.post("/replicas/r1/drain", json={"remove": True}).status_code == 200
    until(lambda: states(admin) == {"r2": "ready"})
    events = [(event, after.get("remove")) for event, _, _, after in changes(admin)]
    assert events == [("drain", True), ("undrain", None), ("drain", False)]


def test_what_a_source_lets_go_is_not_undrained_but_added(tmp_path: Path, replica: Running) -> None:
    file = tmp_path / "replicas.toml"
    file.write_text(f'[[replica]]\nid = "r1"\nurl = "{replica.url}"\n')
    settings = tmp_path / "homeport.toml"
    settings.write_text(f'[discovery]\nfile = "{file}"\n')
    flags = ("--config", str(settings), "--port", "0", "--admin-port", "0", "--probe-s", "0.1")
    body = chat_body("long", max_tokens=100_000, homeport_emulate={"output_tokens": 100_000})
    with (
        running("serve", *flags) as router,
        httpx2.Client(base_url=router.admin_url, timeout=10) as admin,
    ):
        until(lambda: states(admin) == {"r1": "ready"})
        assert row(admin, "r1")["sources"] == ["file"]
        with httpx2.stream(
            "POST",
            f"{router.url}/v1/chat/completions",
            content=body,
            headers={"content-type": "application/json"},
            timeout=30,
        ) as answer:
            chunks = answer.iter_bytes()
            next(chunks)
            file.write_text("replica = []\n")
            until(lambda: states(admin) == {"r1": "draining"})
            refused = admin.post("/replicas/r1/undrain")
            assert refused.status_code == 409
            assert refused.json()["error"]["code"] == "drained-by-source"
            assert changes(admin) == []
            added = {"url": replica.url, "id": "r1", "source": "operator"}
            assert admin.post("/replicas", json=added | {"lease_s": 5}).status_code == 400
            assert admin.post("/replicas", json=added).status_code == 200
            until(lambda: states(admin) == {"r1": "ready"})
            assert row(admin, "r1")["sources"] == ["operator"]


def test_a_cache_is_forgotten(router: Running, admin: httpx2.Client) -> None:
    home = ask(router, text="word " * 4_000).split()[0]
    assert row(admin, home)["held_tokens"] > 1_000
    assert admin.post(f"/replicas/{home}/forget").json()["held_tokens"] == 0
    assert row(admin, home)["held_tokens"] == 0
    [(event, replica, before, after)] = changes(admin)
    assert (event, replica, after) == ("forget", home, {"held_tokens": 0})
    assert before["held_tokens"] > 1_000


def test_who_and_why_are_logged_in_one_line_and_kept(router: Running, admin: httpx2.Client) -> None:
    headers = {"x-homeport-actor": "ada@ops1", "x-homeport-reason": "from the header"}
    admin.post("/replicas/r1/drain", headers=headers)
    admin.post("/replicas/r1/undrain", headers=headers, json={"why": 'a "new"\ndriver'})
    admin.patch("/replicas/r2", json={"weight": 2})
    said = [(r["event"], r["who"], r["why"]) for r in admin.get("/changes").json()["changes"]]
    assert said == [
        ("change", "127.0.0.1", None),
        ("undrain", "ada@ops1", 'a "new"\ndriver'),
        ("drain", "ada@ops1", "from the header"),
    ]
    router.wait_said(" operator event=change")
    lines = [line.split(" operator ", 1)[1] for line in router.lines if " operator event" in line]
    assert lines[0].startswith('event=drain replica=r1 session=- before={"state":"ready"} after={')
    assert lines[0].endswith(' who="ada@ops1" why="from the header"')
    assert lines[1].endswith(r' why="a \"new\"\ndriver"')
    assert lines[2].endswith(' who="127.0.0.1" why=-')
    assert 'homeport_operator_changes_total{event="undrain"} 1.0' in admin.get("/metrics").text
    newest = admin.get("/changes?limit=1").json()["changes"]
    assert [(r["number"], r["event"]) for r in newest] == [(3, "change")]


def test_asked_again_nothing_changes(
    router: Running, admin: httpx2.Client, replica: Running
) -> None:
    ask(router)
    for _ in range(2):
        for method, path, body in (
            ("PATCH", "/replicas/r1", {"weight": 2, "inflight_max": 9}),
            ("PUT", f"/sessions/{QUOTED}/pin", {"replica": "r1"}),
            ("POST", "/replicas/r2/drain", {}),
            ("POST", "/replicas", {"url": replica.url, "id": "r3", "source": "operator"}),
        ):
            assert admin.request(method, path, json=body).status_code in (200, 201)
            if path == "/replicas":
                until(lambda: states(admin)["r3"] == "ready")
    noted = [
        (event, name) for event, name, before, _ in changes(admin) if before.get("url") is None
    ]
    assert noted == [("add", "r3"), ("drain", "r2"), ("pin", KEY), ("change", "r1")]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", "/replicas/r9/drain", {}, 404, "unknown-replica: no replica 'r9'"),
        ("POST", "/replicas/r9/undrain", {}, 404, "unknown-replica"),
        ("POST", "/replicas/r9/forget", {}, 404, "unknown-replica"),
        ("PATCH", "/replicas/r9", {"weight": 2}, 404, "unknown-replica"),
        ("PATCH", "/replicas/r1", {}, 400, "bad-request: change: give weight, inflight_max"),
        ("PATCH", "/replicas/r1", {"weight": 0}, 400, "$.weight"),
        ("PATCH", "/replicas/r1", {"weight": None}, 400, "$.weight"),
        ("PATCH", "/replicas/r1", {"weight": 100.5}, 400, "$.weight"),
        ("PATCH", "/replicas/r1", {"inflight_max": 0}, 400, "$.inflight_max"),
        ("PATCH", "/replicas/r1", {"limit": 5}, 400, "unknown field `limit`"),
        ("PATCH", "/replicas/r1", {"weight": 2, "why": "x" * 501}, 400, "$.why"),
        ("POST", "/replicas/r1/drain", {"deadline_s": -1}, 400, "$.deadline_s"),
        ("POST", "/replicas/r1/drain", {"remove": 1}, 400, "$.remove"),
        ("POST", "/replicas/r1/undrain", {"remove": True}, 400, "unknown field `remove`"),
        ("POST", "/replicas", {"url": "http://a:1", "source": "static"}, 400, "$.source"),
        ("PUT", "/sessions/s/pin", {}, 400, "field `replica`"),
        ("PUT", "/sessions/s/pin", {"replica": "r9"}, 404, "unknown-replica"),
        ("PUT", "/sessions/s/pin", {"replica": "r1", "for_s": 0}, 400, "$.for_s"),
        ("PUT", "/sessions/none/pin", {"replica": "r1"}, 404, "unknown-session: no session 'none'"),
        ("PUT", "/sessions/s/pin", {"replica": "r2"}, 409, "replica-not-usable: replica 'r2' is draining"),
        ("POST", "/sessions/s/move", {"replica": "r2"}, 409, "replica-not-usable"),
        ("POST", "/sessions/none/move", {"replica": "r1"}, 404, "unknown-session"),
        ("DELETE", "/sessions/none/pin", None, 404, "unknown-session"),
        ("GET", "/changes?limit=0", None, 400, "limit"),
        ("POST", "/sessions/s", {}, 405, "takes GET"),
    ],
)  # fmt: skip
def test_mistakes_name_what_is_wrong_and_change_nothing(
    shared: tuple[httpx2.Client, list[Any]],
    *,
    method: str,
    path: str,
    body: dict[str, Any] | None,
    status: int,
    said: str,
) -> None:
    admin, before = shared
    answer = (
        admin.request(method, path, json=body) if body is not None else admin.request(method, path)
    )
    error = answer.json()["error"]
    assert (answer.status_code, said in f"{error['code']}: {error['message']}") == (status, True), (
        error
    )
    assert changes(admin) == before


@pytest.fixture(scope="module")
def shared(replica: Running) -> Iterator[tuple[httpx2.Client, list[Any]]]:
    """One router for all mistakes: r1 is ready, r2 drains, s is a session; and what was changed so far."""
    with (
        running("serve", "--port", "0", "--admin-port", "0", "--probe-s", "0.1") as router,
        httpx2.Client(base_url=router.admin_url, timeout=10) as client,
    ):
        for name in ("r1", "r2"):
            client.post("/replicas", json={"url": replica.url, "id": name})
        until(lambda: set(states(client).values()) == {"ready"})
        client.post("/replicas/r2/drain")
        ask(router, "s")
        yield client, changes(client)


@pytest.mark.parametrize("header", ["x-homeport-actor", "x-homeport-reason"])
def test_a_header_that_is_no_text_is_refused(
    shared: tuple[httpx2.Client, list[Any]], header: str
) -> None:
    admin, before = shared
    for value in (b"x" * 600, b"a\tb", b"\xff\xfe"):
        answer = admin.post("/replicas/r1/drain", headers={header.encode(): value})
        assert answer.status_code == 400, value
        assert header in answer.json()["error"]["message"]
    assert changes(admin) == before


def test_a_weight_that_nobody_would_heed_is_refused(replica: Running) -> None:
    flags = ("--policy", "round_robin", "--port", "0", "--admin-port", "0")
    with (
        running("serve", *flags, "--replica", replica.url) as router,
        httpx2.Client(base_url=router.admin_url) as admin,
    ):
        name = admin.get("/fleet").json()["replicas"][0]["id"]
        refused = admin.patch(f"/replicas/{name}", json={"weight": 2, "inflight_max": 3})
        assert refused.status_code == 409
        assert refused.json()["error"]["code"] == "weight-unused"
        assert "--policy home" in refused.json()["error"]["message"]
        assert row(admin, name)["inflight_max"] is None
        assert admin.patch(f"/replicas/{name}", json={"weight": 1}).status_code == 200


def test_what_operators_do_is_replayed_from_a_recording(tmp_path: Path, replica: Running) -> None:
    recording = tmp_path / "a.rec"
    flags = ("--record", str(recording), "--port", "0", "--admin-port", "0", "--probe-s", "0.1")
    with (
        running("serve", *flags) as router,
        httpx2.Client(base_url=router.admin_url, timeout=10) as admin,
    ):
        for name in ("r1", "r2"):
            admin.post("/replicas", json={"url": replica.url, "id": name})
        until(lambda: set(states(admin).values()) == {"ready"})
        for method, path, body in (
            ("PATCH", "/replicas/r1", {"weight": 0.5, "inflight_max": 9}),
            ("PUT", f"/sessions/{QUOTED}/pin", {"replica": "r2", "for_s": 100}),
            ("POST", f"/sessions/{QUOTED}/move", {"replica": "r1"}),
            ("POST", "/replicas/r1/forget", {}),
            ("PUT", f"/sessions/{QUOTED}/pin", {"replica": "r2"}),
            ("DELETE", f"/sessions/{QUOTED}/pin", None),
            ("POST", "/replicas/r1/drain", {"deadline_s": 100}),
            ("POST", "/replicas/r1/undrain", {}),
        ):
            ask(router)
            assert admin.request(method, path, json=body).is_success, path
        ask(router)
    replayed = subprocess.run(
        [*COMMAND, "replay", str(recording)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert replayed.returncode == 0, replayed.stdout
    assert "all equal" in replayed.stdout
    assert "9 placed" in replayed.stdout
