"""TLS at the front door and towards replicas, with certificates made for the test."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from typing import TYPE_CHECKING

import pytest

from router.edge.bounds.limits import EdgeLimits
from router.edge.entry.credentials import EdgeSecurity
from router.edge.entry.tls import ServerTls, TlsFiles, client_context
from router.errors import ConfigError
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event
from tests.doubles.certificates import Authority, Pair, name_of
from tests.doubles.door_rig import Rig, front_door
from tests.doubles.raw_client import RawClient, chat, client_of, post
from tests.doubles.scripted_replica import Call, ScriptedReplica, events, stream, whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from router.dialect.base import Dialect

JSON = b'{"object":"chat.completion","choices":[]}'
LIMITS = EdgeLimits(sweep_s=0.01, drain_s=2.0, close_s=0.2, connect_s=0.5)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.issue("server")


def over_tls(pair: Pair, ca: str | None = None, *, handshake_s: float = 5.0) -> EdgeSecurity:
    return EdgeSecurity(tls=ServerTls(TlsFiles(pair.cert, pair.key, ca)), handshake_s=handshake_s)


async def good(call: Call) -> None:
    await call.send(whole(JSON))


async def status_of(client: RawClient, *, is_stream: bool = False) -> int:
    await client.send(post(chat(stream=is_stream)))
    return (await client.read()).status


def shown(client: RawClient) -> ssl.SSLObject:
    found: ssl.SSLObject = client.writer.get_extra_info("ssl_object")
    return found


# The front


async def test_requests_over_tls(
    table: Mapping[str, Dialect], authority: Authority, pair: Pair
) -> None:
    async def script(call: Call) -> None:
        await call.send(stream(events(*(["x" * 1000] * 500))) if call.number else whole(JSON))

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, security=over_tls(pair)) as rig,
    ):
        context = authority.believer()
        context.set_alpn_protocols(["h2", "http/1.1"])
        async with client_of(rig.port, tls=context) as client:
            assert shown(client).selected_alpn_protocol() == "http/1.1"
            assert shown(client).version() in ("TLSv1.2", "TLSv1.3")
            assert await status_of(client) == 200
            large = post(chat(text="word " * 100_000))
            await client.send(large)
            answer = await client.read()
        assert (answer.status, answer.is_whole) == (200, True)
        assert answer.body == events(*(["x" * 1000] * 500))


async def test_a_refusal_before_the_body_arrives_whole(
    table: Mapping[str, Dialect], authority: Authority, pair: Pair
) -> None:
    limits = EdgeLimits(sweep_s=0.01, body_bytes_max=1000, close_s=0.2)
    security = over_tls(pair)
    async with (
        front_door(dialects=table, limits=limits, security=security) as rig,
        client_of(rig.port, tls=authority.believer()) as client,
    ):
        await client.send(post(b"x" * 2_000_000))
        answer = await client.read()
        assert (answer.status, answer.is_whole) == (413, True)
        assert await client.is_closed()


async def test_a_client_that_closes_cancels_the_replicas_work(
    table: Mapping[str, Dialect], authority: Authority, pair: Pair
) -> None:
    seen = asyncio.Event()

    async def script(call: Call) -> None:
        seen.set()
        await call.gone()

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, security=over_tls(pair)) as rig,
    ):
        async with client_of(rig.port, tls=authority.believer()) as client:
            await client.send(post(chat()))
            await seen.wait()
        assert (await rig.notes.wait_for(1)).outcome == "client-gone"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_old_versions_are_refused(
    table: Mapping[str, Dialect], authority: Authority, pair: Pair, version: ssl.TLSVersion
) -> None:
    context = authority.believer()
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    async with front_door(dialects=table, security=over_tls(pair)) as rig:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with client_of(rig.port, tls=context):
                pass


async def test_a_plain_request_on_the_tls_port_is_closed(
    table: Mapping[str, Dialect], pair: Pair
) -> None:
    async with front_door(dialects=table, security=over_tls(pair)) as rig:
        async with client_of(rig.port) as client, asyncio.timeout(3):
            await client.send(post(chat()))
            said = await client.read_all()
        assert b"HTTP" not in said


async def test_tls_on_the_plain_port_is_an_error_at_once(
    table: Mapping[str, Dialect], authority: Authority
) -> None:
    async with front_door(dialects=table) as rig, asyncio.timeout(3):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with client_of(rig.port, tls=authority.believer()):
                pass
        assert rig.notes.turned == [("bad-request", "", "")]


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
async def test_a_handshake_that_never_ends_is_ended(
    table: Mapping[str, Dialect], pair: Pair, sent: bytes
) -> None:
    security = over_tls(pair, handshake_s=0.2)
    async with (
        front_door(dialects=table, security=security) as rig,
        client_of(rig.port) as client,
        asyncio.timeout(5),
    ):
        await client.send(sent)
        assert await client.is_closed()


async def first_byte(rig: Rig, context: ssl.SSLContext) -> bytes:
    async with client_of(rig.port, tls=context) as client:
        await client.send(post(chat()))
        return await client.reader.readexactly(1)


async def test_client_certificates(
    table: Mapping[str, Dialect], authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "strange-ca").issue("stranger")
    security = over_tls(pair, authority.cert)
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, security=security) as rig,
    ):
        known = authority.believer(authority.issue("client"))
        for _ in range(2):
            async with client_of(rig.port, tls=known) as client:
                assert await status_of(client) == 200
        for own in (None, stranger):
            # In TLS 1.3 the client learns of it with its first read.
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await first_byte(rig, authority.believer(own))
        assert len(replica.calls) == 2


async def test_a_new_certificate_is_shown_to_new_connections_and_old_ones_go_on(
    table: Mapping[str, Dialect], authority: Authority, tmp_path: Path
) -> None:
    first, second = authority.issue("first"), authority.issue("second")
    files = Pair(str(tmp_path / "tls.pem"), str(tmp_path / "tls.key"))

    def put(pair: Pair) -> None:
        shutil.copy(pair.cert, files.cert)
        shutil.copy(pair.key, files.key)

    put(first)
    security = over_tls(files)
    tls = security.tls
    assert tls is not None
    context = authority.believer()
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, security=security) as rig,
        client_of(rig.port, tls=context) as old,
    ):
        assert name_of(shown(old)) == "first"
        put(second)
        tls.use(tls.read())
        assert await status_of(old) == 200
        async with client_of(rig.port, tls=context) as new:
            assert name_of(shown(new)) == "second"
            assert await status_of(new) == 200
        shutil.copy(first.key, files.key)  # a certificate without its key
        with pytest.raises(ConfigError, match=r"tls\.pem.*cannot be used: KEY_VALUES_MISMATCH"):
            tls.read()
        async with client_of(rig.port, tls=context) as new:
            assert name_of(shown(new)) == "second"
        assert await status_of(old) == 200


async def test_an_idle_tls_client_does_not_hold_up_the_end(
    table: Mapping[str, Dialect], authority: Authority, pair: Pair
) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS, security=over_tls(pair)) as rig,
        client_of(rig.port, tls=authority.believer()) as client,
    ):
        assert await status_of(client) == 200
        await rig.door.stop()
        assert await client.is_closed()


@pytest.mark.parametrize("which", ["cert", "key", "ca"])
def test_a_file_that_cannot_be_read_is_named(pair: Pair, tmp_path: Path, which: str) -> None:
    missing = str(tmp_path / "missing.pem")
    files = {"cert": pair.cert, "key": pair.key, "ca": pair.cert, which: missing}
    with pytest.raises(ConfigError, match=r"missing\.pem: No such file"):
        ServerTls(TlsFiles(**files))
    with pytest.raises(ConfigError, match=r"missing\.pem: No such file"):
        client_context(TlsFiles(**files))


# To the replicas


async def served(rig: Rig, port: int, *, host: str = "127.0.0.1", is_tls: bool = True) -> str:
    """The error code of one request to a replica there, "" if it was served."""
    rig.core.members.join(ReplicaSpec("r0", host, port, is_tls=is_tls), 0.0)
    rig.core.members.heard("r0", Event.PROBE_OK, 0.0)
    async with client_of(rig.port) as client, asyncio.timeout(5):
        await client.send(post(chat(stream=False)))
        answer = await client.read()
    return "" if answer.status == 200 else answer.headers["x-homeport-error"]


def server_side(pair: Pair, ca: str | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    if ca is not None:
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_a_replica_over_tls_is_verified(
    table: Mapping[str, Dialect], authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    elsewhere = authority.issue("elsewhere", names="subjectAltName=DNS:elsewhere")
    strange = Authority(tmp_path, "strange-ca").issue("stranger")
    to_replicas = client_context(TlsFiles(ca=authority.cert))
    security = EdgeSecurity(replica_tls=to_replicas)
    async with (
        ScriptedReplica(good, tls=server_side(pair)) as replica,
        ScriptedReplica(good, tls=server_side(elsewhere)) as misnamed,
        ScriptedReplica(good, tls=server_side(strange)) as stranger,
        front_door(dialects=table, limits=LIMITS, security=security) as rig,
    ):
        assert await served(rig, replica.port) == ""
        assert await served(rig, replica.port, host="localhost") == ""
        assert await served(rig, misnamed.port) == "connect-failed"
        assert await served(rig, stranger.port) == "connect-failed"
        assert not misnamed.calls
        assert not stranger.calls


async def test_connections_over_tls_are_used_again(
    table: Mapping[str, Dialect], authority: Authority, pair: Pair
) -> None:
    security = EdgeSecurity(replica_tls=client_context(TlsFiles(ca=authority.cert)))
    async with (
        ScriptedReplica(good, tls=server_side(pair)) as replica,
        front_door(dialects=table, security=security) as rig,
    ):
        assert [await served(rig, replica.port) for _ in range(3)] == ["", "", ""]
        assert (len(replica.calls), replica.n_connections) == (3, 1)


async def test_verification_is_off_only_where_that_is_said(
    table: Mapping[str, Dialect], pair: Pair
) -> None:
    for verify, code in ((False, ""), (True, "connect-failed")):
        security = EdgeSecurity(replica_tls=client_context(verify=verify))
        async with (
            ScriptedReplica(good, tls=server_side(pair)) as replica,
            front_door(dialects=table, security=security) as rig,
        ):
            assert await served(rig, replica.port) == code


async def test_the_router_shows_its_own_certificate(
    table: Mapping[str, Dialect], authority: Authority, pair: Pair
) -> None:
    own = authority.issue("router")
    for files, is_served in (
        (TlsFiles(own.cert, own.key, authority.cert), True),
        (TlsFiles(ca=authority.cert), False),
    ):
        security = EdgeSecurity(replica_tls=client_context(files))
        async with (
            ScriptedReplica(good, tls=server_side(pair, authority.cert)) as replica,
            front_door(dialects=table, limits=LIMITS, security=security) as rig,
        ):
            assert (await served(rig, replica.port) == "") is is_served


async def test_the_wrong_scheme_fails_at_once(
    table: Mapping[str, Dialect], authority: Authority, pair: Pair
) -> None:
    security = EdgeSecurity(replica_tls=client_context(TlsFiles(ca=authority.cert)))
    async with (
        ScriptedReplica(good, tls=server_side(pair)) as over_tls_only,
        ScriptedReplica(good) as plain,
        front_door(dialects=table, limits=LIMITS, security=security) as rig,
    ):
        assert await served(rig, over_tls_only.port, is_tls=False) == "bad-upstream-response"
        assert await served(rig, plain.port) in ("connect-failed", "connect-timeout")


async def test_a_replica_that_never_ends_its_handshake_times_out(
    table: Mapping[str, Dialect],
) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        limits = EdgeLimits(sweep_s=0.01, drain_s=2.0, connect_s=0.2)
        async with front_door(dialects=table, limits=limits) as rig:
            assert await served(rig, deaf.getsockname()[1]) == "connect-timeout"
