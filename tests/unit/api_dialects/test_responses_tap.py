"""What an answer of ``/v1/responses`` says of itself, and how an error is said in its place."""

from __future__ import annotations

import json

import pytest

from router.dialect import DialectOptions, dialects
from router.dialect.base import StreamFault, Tap, Usage
from router.dialect.errors import openai_error
from router.dialect.stream.sse import event_data, split_events
from router.errors import CODES, RouterError, UpstreamStatus
from tests.doubles.responses_bytes import (
    RESPONSE_ID,
    RESPONSES,
    document,
    ending,
    event,
    failed,
    opening,
    words,
)

DIALECT = dialects(DialectOptions())[RESPONSES]
KEPT = dialects(DialectOptions())["/v1/responses/{id}"]
REPORTED = Usage(100, 5, 64)


def tap(*, is_stream: bool = True) -> Tap:
    return DIALECT.tap(is_stream=is_stream, strip_usage=False)


def followed(*chunks: bytes) -> Tap:
    reading = tap()
    for chunk in chunks:
        assert reading.feed(chunk) == chunk
    assert reading.finish() == b""
    return reading


def test_a_whole_stream() -> None:
    reading = tap()
    reading.feed(opening())
    assert not reading.has_begun
    reading.feed(words('"response.completed" "error"'))
    assert (reading.has_begun, reading.is_complete, reading.usage) == (True, False, None)
    reading.feed(ending())
    assert (reading.is_complete, reading.fault, reading.usage) == (True, None, REPORTED)
    assert reading.kept_id == ""


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_both_good_endings(status: str) -> None:
    reading = followed(opening(), words("a"), ending(status))
    assert (reading.is_complete, reading.fault, reading.usage) == (True, None, REPORTED)


def test_an_ending_alone_is_a_beginning() -> None:
    reading = followed(opening(), ending())
    assert (reading.has_begun, reading.is_complete) == (True, True)


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("The request queue is full.", 503),
        ("503: The request queue is full.", 503),
        ("Request waiting timeout reached.", 503),
        ("The request is aborted by a higher priority request.", 503),
        (
            "The input (9 tokens) is longer than the model's context length (8 tokens).",
            400,
        ),
        (
            "Requested token count exceeds the model's maximum context length of 8 tokens.",
            400,
        ),
        ("Generation aborted", 500),
    ],
)
def test_a_failure_before_the_first_word(message: str, status: int) -> None:
    told = opening() + failed(message)
    for cut in range(0, len(told), 7):
        reading = followed(told[:cut], told[cut:])
        assert (reading.has_begun, reading.is_complete) == (False, True)
        assert reading.fault == StreamFault(status, message)
        assert reading.usage is None


def test_a_failure_after_the_first_word() -> None:
    reading = followed(opening() + words("a") + failed("Generation aborted"))
    assert (reading.has_begun, reading.is_complete) == (True, True)
    assert reading.fault == StreamFault(500, "Generation aborted")


@pytest.mark.parametrize(
    "told",
    [
        event("error", code="server_error", message="Broken.", param=None),
        b'data: {"error":{"message":"Broken.","code":500}}\n\n',
    ],
)
def test_an_error_that_is_no_response(told: bytes) -> None:
    reading = followed(opening() + told)
    assert (reading.has_begun, reading.fault) == (False, StreamFault(500, "Broken."))


@pytest.mark.parametrize("error", [None, "text", 7, {"message": None}])
def test_a_failure_that_cannot_be_read(error: object) -> None:
    reading = followed(ending("failed", error=error))
    assert reading.fault is not None
    assert reading.fault.status == 500


def test_an_event_that_cannot_be_read_is_a_beginning() -> None:
    assert followed(b"data: hello\n\n").has_begun


@pytest.mark.parametrize(
    ("store", "kept_id"), [(True, RESPONSE_ID), (None, RESPONSE_ID), (False, "")]
)
def test_under_which_id_it_is_kept(store: object, kept_id: str) -> None:
    assert followed(opening(store=store)).kept_id == kept_id
    reading = tap(is_stream=False)
    reading.feed(json.dumps(document(store=store)).encode())
    reading.finish()
    assert reading.kept_id == kept_id


def test_a_last_event_of_three_megabytes_is_an_end() -> None:
    told = opening() + words("a") + ending(instructions="x" * 3_000_000)
    reading = followed(*[told[at : at + 65_536] for at in range(0, len(told), 65_536)])
    assert (reading.is_complete, reading.usage) == (True, REPORTED)


@pytest.mark.parametrize(
    ("body", "is_complete", "fault", "usage"),
    [
        (document(), True, None, REPORTED),
        (document("incomplete"), True, None, REPORTED),
        (document("queued"), True, None, None),
        (
            document("failed", error={"code": "server_error", "message": "Broken."}),
            True,
            StreamFault(500, "Broken."),
            None,
        ),
        ({"error": {"message": "The request queue is full."}}, True,
         StreamFault(503, "The request queue is full."), None),
        ({"status": 7}, True, None, None),
    ],
)  # fmt: skip
def test_bodies(
    body: object,
    is_complete: bool,  # noqa: FBT001
    fault: StreamFault | None,
    usage: Usage | None,
) -> None:
    reading = tap(is_stream=False)
    sent = json.dumps(body).encode()
    assert reading.feed(sent) == sent
    assert reading.finish() == b""
    assert (reading.is_complete, reading.fault, reading.usage) == (is_complete, fault, usage)


def test_a_body_that_is_cut() -> None:
    reading = tap(is_stream=False)
    reading.feed(b'{"id": "resp')
    reading.finish()
    assert not reading.is_complete


def test_what_is_shown_again_was_counted_before() -> None:
    reading = KEPT.tap(is_stream=False, strip_usage=False)
    reading.feed(json.dumps(document(store=True)).encode())
    reading.finish()
    assert (reading.is_complete, reading.usage, reading.kept_id) == (True, None, "")
    stream = KEPT.tap(is_stream=True, strip_usage=False)
    stream.feed(opening(store=True) + ending(store=True))
    assert (stream.has_begun, stream.is_complete, stream.usage) == (True, True, None)


# Errors of the router's own


def told(error: RouterError) -> dict[str, object]:
    (only,) = split_events(DIALECT.error_event(error))
    assert only.startswith(b"event: response.failed\n")
    said = json.loads(event_data(only) or b"")
    assert (said["type"], said["response"]["status"]) == ("response.failed", "failed")
    error_said: dict[str, object] = said["response"]["error"]
    return error_said


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_body_and_an_event(code: str) -> None:
    error = RouterError(code, "What happened.")
    assert json.loads(DIALECT.error_body(error)) == json.loads(openai_error(error))
    said = told(error)
    assert said["message"] == "What happened."
    assert said["code"] in ("server_error", "invalid_prompt")
    assert (said["code"] == "invalid_prompt") == (
        400 <= CODES[code] < 500 and code != "tenant-limit"
    )


def test_a_wait_is_said_in_words_that_codex_reads() -> None:
    said = told(RouterError("saturated", "Full.", retry_after_s=2.2))
    assert said == {"code": "rate_limit_exceeded", "message": "Full. Please try again in 3s."}


def test_a_client_is_told_that_its_own_fault_stays_one() -> None:
    assert told(UpstreamStatus("upstream-status", "Too long.", http_status=400)) == {
        "code": "invalid_prompt",
        "message": "Too long.",
    }
    text = "The input (9 tokens) is longer than the model's context length (8 tokens)."
    long = UpstreamStatus("upstream-status", text, http_status=400)
    assert told(long)["code"] == "context_length_exceeded"
    assert (
        told(UpstreamStatus("upstream-status", "Slow.", http_status=429))["code"] == "server_error"
    )


def test_a_message_is_always_valid_utf8() -> None:
    assert told(RouterError("internal", "a\nb \ud800"))["message"] == "a\nb ?"
