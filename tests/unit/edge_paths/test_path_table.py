"""The table of paths: what a head leads to."""

from __future__ import annotations

import pytest

from router.dialect import FACTORIES, METHODS, DialectOptions, dialects
from router.edge.bounds.limits import EdgeLimits
from router.edge.routes.engine_paths import is_control
from router.edge.routes.routes import Route, Routes, route
from router.framing.events import RequestHead

DIALECTS = dialects(DialectOptions())
CHAT = DIALECTS["/v1/chat/completions"]
PATTERNS = {**DIALECTS, "/v1/things/{id}": CHAT, "/v1/things/{id}/cancel": CHAT}
TABLE = Routes(PATTERNS, ("/model_info", "/api/*"))


def found(path: str, method: str = "POST", *headers: tuple[bytes, bytes]) -> Route:
    head = RequestHead(
        method=method.encode(),
        target=path.encode(),
        headers=list(headers),
        content_length=2,
        is_chunked=False,
        keep_alive=True,
        expects_continue=False,
        http_version="1.1",
    )
    return route(head, TABLE, EdgeLimits())


@pytest.mark.parametrize("path", FACTORIES)
def test_every_path_takes_its_methods_and_no_other(path: str) -> None:
    methods = METHODS.get(path, (b"POST",))
    path = path.replace("{id}", "one")
    for method in ("GET", "POST", "PUT", "DELETE", "PATCH"):
        error = found(path, method).error
        assert (error is None) is (method.encode() in methods)
        assert error is None or error.code == "method-not-allowed"


@pytest.mark.parametrize(
    ("path", "variable", "is_forwarded", "is_other"),
    [
        ("/v1/things/a1", "a1", True, False),
        ("/v1/things/a%201?x=/y", "a 1", True, False),
        ("/v1/things/a1/cancel", "a1", True, False),
        ("/v1/things/", "", False, False),
        ("/v1/things//cancel", "", False, False),
        ("/v1/things/a1/b", "", False, False),
        ("/v1/chat%2Fcompletions", "", True, False),
        ("/model_info", "", True, True),
        ("/model_info/x", "", False, False),
        ("/api/", "", True, True),
        ("/api", "", False, False),
        ("/v1/models/x", "", False, False),
    ],
)
def test_patterns_and_engine_paths(
    path: str, variable: str, *, is_forwarded: bool, is_other: bool
) -> None:
    one = found(path)
    assert (one.variable, one.is_forwarded, one.is_other) == (variable, is_forwarded, is_other)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/messages/batches", "anthropic-messages"),
        ("/proxy/v1/messages", "anthropic-messages"),
        ("/v1/chat/completions/x", "openai-chat"),
        ("/nowhere", "openai-chat"),
    ],
)
def test_an_error_has_the_shape_of_the_nearest_api(path: str, name: str) -> None:
    assert found(path).dialect.name == name
    version = (b"anthropic-version", b"2023-06-01")
    assert found("/nowhere", "POST", version).dialect.name == "anthropic-messages"


@pytest.mark.parametrize(
    ("path", "is_it"),
    [
        ("/flush_cache", True),
        ("/x/../flush_cache", True),
        ("/x\\..\\flush_cache", True),
        ("/../../abort_request", True),
        ("/start_profile", True),
        ("/", False),
        ("", False),
        ("/v1/flush_cache", False),
        ("/classify", False),
        ("/invocations", False),
    ],
)
def test_what_is_an_operators(path: str, *, is_it: bool) -> None:
    assert is_control(path) is is_it
