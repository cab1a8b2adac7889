"""The framing against h11: the same events for any chunking, and one kind of fault for any bytes."""

from __future__ import annotations

from itertools import pairwise

import h11
from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.framing.events import (
    MESSAGE_END,
    FramingError,
    MessageEnd,
    RequestEvent,
    RequestHead,
    ResponseEvent,
    ResponseHead,
)
from router.framing.requests import RequestParser
from router.framing.responses import ResponseParser

names = st.sampled_from(["X-A", "x-b", "Accept", "Authorization", "anthropic-beta"])
values = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12)
extra = st.lists(st.tuples(names, values), max_size=4)
bodies = st.lists(st.binary(min_size=1, max_size=40), max_size=4)
cuts = st.lists(st.integers(0, 2000), max_size=12)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    parts = draw(bodies)
    headers: list[tuple[str, str]] = [("Host", "h"), *draw(extra)]
    if draw(st.booleans()):
        headers.append(("Transfer-Encoding", "chunked"))
    else:
        headers.append(("Content-Length", str(len(b"".join(parts)))))
    connection = h11.Connection(h11.CLIENT)
    request = h11.Request(
        method="POST", target=draw(st.sampled_from(["/", "/v1/x?a=b"])), headers=headers
    )
    return _sent(connection, request, parts)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    parts = draw(bodies)
    headers: list[tuple[str, str]] = draw(extra)
    if draw(st.booleans()):
        headers.append(("Transfer-Encoding", "chunked"))
    else:
        headers.append(("Content-Length", str(len(b"".join(parts)))))
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    connection.next_event()
    connection.next_event()
    status = draw(st.sampled_from([200, 400, 503]))
    return _sent(connection, h11.Response(status_code=status, headers=headers), parts)


def _sent(
    connection: h11.Connection, head: h11.Request | h11.Response, parts: list[bytes]
) -> bytes:
    out = [connection.send(head)]
    out += [connection.send(h11.Data(data=part)) for part in parts]
    out.append(connection.send(h11.EndOfMessage()))
    return b"".join(part for part in out if part)


def pieces(data: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(min(edge, len(data)) for edge in at)})
    return [data[a:b] for a, b in pairwise(edges)]


Seen = list[tuple[object, ...]]


def seen(events: list[RequestEvent] | list[ResponseEvent]) -> Seen:
    """Events in a form that does not depend on where the bytes were cut."""
    out: Seen = []
    for event in events:
        if isinstance(event, bytes):
            if out and out[-1][0] == "body":
                event = bytes(out.pop()[1]) + event  # type: ignore[call-overload] # noqa: PLW2901
            out.append(("body", event))
        elif isinstance(event, RequestHead):
            out.append(("request", event.method, event.target, tuple(event.headers)))
        elif isinstance(event, ResponseHead):
            out.append(("answer", event.status, tuple(event.headers)))
        elif isinstance(event, MessageEnd):
            out.append(("end",))
        else:
            out.append(("fault", event.code))
    return out


def seen_by_h11(connection: h11.Connection, data: bytes) -> Seen:
    out: Seen = []
    connection.receive_data(data)
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            out.append(("request", event.method, event.target, tuple(event.headers)))
        elif isinstance(event, h11.Response):
            out.append(("answer", event.status_code, tuple(event.headers)))
        elif isinstance(event, h11.Data):
            body = bytes(event.data)
            if out[-1][0] == "body":
                body = bytes(out.pop()[1]) + body  # type: ignore[call-overload]
            out.append(("body", body))
        else:
            assert isinstance(event, h11.EndOfMessage)
            out.append(("end",))
            return out


@settings(deadline=None)
@given(requests(), requests(), cuts)
def test_requests_read_as_h11_reads_them(first: bytes, second: bytes, at: list[int]) -> None:
    parser = RequestParser()
    events = [event for piece in pieces(first + second, at) for event in parser.feed(piece)]
    expected = seen_by_h11(h11.Connection(h11.SERVER), first)
    expected += seen_by_h11(h11.Connection(h11.SERVER), second)
    assert seen(events) == expected
    assert parser.is_between


@settings(deadline=None)
@given(answers(), cuts)
def test_answers_read_as_h11_reads_them(data: bytes, at: list[int]) -> None:
    parser = ResponseParser()
    parser.start()
    events = [event for piece in pieces(data, at) for event in parser.feed(piece)]
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "h")]))
    client.send(h11.EndOfMessage())
    assert seen(events) == seen_by_h11(client, data)
    assert parser.can_reuse


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    data = bytearray(draw(whole))
    for at, byte in draw(
        st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3)), max_size=4)
    ):
        data[at : at + draw(st.integers(0, 2))] = byte
    return bytes(data)


@settings(deadline=None)
@given(damaged(requests()) | st.binary(max_size=200), cuts)
def test_damaged_requests_give_one_fault_at_most(data: bytes, at: list[int]) -> None:
    whole = seen(RequestParser().feed(data))
    parser = RequestParser()
    cut = seen([event for piece in pieces(data, at) for event in parser.feed(piece)])
    assert cut == whole
    faults = [event for event in whole if event[0] == "fault"]
    assert faults in ([], whole[-1:])


@settings(deadline=None)
@given(damaged(answers()) | st.binary(max_size=200), cuts)
def test_damaged_answers_give_one_fault_at_most(data: bytes, at: list[int]) -> None:
    parser = ResponseParser()
    parser.start()
    events = [event for piece in pieces(data, at) for event in parser.feed(piece)]
    events += parser.feed_eof()
    faults = [event for event in events if isinstance(event, FramingError)]
    assert len(faults) <= 1
    assert faults in ([], events[-1:])
    assert [event for event in seen(events) if event[0] in ("end", "fault")] == seen(events)[-1:]


@st.composite
def lasting(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A sound message of a client, and another one whose head differs in its length only, often damaged."""
    target = draw(st.sampled_from([b"/", b"/v1/x?a=b"]))
    lines = b"".join(b"%b: %b\r\n" % (n.encode(), v.encode()) for n, v in draw(extra))
    length_name = draw(st.sampled_from([b"Content-Length", b"content-length"]))
    head = b"POST %b HTTP/1.1\r\nHost: h\r\n%b%b:%b%d\r\n%b\r\n"
    blank = draw(st.sampled_from([b"", b" ", b"\t "]))
    behind = draw(st.sampled_from([b"", b"X-Last: 1\r\n"]))
    first, second = draw(st.binary(max_size=30)), draw(st.binary(max_size=2000))
    messages = [
        head % (target, lines, length_name, blank, len(body), behind) + body
        for body in (first, second)
    ]
    again = bytearray(messages[1])
    damage = st.tuples(st.integers(0, 200), st.integers(0, 2), st.binary(max_size=3))
    for at, n, byte in draw(st.lists(damage, max_size=2)):
        again[at : at + n] = byte
    more = draw(st.sampled_from([b"", b"\r\n", messages[0], b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"]))
    return messages[0], bytes(again) + more


@settings(deadline=None)
@given(lasting(), cuts)
def test_a_head_that_comes_again_is_read_as_if_it_were_the_first(
    messages: tuple[bytes, bytes], at: list[int]
) -> None:
    known, data = messages
    fresh, used = RequestParser(), RequestParser()
    assert used.feed(known)[-1] is MESSAGE_END
    expected = [event for piece in pieces(data, at) for event in fresh.feed(piece)]
    assert seen([e for piece in pieces(data, at) for e in used.feed(piece)]) == seen(expected)
    assert seen(used.feed(known)) == seen(fresh.feed(known))


_KNOWN = b"POST / HTTP/1.1\r\nContent-Length:0\r\n\r\n"
_WITH_A_LINE_BEHIND = b"POST / HTTP/1.1\r\nContent-Length:1\r\n\r\nx\r\n"


@settings(deadline=None)
@given(lasting(), cuts)
@example((_KNOWN, _WITH_A_LINE_BEHIND), [38])
@example((_KNOWN, _WITH_A_LINE_BEHIND), [39])
@example((_KNOWN, _WITH_A_LINE_BEHIND + b"x"), [38])
@example((_KNOWN, _WITH_A_LINE_BEHIND + b"x"), [39])
def test_an_answer_whose_head_comes_again_is_read_as_if_it_were_the_first(
    messages: tuple[bytes, bytes], at: list[int]
) -> None:
    known, data = (part.replace(b"POST / HTTP/1.1", b"HTTP/1.1 200 OK", 1) for part in messages)
    fresh, used = ResponseParser(), ResponseParser()
    used.start()
    if used.feed(known)[-1:] != [MESSAGE_END]:
        return
    used.start()
    fresh.start()
    for piece in pieces(data, at):
        assert seen(used.feed(piece)) == seen(fresh.feed(piece))
        assert used.can_reuse == fresh.can_reuse
    assert seen(used.feed_eof()) == seen(fresh.feed_eof())
