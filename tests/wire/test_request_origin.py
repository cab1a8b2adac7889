"""What a replica is told of a request's client and of its trace."""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest

from router.framing.forwarding import ForwardingRules, Peer
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import chat, client_of, post
from tests.doubles.scripted_replica import Call, ScriptedReplica, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect

LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1"))
NAMES = ("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded", "x-real-ip")
OURS = ("127.0.0.1", "http", "door", 'for=127.0.0.1;proto=http;host="door"', None)
NONE = (None,) * 5

CASES: dict[str, tuple[ForwardingRules, str, tuple[str | None, ...]]] = {
    "set": (ForwardingRules("set"), "", OURS),
    "append": (ForwardingRules("append"), "", OURS),
    "strip": (ForwardingRules("strip"), "", NONE),
    "set-spoofed": (
        ForwardingRules("set", LOOPBACK),
        "X-Forwarded-For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n",
        OURS,
    ),
    "append-spoofed": (
        ForwardingRules("append", (ip_network("10.0.0.0/8"),)),
        "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Host: evil\r\nX-Real-IP: 6.6.6.6\r\n",
        OURS,
    ),
    "strip-spoofed": (
        ForwardingRules("strip", LOOPBACK),
        "X-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n",
        NONE,
    ),
    "trusted-says-nothing": (ForwardingRules("append", LOOPBACK), "", OURS),
    "trusted": (
        ForwardingRules("append", LOOPBACK),
        "X-Forwarded-For: 9.9.9.9\r\nx-forwarded-for: 8.8.8.8, 7.7.7.7\r\nX-Real-IP: 9.9.9.9\r\n",
        ("9.9.9.9, 8.8.8.8, 7.7.7.7, 127.0.0.1", "http", "door", None, "9.9.9.9"),
    ),
    "trusted-names": (
        ForwardingRules("append", LOOPBACK),
        "X-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: x\r\n",
        ("9.9.9.9, 127.0.0.1", "https", "x", None, None),
    ),
    "trusted-forwarded": (
        ForwardingRules("append", LOOPBACK),
        "Forwarded: for=9.9.9.9;proto=https\r\n",
        (None, None, None, 'for=9.9.9.9;proto=https, for=127.0.0.1;proto=http;host="door"', None),
    ),
}


async def good(call: Call) -> None:
    await call.send(whole(b"{}"))


@pytest.mark.parametrize(("rules", "extra", "expected"), CASES.values(), ids=CASES)
async def test_the_origin_that_a_replica_sees(
    table: Mapping[str, Dialect],
    rules: ForwardingRules,
    extra: str,
    expected: tuple[str | None, ...],
) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, forwarding=rules) as rig,
        client_of(rig.port) as client,
    ):
        for _ in range(2):
            await client.send(post(chat(stream=False), extra=extra))
            assert (await client.read()).status == 200
        for call in replica.calls:
            assert tuple(call.header(name) for name in NAMES) == expected
            assert call.head.lower().count(b"\r\nx-forwarded-for:") <= 1


def test_addresses_as_they_are_written() -> None:
    rules = ForwardingRules(trusted=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")))
    trusted = ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1", "fd00::1%eth0")
    for address in (*trusted, "11.0.0.1", "::1", "", "a name", "10.0.0.0/8"):
        peer = Peer(address, rules, is_secure=True)
        assert peer.is_trusted == (address in trusted)
    assert Peer("::ffff:10.1.2.3", rules, is_secure=False).address == "10.1.2.3"
    assert Peer("2001:db8::1", rules, is_secure=True).told(b"") == (
        b"x-forwarded-for: 2001:db8::1\r\nx-forwarded-proto: https\r\n"
        b'forwarded: for="[2001:db8::1]";proto=https\r\n'
    )


ID, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SOUND = (f"00-{ID}-{SPAN}-01", f"00-{ID}-{SPAN}-00", f"cc-{ID}-{SPAN}-01-what-comes")
UNSOUND = (
    "",
    "x",
    f"00-{ID}-{SPAN}",
    f"00-{ID.upper()}-{SPAN}-01",
    f"00-{'0' * 32}-{SPAN}-01",
    f"00-{ID}-{'0' * 16}-01",
    f"ff-{ID}-{SPAN}-01",
    f"00-{ID}-{SPAN}-01-more",
    f"00-{ID[:-1]}g-{SPAN}-01",
    f"00-{ID}-{SPAN}-1",
)


@pytest.mark.parametrize("is_begun", [False, True])
async def test_a_trace_is_kept_and_passed_on(
    table: Mapping[str, Dialect], *, is_begun: bool
) -> None:
    rules = ForwardingRules(is_trace_begun=is_begun)
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, forwarding=rules) as rig,
        client_of(rig.port) as client,
    ):
        for parent in SOUND:
            extra = f"Traceparent: {parent}\r\nTracestate: a=1\r\nX-Request-Id: my\r\n"
            await client.send(post(chat(stream=False), extra=extra))
            assert (await client.read()).status == 200
            call = replica.calls[-1]
            assert (call.header("traceparent"), call.header("tracestate")) == (parent, "a=1")
            record = rig.notes.records[-1]
            assert (record.request_id, record.trace_id) == ("my", ID)


async def test_a_trace_is_begun_where_none_is_sound(table: Mapping[str, Dialect]) -> None:
    rules = ForwardingRules(is_trace_begun=True)
    extras = ["", f"Traceparent: {SOUND[0]}\r\nTraceparent: {SOUND[1]}\r\nTracestate: a=1\r\n"]
    extras += [f"Traceparent: {value}\r\nTracestate: a=1\r\n" for value in UNSOUND]
    seen = set()
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, forwarding=rules) as rig,
        client_of(rig.port) as client,
    ):
        for extra in extras:
            await client.send(post(chat(stream=False), extra=extra))
            assert (await client.read()).status == 200
            call = replica.calls[-1]
            begun = re.fullmatch(
                "00-([0-9a-f]{32})-[0-9a-f]{16}-01", call.header("traceparent") or ""
            )
            assert begun is not None, extra
            assert call.header("tracestate") is None
            assert rig.notes.records[-1].trace_id == begun[1] != ID
            seen.add(begun[1])
        assert len(seen) == len(extras)


async def test_without_the_setting_a_trace_is_not_touched(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        for extra, value in (("", None), ("Traceparent: x\r\n", "x")):
            await client.send(post(chat(stream=False), extra=extra))
            assert (await client.read()).status == 200
            assert replica.calls[-1].header("traceparent") == value
            assert rig.notes.records[-1].trace_id == ""
            assert len(rig.notes.records[-1].request_id) == 32
