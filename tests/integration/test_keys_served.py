"""Keys and tenants on real processes: official clients, reload under load, the control port's key."""

from __future__ import annotations

import re
import signal
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import anthropic
import httpx2
import openai
import pytest

from router.tenants.keys import hash_of
from tests.doubles.agents import chat_body
from tests.doubles.certificates import Authority
from tests.doubles.processes import Running, emulate, end, running, until

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL = "kimi-k2.6"
TEAM = "hp-planted-secret-of-the-team-00000000"
CI = "hp-planted-secret-of-the-ci-0000000000"
NEW = "hp-planted-secret-that-is-new-00000000"
ADMIN = "hp-planted-secret-of-the-admins-000000"
REPLICA = "planted-secret-of-the-replicas-000000"
OWN = "planted-secret-of-one-replica-00000000"
WRONG = "hp-planted-secret-nobody-knows-0000000"
SALT = "planted-secret-salt-of-recordings-0000"
SECRETS = (TEAM, CI, NEW, ADMIN, REPLICA, OWN, WRONG, SALT)


def tenants(*, keys: tuple[str, ...] = (TEAM,), more: str = "") -> str:
    hashes = ", ".join(f'"{hash_of(key)}"' for key in keys)
    return (
        f'[tenants.team]\nkeys = [{hashes}]\nmodels = ["{MODEL}"]\n{more}\n'
        f'[tenants.ci]\nkeys = ["{hash_of(CI)}"]\nmodels = []\n'
    )


@pytest.fixture(scope="module")
def replica() -> Iterator[Running]:
    started = emulate("--api-key", REPLICA)
    try:
        started.wait_ready()
        yield started
    finally:
        end(started)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of a router with everything that is secret."""
    (tmp_path / "tenants.toml").write_text(tenants())
    (tmp_path / "replica.key").write_text(f"{REPLICA}\n")
    (tmp_path / "admin.key").write_text(ADMIN)
    return tmp_path


@pytest.fixture
def router(folder: Path, replica: Running) -> Iterator[Running]:
    words = ("--tenants-file", str(folder / "tenants.toml"))
    words += ("--replica-api-key-file", str(folder / "replica.key"))
    words += ("--admin-key-file", str(folder / "admin.key"), "--record-salt", SALT)
    words += ("--record", str(folder / "a.rec"), "--log-level", "debug")
    ports = ("--port", "0", "--admin-port", "0", "--probe-s", "0.1", "--replica", replica.url)
    with running("serve", *ports, *words) as started:
        yield started


def admin(router: Running) -> httpx2.Client:
    headers = {"authorization": f"Bearer {ADMIN}"}
    return httpx2.Client(base_url=router.admin_url, headers=headers, timeout=10)


def ask(router: Running, key: str = TEAM) -> httpx2.Response:
    return httpx2.post(
        f"{router.url}/v1/chat/completions",
        content=chat_body("hello", stream=False),
        headers={"content-type": "application/json", "authorization": f"Bearer {key}"},
        timeout=20,
    )


def metric(router: Running, line: str) -> float:
    found = re.search(rf"^{re.escape(line)} (\S+)$", scrape(router), re.MULTILINE)
    return float(found[1]) if found else 0.0


def scrape(router: Running) -> str:
    return httpx2.get(f"{router.admin_url}/metrics", timeout=10).text


def test_official_clients_with_keys(router: Running) -> None:
    url = router.url
    say = [{"role": "user", "content": "hello"}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key=TEAM, max_retries=0) as client:
        answer = client.chat.completions.create(model=MODEL, messages=say, max_tokens=8)  # type: ignore[arg-type]
        assert answer.choices[0].message.content
        assert [model.id for model in client.models.list()] == [MODEL]
        with pytest.raises(openai.PermissionDeniedError, match="may not use the model"):
            client.chat.completions.create(model="other", messages=say)  # type: ignore[arg-type]
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key=WRONG, max_retries=0) as client,
        pytest.raises(openai.AuthenticationError, match="needs a valid API key"),
    ):
        client.chat.completions.create(model=MODEL, messages=say)  # type: ignore[arg-type]
    with openai.OpenAI(base_url=f"{url}/v1", api_key=CI, max_retries=0) as client:
        assert list(client.models.list()) == []
    both = {"auth_token": TEAM, "default_headers": {"x-api-key": WRONG}}
    for how in ({"api_key": TEAM}, {"auth_token": TEAM}, both):
        with (
            anthropic.Anthropic(base_url=url, max_retries=0, **how) as messages,  # type: ignore[arg-type]
            messages.messages.stream(model=MODEL, messages=say, max_tokens=8) as answers,  # type: ignore[arg-type]
        ):
            assert answers.get_final_text()
    with (
        anthropic.Anthropic(base_url=url, api_key=WRONG, max_retries=0) as messages,
        pytest.raises(anthropic.AuthenticationError),
    ):
        messages.messages.create(model=MODEL, messages=say, max_tokens=8)  # type: ignore[arg-type]
    with admin(router) as control:
        rows = control.get("/sessions").json()["sessions"]
        assert rows
        assert all(row["key"].startswith("team/") for row in rows)
        assert control.get("/fleet").json()["replicas"][0]["models"] == [MODEL]
    assert metric(router, 'homeport_tenant_requests_total{outcome="done",tenant="team"}') >= 4
    assert (
        metric(router, 'homeport_tenant_refused_total{code="model-not-allowed",tenant="team"}') == 1
    )
    assert metric(router, 'homeport_tenant_prompt_tokens_total{tenant="team"}') > 0
    assert metric(router, 'homeport_turned_away_total{code="bad-api-key"}') == 2
    for words in (
        (" tenant=team ", "outcome=done"),
        ("code=model-not-allowed", "tenant=team"),
        ("code=bad-api-key", "tenant=- "),
    ):
        router.wait_said(*words)


def test_a_limit_tells_an_official_client_when_to_come_back(router: Running, folder: Path) -> None:
    (folder / "tenants.toml").write_text(tenants(more="requests_per_min_max = 2"))
    router.signal(signal.SIGHUP)
    until(lambda: metric(router, 'homeport_reloads_total{file="tenants",outcome="done"}') > 0)
    assert [ask(router).status_code for _ in range(2)] == [200, 200]
    with (
        openai.OpenAI(base_url=f"{router.url}/v1", api_key=TEAM, max_retries=0) as client,
        pytest.raises(openai.RateLimitError, match="2 requests a minute") as limit,
    ):
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hello"}])
    assert 1 <= int(limit.value.response.headers["retry-after"]) <= 30


def test_the_file_is_read_again_under_load_and_a_bad_one_changes_nothing(
    router: Running, folder: Path
) -> None:
    path, fresh = folder / "tenants.toml", folder / "fresh.toml"
    ended, codes = threading.Event(), []

    def load() -> None:
        while not ended.is_set():
            codes.append(ask(router).status_code)

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(codes) > 5)
        fresh.write_text(tenants(keys=(TEAM, NEW)))
        fresh.replace(path)
        until(lambda: ask(router, NEW).status_code == 200)
        fresh.write_text(tenants(keys=(NEW,), more="inflight_max = 0"))
        fresh.replace(path)
        until(lambda: metric(router, 'homeport_file_unusable{file="tenants"}') == 1)
        assert ask(router, NEW).status_code == 200
        path.unlink()
        until(
            lambda: metric(router, 'homeport_reloads_total{file="tenants",outcome="refused"}') > 1
        )
        assert ask(router).status_code == 200
        fresh.write_text(tenants(keys=(TEAM, NEW)))
        fresh.replace(path)
        until(lambda: metric(router, 'homeport_file_unusable{file="tenants"}') == 0)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert set(codes) == {200}
    path.write_text(tenants(keys=(NEW,)))
    until(lambda: ask(router).status_code == 401)
    assert ask(router, NEW).status_code == 200
    router.wait_said("No such file")
    refused = [line for line in router.lines if "reload-refused" in line]
    assert "line 4: tenants.team.inflight_max = 0" in refused[0]
    assert "No such file" in refused[1]
    assert len(refused) == 2


def test_the_control_port_asks_for_its_key(router: Running, replica: Running) -> None:
    with httpx2.Client(base_url=router.admin_url, timeout=10) as client:
        for path, status in (("/healthz", 200), ("/readyz", 200), ("/metrics", 200)):
            assert client.get(path).status_code == status
        said = set()
        for method, path in (
            ("GET", "/fleet"),
            ("GET", "/sessions"),
            ("GET", "/nowhere"),
            ("POST", "/replicas"),
            ("PUT", "/replicas/r1/heartbeat"),
            ("DELETE", "/replicas/r1"),
            ("GET", "/healthz/"),
        ):
            for headers in ({}, {"authorization": f"Bearer {WRONG}"}, {"x-api-key": TEAM}):
                answer = client.request(method, path, headers=headers)
                assert answer.headers["www-authenticate"].startswith("Bearer")
                said.add((answer.status_code, answer.text))
        assert len(said) == 1
        assert said.pop()[0] == 401
        assert client.get("/fleet", headers={"x-api-key": ADMIN}).status_code == 200
    with admin(router) as control:
        body = {"url": replica.url, "id": "own", "api_key": OWN}
        assert OWN not in control.post("/replicas", json=body).text
        bad = control.post("/replicas", json=body | {"api_key": f"{OWN} x"})
        assert bad.status_code == 400
        assert OWN not in bad.text
        told = control.post("/replicas", json={"url": f"http://u:{OWN}@127.0.0.1:1"})
        assert told.status_code == 400
        assert OWN not in told.text
        assert OWN not in control.get("/fleet").text


def test_no_secret_is_ever_written(router: Running, folder: Path, replica: Running) -> None:
    """Whatever goes wrong: neither logs, answers, metrics nor recordings hold a secret."""
    shown = [ask(router, key).text for key in (TEAM, CI, WRONG)]
    headers = {"authorization": f"Bearer {WRONG}", "x-api-key": WRONG, "cookie": WRONG}
    data = router.url.removeprefix("http://").partition(":")
    control = router.admin_url.removeprefix("http://").partition(":")
    for host, _, port in (data, control):
        for junk in (
            f"GET / HTTP/1.1\r\nauthorization: Bearer {TEAM}\r\nbad header {TEAM}\r\n\r\n",
            f"{TEAM} / HTTP/1.1\r\nhost: x\r\n\r\n",
            f"GET /x HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN}\x00\r\n\r\n",
            f"GET /x HTTP/9.9\r\nhost: x\r\nx-api-key: {ADMIN}\r\n\r\n",
        ):
            with socket.create_connection((host, int(port)), 10) as sock:
                sock.sendall(junk.encode())
                answer = sock.makefile("rb").read().decode("latin-1")
            if port == data[2]:  # aiohttp repeats bytes that are no HTTP to who sent them
                shown.append(answer)
    for method, path in (("GET", "/v1/models"), ("GET", "/nowhere"), ("POST", "/v1/messages")):
        shown.append(httpx2.request(method, router.url + path, headers=headers).text)
    with admin(router) as client:
        paths = ("/fleet", "/sessions", "/nowhere", "/sessions/x")
        shown += [client.get(path).text for path in paths]
        client.post("/replicas", json={"url": replica.url, "id": "own", "api_key": OWN})
        client.post("/replicas", content=f'{{"url": "http://u:{OWN}@h:1", "api_key": "{OWN}"')
    (folder / "tenants.toml").write_text(f'[tenants.team]\nkeys = ["{TEAM}"]\n')
    until(lambda: metric(router, 'homeport_file_unusable{file="tenants"}') == 1)
    (folder / "tenants.toml").write_text(f'[tenants.team]\nkeys = ["{TEAM}"\n')
    until(lambda: metric(router, 'homeport_reloads_total{file="tenants",outcome="refused"}') == 2)
    shown.append(scrape(router))
    router.signal(signal.SIGTERM)
    router.wait()
    shown += router.lines
    shown.append((folder / "a.rec").read_bytes().decode("latin-1"))
    for secret in SECRETS:
        assert not [text for text in shown if secret in text], secret
    assert any("reload-refused" in line for line in router.lines)


def test_isolated_tenants_share_no_cached_prefix(tmp_path: Path, replica: Running) -> None:
    path = tmp_path / "tenants.toml"
    names = {"one": TEAM, "two": NEW}
    rows = [f'[tenants.{name}]\nkeys = ["{hash_of(key)}"]\n' for name, key in names.items()]
    path.write_text("".join(rows))
    words = ("--tenants-file", str(path), "--tenant-prefixes", "isolated")
    ports = ("--port", "0", "--admin-port", "0", "--replica", replica.url)
    with running("serve", *ports, *words, "--replica-api-key", REPLICA) as router:

        def cached(key: str) -> tuple[int, int]:
            """What the engine reports, and what the router had predicted."""
            answer = ask(router, key)
            details = answer.json()["usage"].get("prompt_tokens_details") or {}
            predicted = int(answer.headers["x-homeport-cached-tokens"])
            return details.get("cached_tokens", 0), predicted

        assert cached(TEAM) == (0, 0)
        reported, predicted = cached(TEAM)
        assert reported > 5_000
        assert predicted > 5_000
        assert cached(NEW) == (0, 0)
        assert cached(NEW)[0] == reported


def test_both_ports_over_tls(tmp_path: Path, replica: Running) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    config = tmp_path / "h.toml"
    config.write_text(
        f'port = 0\nadmin_port = 0\nadmin_key = "{ADMIN}"\nreplica_api_key = "{REPLICA}"\n'
        f'[tls]\ncert_file = "{pair.cert}"\nkey_file = "{pair.key}"\ncontrol = true\n'
    )
    context = authority.believer()
    with running("serve", "--config", str(config), "--replica", replica.url) as router:
        assert router.url.startswith("https://")
        assert router.admin_url.startswith("https://")
        with httpx2.Client(verify=context, timeout=10) as http:
            assert http.get(f"{router.admin_url}/readyz").status_code == 200
            with openai.OpenAI(
                base_url=f"{router.url}/v1", api_key="any", max_retries=0, http_client=http
            ) as client:
                answer = client.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=8
                )
                assert answer.choices[0].message.content
        second = authority.issue("second")
        Path(second.key).replace(pair.key)
        Path(second.cert).replace(pair.cert)
        line = 'homeport_reloads_total{file="tls",outcome="done"} 1.0'

        def is_read() -> bool:
            return line in httpx2.get(f"{router.admin_url}/metrics", verify=context).text

        until(is_read)
