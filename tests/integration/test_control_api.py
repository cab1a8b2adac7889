"""The control API over HTTP, on a router process: register, beat, drain, remove, look."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.doubles.agents import chat_body
from tests.doubles.processes import Running, emulate, end, running, until

if TYPE_CHECKING:
    from collections.abc import Iterator


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


@pytest.fixture(scope="module")
def empty() -> Iterator[httpx2.Client]:
    """The control port of a router without replicas, for what changes nothing."""
    with (
        running("serve", "--port", "0", "--admin-port", "0") as started,
        httpx2.Client(base_url=started.admin_url, timeout=10) as client,
    ):
        yield client


@pytest.fixture
def admin(router: Running) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=router.admin_url, timeout=10) as client:
        yield client


def states(admin: httpx2.Client) -> dict[str, str]:
    return {row["id"]: row["state"] for row in admin.get("/fleet").json()["replicas"]}


def ask(router: Running, text: str = "hello") -> httpx2.Response:
    return httpx2.post(
        f"{router.url}/v1/chat/completions",
        content=chat_body(text, stream=False),
        headers={"content-type": "application/json", "x-session-id": "s/1 b"},
        timeout=20,
    )


def register(admin: httpx2.Client, replica: Running, **more: object) -> httpx2.Response:
    return admin.post("/replicas", json={"url": replica.url, "id": "r1", **more})


def test_a_replica_registers_serves_drains_and_leaves(
    router: Running, admin: httpx2.Client, replica: Running
) -> None:
    assert admin.get("/healthz").json() == {"status": "ok"}
    assert admin.get("/readyz").status_code == 503
    refused = ask(router)
    assert refused.status_code == 503
    assert refused.headers["x-homeport-error"] == "no-replica-ready"
    assert int(refused.headers["retry-after"]) >= 1

    assert register(admin, replica, lease_s=60).status_code == 201
    assert register(admin, replica, lease_s=60).status_code == 200
    until(lambda: states(admin) == {"r1": "ready"})
    assert admin.get("/readyz").status_code == 200
    beat = admin.put("/replicas/r1/heartbeat").json()
    assert beat == {"id": "r1", "state": "ready", "lease_s": 60.0}

    answer = ask(router)
    assert answer.status_code == 200
    assert answer.headers["x-homeport-replica"] == "r1"
    row = admin.get("/fleet").json()["replicas"][0]
    assert row["profile"] == "b200-tp4-fp8"
    assert row["capacity_tokens"] > 5_000_000
    assert row["requests_total"] == 1
    assert row["models"] == ["kimi-k2.6"]

    drained = admin.post("/replicas/r1/drain").json()
    assert (drained["id"], drained["state"], drained["inflight"]) == ("r1", "draining", 0)
    assert drained["drain"] == {"remove": False, "left_s": None}
    assert ask(router).status_code == 503
    # Registering again is how a drained replica comes back.
    assert register(admin, replica).status_code == 200
    until(lambda: states(admin) == {"r1": "ready"})
    assert ask(router).status_code == 200
    assert admin.delete("/replicas/r1").status_code == 204
    assert states(admin) == {}


def test_a_lease_without_heartbeats_ends(admin: httpx2.Client, replica: Running) -> None:
    register(admin, replica, lease_s=1)
    assert states(admin).keys() == {"r1"}
    until(lambda: states(admin) == {})
    gone = admin.put("/replicas/r1/heartbeat")
    assert gone.status_code == 404
    assert gone.json()["error"]["code"] == "unknown-replica"


def test_a_session_is_explained(router: Running, admin: httpx2.Client, replica: Running) -> None:
    register(admin, replica)
    until(lambda: states(admin) == {"r1": "ready"})
    ask(router)
    ask(router)
    listed = admin.get("/sessions").json()["sessions"]
    assert [(row["home"], row["requests"]) for row in listed] == [("r1", 2)]
    view = admin.get("/sessions/s%2F1%20b").json()
    assert view["home"] == "r1"
    first, second = view["decisions"]
    assert first["reason"] == "new"
    assert second["reason"] == "home"
    assert second["reported_cached_tokens"] > 5_000
    assert second["outcome"] == "done"
    assert set(second["prices"]["r1"]) == {"wait_s", "prefill_s", "interference_s", "pressure_s"}
    missing = admin.get("/sessions/nobody")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "unknown-session"


def test_metrics_speak_of_what_happened(
    router: Running, admin: httpx2.Client, replica: Running
) -> None:
    register(admin, replica)
    until(lambda: states(admin) == {"r1": "ready"})
    ask(router)
    httpx2.post(f"{router.url}/v1/chat/completions", content=b"{")
    text = admin.get("/metrics").text
    assert 'homeport_requests_total{dialect="openai-chat",outcome="done"} 1.0' in text
    assert 'homeport_turned_away_total{code="bad-request"} 1.0' in text
    assert 'homeport_replica_state{replica="r1",state="ready"} 1.0' in text
    assert "homeport_ttft_seconds_count 1.0" in text
    assert 'homeport_decisions_total{reason="new"} 1.0' in text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "registration:"),
        (b"[]", "registration:"),
        (b'{"url": 5}', "$.url"),
        (b'{"url": "ftp://a:1"}', "not of the form http://HOST:PORT"),
        (b'{"url": "http://a"}', "not of the form http://HOST:PORT"),
        (b'{"url": "http://a:1/v1"}', "not of the form http://HOST:PORT"),
        (b'{"url": "http://a:1", "lease": 5}', "lease"),
        (b'{"url": "http://a:1", "lease_s": 0}', "$.lease_s"),
        (b'{"url": "http://a:1", "capacity_tokens": -1}', "$.capacity_tokens"),
        (b'{"url": "http://a:1", "id": "a b"}', "$.id"),
        (b'{"url": "http://a b:1"}', "not of the form http://HOST:PORT"),
        (b'{"url": "http://a:99999"}', "not of the form http://HOST:PORT"),
    ],
)
def test_nonsense_registrations_name_the_field(
    empty: httpx2.Client, body: bytes, said: str
) -> None:
    answer = empty.post("/replicas", content=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "bad-request"
    assert said in error["message"]
    assert states(empty) == {}


def test_other_mistakes_are_answered_in_the_same_shape(empty: httpx2.Client) -> None:
    for method, path, status, code in [
        ("GET", "/nothing", 404, "unknown-path"),
        ("DELETE", "/fleet", 405, "method-not-allowed"),
        ("POST", "/replicas/none/drain", 404, "unknown-replica"),
        ("DELETE", "/replicas/none", 404, "unknown-replica"),
        ("GET", "/sessions?limit=0", 400, "bad-request"),
        ("GET", "/sessions?limit=x", 400, "bad-request"),
        ("GET", "/sessions?limit=" + "9" * 5_000, 400, "bad-request"),
    ]:
        answer = empty.request(method, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    big = empty.post("/replicas", content=b" " * 100_000)
    assert (big.status_code, big.json()["error"]["code"]) == (413, "too-large")


def _documented(heading: str) -> dict[str, object]:
    """The JSON example below a heading of the control API's page."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "control-api.md").read_text()
    section = page.split(f"## {heading}\n", 1)[1]
    block = section.split("```json\n", 1)[1].split("```", 1)[0]
    found: dict[str, object] = json.loads(block)
    return found


def _shape(value: object) -> object:
    """Names only; of a list its first row, of prices any replica's."""
    if isinstance(value, dict):
        if value and all(":" in key or key == "r1" for key in value):
            return {"*": _shape(next(iter(value.values())))}
        return {key: _shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shape(value[0])] if value and isinstance(value[0], dict) else []
    return None


def test_the_answers_have_exactly_the_documented_fields(
    router: Running, admin: httpx2.Client, replica: Running
) -> None:
    register(admin, replica, lease_s=60)
    until(lambda: states(admin) == {"r1": "ready"})
    ask(router)
    until(lambda: admin.get("/fleet").json()["replicas"][0]["load"] is not None)
    fleet = admin.get("/fleet").json()
    assert _shape(fleet) == _shape(_documented("`GET /fleet`"))
    session = admin.get("/sessions/s%2F1%20b").json()
    assert _shape(session) == _shape(_documented("`GET /sessions/{key}`"))


def test_a_router_that_drains_is_not_ready(
    router: Running, admin: httpx2.Client, replica: Running
) -> None:
    register(admin, replica)
    until(lambda: states(admin) == {"r1": "ready"})
    assert admin.get("/readyz").status_code == 200
    body = chat_body("long", max_tokens=4000, homeport_emulate={"output_tokens": 4000})
    headers = {"content-type": "application/json"}
    url = f"{router.url}/v1/chat/completions"
    with httpx2.stream("POST", url, content=body, headers=headers, timeout=30) as answer:
        chunks = answer.iter_bytes()
        next(chunks)
        router.signal(signal.SIGTERM)
        until(lambda: admin.get("/readyz").status_code == 503)
        assert b"[DONE]" in b"".join(chunks)
    assert router.process.wait(10) == 0
