"""Why a session's next turn goes there, asked of a router process: by the API and by the command."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.doubles.agents import chat_body
from tests.doubles.processes import COMMAND, Running, emulate, end, running, until
from tests.doubles.shared_routers import Agents
from tests.doubles.workers import workers

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "a/b ü/explain"
QUOTED = "a%2Fb%20%C3%BC%2Fexplain"


@pytest.fixture(scope="module")
def replicas() -> Iterator[list[Running]]:
    started = [emulate() for _ in range(3)]
    try:
        for replica in started:
            replica.wait_ready()
        yield started
    finally:
        for replica in started:
            end(replica)


@pytest.fixture
def router(replicas: list[Running]) -> Iterator[Running]:
    """A router with r0, r1 and r2, all ready and heard of."""
    with running("serve", "--port", "0", "--admin-port", "0", "--probe-s", "0.1") as started:
        for n, replica in enumerate(replicas):
            row = {"url": replica.url, "id": f"r{n}"}
            httpx2.post(f"{started.admin_url}/replicas", json=row)
        until(lambda: all(r["load"] and r["state"] == "ready" for r in fleet(started)))
        yield started


def fleet(router: Running) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = httpx2.get(f"{router.admin_url}/fleet").json()["replicas"]
    return rows


def ask(router: Running, key: str, text: str) -> httpx2.Response:
    """One turn of a session, answered."""
    answer = httpx2.post(
        f"{router.url}/v1/chat/completions",
        content=chat_body(text, stream=False),
        headers={"content-type": "application/json", "x-session-id": key.encode()},
        timeout=20,
    )
    assert answer.status_code == 200, answer.text
    return answer


def explain(router: Running, quoted: str = QUOTED, **query: object) -> dict[str, Any]:
    url = f"{router.admin_url}/sessions/{quoted}/explain"
    answer = httpx2.get(url, params=query)  # type: ignore[arg-type]
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert isinstance(found, dict)
    return found


def command(router: Running, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "fleet", "explain", *words],
        env=os.environ | {"HOMEPORT_ADMIN_URL": router.admin_url},
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )


def test_the_next_turn_goes_where_it_was_explained_to_go(router: Running) -> None:
    home = ask(router, KEY, "hello").headers["x-homeport-replica"]
    told = explain(router)
    again = explain(router)
    first = told["replicas"][0]
    assert (told["key"], told["chosen"], told["home"], told["reason"]) == (KEY, home, home, "home")
    assert (first["id"], first["why_not"], first["candidate"]) == (home, None, True)
    assert first["cached_tokens"] > 0.9 * told["prompt_tokens"] > 9_000
    assert first["belief"]["source"] == "reported"
    assert 0.0 <= first["belief"]["age_s"] < 60.0
    assert 0.0 <= first["report_age_s"] < 60.0
    assert sorted(row["id"] for row in told["replicas"]) == ["r0", "r1", "r2"]
    for row in told["replicas"][1:]:
        assert re.fullmatch(r"dearer by [\d.]+ m?s", row["why_not"])
        parts = dict(row["price"])
        assert parts.pop("total_s") == pytest.approx(sum(parts.values()), abs=0.001)
        assert row["price"]["total_s"] > first["price"]["total_s"]
    # Asking changed nothing: the same is told again, and one request was decided on.
    assert again["prompt_tokens"] == told["prompt_tokens"]
    view = httpx2.get(f"{router.admin_url}/sessions/{QUOTED}").json()
    assert (view["requests"], len(view["decisions"])) == (1, 1)
    larger = explain(router, new_tokens=50_000)
    assert larger["prompt_tokens"] == told["prompt_tokens"] + 50_000
    assert larger["replicas"][0]["price"]["prefill_s"] > first["price"]["prefill_s"]
    assert ask(router, KEY, "hello").headers["x-homeport-replica"] == told["chosen"]


def test_who_cannot_take_it_is_told_with_the_reason(router: Running) -> None:
    home = ask(router, KEY, "hello").headers["x-homeport-replica"]
    other, last = (f"r{n}" for n in range(3) if f"r{n}" != home)
    admin = router.admin_url
    httpx2.post(f"{admin}/replicas/{home}/drain")
    httpx2.put(f"{admin}/sessions/{QUOTED}/pin", json={"replica": last})
    told = explain(router)
    rows = {row["id"]: row for row in told["replicas"]}
    assert (told["chosen"], told["pinned"], told["reason"]) == (last, last, "pinned")
    assert rows[other]["why_not"] == f"an operator pinned the session to {last}"
    assert rows[other]["price"]["total_s"] > 0.0
    assert rows[home]["why_not"] == "draining: takes no new requests"
    assert (rows[home]["candidate"], rows[home]["price"]) == (False, None)
    assert told["replicas"][-1]["id"] == home
    assert ask(router, KEY, "hello").headers["x-homeport-replica"] == last
    for name in (other, last):
        httpx2.post(f"{admin}/replicas/{name}/drain")
    refused = explain(router)
    assert (refused["chosen"], refused["reason"]) == (None, "no-replica-ready")


def test_the_command_prints_a_table_that_fits_a_terminal(router: Running) -> None:
    home = ask(router, KEY, "hello").headers["x-homeport-replica"]
    shown = command(router, KEY)
    assert (shown.returncode, shown.stderr) == (0, "")
    rows = shown.stdout.splitlines()
    assert rows[0] == f"{KEY} goes to {home} (home; policy home)"
    assert rows[1].startswith("because a session stays at home")
    assert max(map(len, rows)) <= 100
    heads = [row.split() for row in rows if row.startswith("replica ")]
    assert [head[1] for head in heads] == ["cached", "state"]
    assert sum(row.startswith(("r0 ", "r1 ", "r2 ")) for row in rows) == 6
    fewer = command(router, KEY, "--rows", "1", "--new-tokens", "100000")
    assert fewer.stdout.splitlines()[-1] == "and 2 more replicas"
    assert re.search(r"^1\d\d\.\dk prompt", fewer.stdout, re.MULTILINE)
    as_json = json.loads(command(router, KEY, "--json").stdout)
    assert as_json.keys() == explain(router).keys()


def test_what_is_not_known_or_not_possible_is_refused(router: Running) -> None:
    unknown = httpx2.get(f"{router.admin_url}/sessions/nobody/explain")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown-session")
    ask(router, KEY, "hello")
    for text in ("-1", "x", "99999999999", "1.5", ""):
        bad = httpx2.get(
            f"{router.admin_url}/sessions/{QUOTED}/explain", params={"new_tokens": text}
        )
        assert (bad.status_code, bad.json()["error"]["code"]) == (400, "bad-request")
        assert bad.json()["error"]["message"].startswith("new_tokens: ")
    # A session whose key ends so is that session, and `explain` itself may be one.
    assert httpx2.get(f"{router.admin_url}/sessions/{QUOTED}").json()["key"] == KEY
    ask(router, "explain", "hello")
    assert httpx2.get(f"{router.admin_url}/sessions/explain").json()["requests"] == 1
    assert explain(router, "explain")["key"] == "explain"
    ran = command(router, "nobody")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "`homeport fleet sessions` lists the recent ones" in ran.stderr
    assert command(router, KEY, "--new-tokens", "-3").returncode == 2


@pytest.mark.parametrize("policy", ["least_inflight", "smg_cache_aware", "random"])
def test_who_prices_nothing_says_what_is_compared(policy: str, replicas: list[Running]) -> None:
    flags = [word for replica in replicas for word in ("--replica", replica.url)]
    with running("serve", "--port", "0", "--admin-port", "0", "--policy", policy, *flags) as router:
        ask(router, "s", "hello")
        told = explain(router, "s")
        assert told["policy"] == policy
        assert all(row["price"] is None for row in told["replicas"])
        assert all(row["compared"] for row in told["replicas"] if row["candidate"])
        table = command(router, "s").stdout
        assert "compared" in table
        assert told["rule"] in table


async def test_any_worker_answers_with_the_word_of_the_one_that_served_last() -> None:
    with workers(2, replicas=2) as router:
        agents = Agents([router.router], 4, 4, pause_s=0.1)
        await agents.play()
        for n in range(4):
            key, last = f"agent-1-{n}", [t for t in agents.turns if t.session == n][-1]
            for _ in range(6):  # each by a connection of its own, at whichever worker takes it
                told = explain(router.router, key)
                row = next(r for r in told["replicas"] if r["id"] == last.replica)
                assert told["told_by"] is None
                assert told["prompt_tokens"] >= last.prompt_tokens
                assert row["cached_tokens"] > 0.8 * last.prompt_tokens
        nobody = httpx2.get(f"{router.router.admin_url}/sessions/nobody/explain")
        assert nobody.status_code == 404
        bad = httpx2.get(f"{router.router.admin_url}/sessions/agent-1-0/explain?new_tokens=x")
        assert bad.status_code == 400
