"""Replicas from EndpointSlices: listed, watched, and followed through all that ends a watch."""

from __future__ import annotations

import contextlib
import json
import random
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_asyncio.config  # noqa: F401  (it takes its time, which is no fault of the loop's)
import pytest

from router.control.discovery.access import NoAccess, access
from router.control.discovery.feed import Backoff
from router.control.discovery.kubernetes import KubernetesSource
from tests.doubles.certificates import Authority
from tests.doubles.cluster import TOKEN, endpoint, running_cluster, slice_of
from tests.doubles.discovered import Discovered, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def watching(
    path: str | None,
    services: tuple[str, ...] = ("sglang",),
    **settings: Any,  # noqa: ANN401  (the source's own)
) -> AsyncIterator[Discovered]:
    found = Discovered()
    backoff = Backoff(random.Random(0), first_s=0.01, longest_s=0.05)
    source = KubernetesSource(services, found.outlet, kubeconfig=path, backoff=backoff, **settings)
    source.start()
    try:
        yield found
    finally:
        await source.stop()


@pytest.fixture
def pods() -> list[dict[str, Any]]:
    return [endpoint("10.0.0.1", "p-1"), endpoint("10.0.0.2", "p-2")]


async def test_endpoints_are_listed_then_watched(
    tmp_path: Path, pods: list[dict[str, Any]]
) -> None:
    async with running_cluster(tmp_path) as (cluster, path):
        await cluster.put(slice_of("s-1", *pods))
        async with watching(path) as found:
            await found.until_named("p-1", "p-2")
            assert found.urls()["p-2"] == "http://10.0.0.2:30000"
            assert found.replica("p-1").spec.source == "kubernetes"
            await cluster.put(slice_of("s-2", endpoint("10.0.0.3", "p-3")))
            await found.until_named("p-1", "p-2", "p-3")
            await cluster.put(slice_of("s-1", pods[0]))
            await found.until_named("p-1", "p-3")
            await cluster.delete("s-2")
            await found.until_named("p-1")
            assert len(cluster.lists) == len(cluster.watches) == 1
            assert cluster.watches[0]["resourceVersion"] == "101"
            assert cluster.watches[0]["allowWatchBookmarks"] == "true"
            assert cluster.lists[0]["labelSelector"] == "kubernetes.io/service-name=sglang"
            assert set(cluster.tokens) == {f"Bearer {TOKEN}"}
            assert found.failures == 0


async def test_a_list_may_have_several_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.control.discovery.kubernetes._PAGE", 2)
    async with running_cluster(tmp_path) as (cluster, path):
        for n in range(1, 6):
            await cluster.put(slice_of(f"s-{n}", endpoint(f"10.0.0.{n}", f"p-{n}")))
        async with watching(path, services=("a", "b")) as found:
            await found.until_named(*(f"p-{n}" for n in range(1, 6)))
            assert [query.get("continue") for query in cluster.lists] == [None, "2", "4"]
            assert cluster.lists[0]["labelSelector"] == "kubernetes.io/service-name in (a,b)"


async def test_a_broken_watch_goes_on_from_the_last_version(
    tmp_path: Path, pods: list[dict[str, Any]]
) -> None:
    async with running_cluster(tmp_path) as (cluster, path):
        await cluster.put(slice_of("s-1", *pods))
        async with watching(path) as found:
            await until(lambda: cluster.n_open == 1)
            await cluster.put(slice_of("s-2", endpoint("10.0.0.3", "p-3")))
            await found.until_named("p-1", "p-2", "p-3")
            await cluster.end_watches()
            await until(lambda: len(cluster.watches) == 2)
            await cluster.delete("s-1")
            await found.until_named("p-3")
            assert cluster.watches[1]["resourceVersion"] == "102"
            assert len(cluster.lists) == 1


@pytest.mark.parametrize("cut_at", [1, 20, 200])
async def test_a_line_cut_off_with_its_connection_is_told_again(
    tmp_path: Path, pods: list[dict[str, Any]], cut_at: int
) -> None:
    async with running_cluster(tmp_path) as (cluster, path):
        await cluster.put(slice_of("s-1", *pods))
        async with watching(path) as found:
            await until(lambda: cluster.n_open == 1)
            cluster.cut_at = cut_at
            await cluster.put(slice_of("s-1", pods[0]))
            await found.until_named("p-1")
            assert [query["resourceVersion"] for query in cluster.watches] == ["101", "101"]
            assert len(cluster.lists) == 1


@pytest.mark.parametrize("piece_bytes", [1, 7, 64])
async def test_lines_may_come_in_pieces_of_any_size(
    tmp_path: Path, pods: list[dict[str, Any]], piece_bytes: int
) -> None:
    async with running_cluster(tmp_path) as (cluster, path):
        cluster.piece_bytes = piece_bytes
        async with watching(path) as found:
            await until(lambda: cluster.n_open == 1)
            await cluster.put(slice_of("s-1", *pods))
            await cluster.put(slice_of("s-1", pods[1]))
            await cluster.put(slice_of("s-2", endpoint("10.0.0.3", "p-3")))
            await found.until_named("p-2", "p-3")
            assert found.failures == 0


@pytest.mark.parametrize("gone_as_event", [False, True], ids=["status", "event"])
async def test_a_version_that_is_gone_is_listed_anew(
    tmp_path: Path, pods: list[dict[str, Any]], *, gone_as_event: bool
) -> None:
    async with running_cluster(tmp_path) as (cluster, path):
        cluster.gone_as_event = gone_as_event
        await cluster.put(slice_of("s-1", *pods))
        async with watching(path) as found:
            await until(lambda: cluster.n_open == 1)
            before = found.core.fleet.n_changes
            cluster.slices["s-1"] = slice_of("s-1", pods[0])  # unseen: its event is forgotten
            cluster.version = cluster.forgotten = 500
            await cluster.end_watches()
            await found.until_named("p-1")
            await until(lambda: len(cluster.watches) == 3)
            assert len(cluster.lists) == 2
            assert cluster.watches[2]["resourceVersion"] == "500"
            assert found.core.fleet.n_changes == before + 1  # p-2 drains, and that is all


async def test_a_bookmark_moves_the_version_and_nothing_else(
    tmp_path: Path, pods: list[dict[str, Any]]
) -> None:
    async with running_cluster(tmp_path) as (cluster, path):
        await cluster.put(slice_of("s-1", *pods))
        async with watching(path) as found:
            await found.until_named("p-1", "p-2")
            await until(lambda: cluster.n_open == 1)
            before = found.core.fleet.n_changes
            await cluster.bookmark()
            cluster.forgotten = 102  # who goes on from the list's version has to list anew
            [health] = found.counts.healths
            heard_s = health.heard_s
            await until(lambda: health.heard_s > heard_s)
            await cluster.end_watches()
            await until(lambda: len(cluster.watches) == 2)
            assert cluster.watches[1]["resourceVersion"] == "102"
            assert len(cluster.lists) == 1
            assert found.core.fleet.n_changes == before


async def test_events_told_twice_change_nothing_the_second_time(
    tmp_path: Path, pods: list[dict[str, Any]]
) -> None:
    async with running_cluster(tmp_path) as (cluster, path):
        cluster.copies = 2
        async with watching(path) as found:
            await until(lambda: cluster.n_open == 1)
            await cluster.put(slice_of("s-1", *pods))
            await cluster.put(slice_of("s-2", endpoint("10.0.0.3", "p-3")))
            await found.until_named("p-1", "p-2", "p-3")
            await cluster.delete("s-2")
            await found.until(**{"p-1": "starting", "p-2": "starting", "p-3": "draining"})
            assert found.n_joins <= 2
            assert found.failures == 0


async def test_a_pod_that_terminates_drains_until_it_is_named_no_more(
    tmp_path: Path, pods: list[dict[str, Any]]
) -> None:
    async with running_cluster(tmp_path) as (cluster, path):
        await cluster.put(slice_of("s-1", *pods))
        async with watching(path) as found:
            await found.until_named("p-1", "p-2")
            leaving = endpoint("10.0.0.2", "p-2", ready=False, terminating=True)
            await cluster.put(slice_of("s-1", pods[0], leaving))
            await found.until_named("p-1")
            assert not found.replica("p-2").leaves_drained
            await cluster.put(slice_of("s-1", pods[0]))
            await until(lambda: found.replica("p-2").leaves_drained)


async def test_a_watch_that_hangs_is_given_up(tmp_path: Path, pods: list[dict[str, Any]]) -> None:
    async with running_cluster(tmp_path) as (cluster, path):
        cluster.hangs = True
        await cluster.put(slice_of("s-1", pods[0]))
        async with watching(path, watch_s=0.1, grace_s=0.3) as found:
            await found.until_named("p-1")
            await until(lambda: len(cluster.watches) >= 2)
            assert found.failures >= 1
            cluster.hangs = False
            await cluster.put(slice_of("s-1", *pods))
            await found.until_named("p-1", "p-2")


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
async def test_a_refusal_keeps_what_was_said_and_is_logged_once(
    tmp_path: Path,
    pods: list[dict[str, Any]],
    status: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_cluster(tmp_path) as (cluster, path):
        await cluster.put(slice_of("s-1", *pods))
        async with watching(path) as found:
            await until(lambda: cluster.n_open == 1)
            cluster.status = status
            await cluster.end_watches()
            await found.until_failed(4)
            assert set(found.states().values()) == {"starting"}
            warnings = [r.getMessage() for r in caplog.records if "source-failed" in r.getMessage()]
            refusals = [text for text in warnings if f"answers {status}" in text]
            assert len(warnings) <= 2
            assert len(refusals) <= 1
            assert TOKEN not in caplog.text
            cluster.status = 0
            await cluster.put(slice_of("s-1", pods[0]))
            await found.until_named("p-1")


@pytest.mark.parametrize(
    "line",
    [{"metadata": []}, {"metadata": {"name": "s-9"}, "endpoints": 3}, {"nothing": 1}],
    ids=["metadata", "endpoints", "none"],
)
async def test_what_is_no_slice_ends_nothing(
    tmp_path: Path, pods: list[dict[str, Any]], line: dict[str, Any]
) -> None:
    async with running_cluster(tmp_path) as (cluster, path):
        await cluster.put(slice_of("s-1", *pods))
        async with watching(path) as found:
            await until(lambda: cluster.n_open == 1)
            cluster.history.append((cluster.version + 1, "MODIFIED", line))
            cluster.version += 1
            await cluster.put(slice_of("s-1", pods[0]))
            await found.until_named("p-1")
            assert found.failures >= 1
            assert len(cluster.lists) >= 2


async def test_a_server_that_is_away_is_asked_again(
    tmp_path: Path, pods: list[dict[str, Any]]
) -> None:
    async with running_cluster(tmp_path) as (cluster, path):
        await cluster.put(slice_of("s-1", *pods))
        server = (tmp_path / "kubeconfig").read_text()
        (tmp_path / "kubeconfig").unlink()
        async with watching(path) as found:
            await found.until_failed(2)
            assert found.states() == {}
            (tmp_path / "kubeconfig").write_text(server)
            await found.until_named("p-1", "p-2")


async def test_a_pod_uses_its_own_account_and_its_tokens_as_they_are_rotated(
    tmp_path: Path, pods: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    account = tmp_path / "account"
    account.mkdir()
    (account / "namespace").write_text("ai\n")
    (account / "token").write_text("first")
    async with running_cluster(tmp_path, tls) as (cluster, _):
        server = json.loads((tmp_path / "kubeconfig").read_text())["clusters"][0]["cluster"][
            "server"
        ]
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.rpartition(":")[2])
        await cluster.put(slice_of("s-1", *pods))
        async with watching(None, account=str(account)) as found:
            await found.until_failed()  # there is no CA yet
            assert cluster.asked == []
            (account / "ca.crt").symlink_to(authority.cert)
            await found.until_named("p-1", "p-2")
            await until(lambda: cluster.n_open == 1)
            (account / "token").write_text("second")
            await cluster.end_watches()
            await until(lambda: len(cluster.watches) == 2)
            assert cluster.tokens == ["Bearer first", "Bearer first", "Bearer second"]


EXEC = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users:
- name: u
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: sh
      args: ["-c", "%s"]
"""
CREDENTIAL = (
    '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
    ' "status": {"token": "t-1"}}'
)


async def test_a_program_that_makes_a_token_has_its_time(tmp_path: Path) -> None:
    path, script, pid = tmp_path / "kubeconfig", tmp_path / "token.sh", tmp_path / "pid"
    path.write_text(EXEC % f". {script}")
    script.write_text(f"echo '{CREDENTIAL}'")
    found = await access(str(path))
    assert found.headers["authorization"] == "Bearer t-1"
    script.write_text(f"sleep 600 & echo $! > {pid}; wait")
    with pytest.raises(NoAccess, match=r"exec program did not end within 0\.5 s and was killed"):
        await access(str(path), exec_s=0.5)
    program = int(pid.read_text())
    await until(lambda: not is_running(program))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
