"""Whatever is asked, the router answers what the engine would have answered.

500 requests go to one real replica directly and through a router in front of it. Status and body
are the same but for ids, times and how text was cut into chunks, or the difference is one of the
list in ``docs/engines.md``.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import pytest

from tests.doubles.engines import FLEET, ROOT, Member
from tests.doubles.processes import running
from tests.engine.request_generator import Generator, Request

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.engine

SEED: Final = 20_261_130
N_REQUESTS: Final = 500
VARYING: Final = re.compile(
    r"^(id|created|metadata|prompt_tokens_details|cached_tokens\w*|cache_read_input_tokens"
    r"|input_tokens|scores|.*_(time|wait|ts|latency|throughput))$"
)
"""Members that differ between two runs of one request: names, clocks, and what was cached."""


class Answer:
    """One answer, as far as two runs of a request agree on it."""

    def __init__(self, status: int, kind: str, body: bytes, code: str) -> None:
        self.status = status
        self.body = body
        self.code = code
        self.is_stream = kind.startswith("text/event-stream")
        self.said = self._told() if self.is_stream else _plain(_json(body))

    def _told(self) -> dict[str, Any]:
        """A stream as what its events say together: text by answer, ends, errors, usage, the end mark."""
        told: dict[str, Any] = {
            "texts": {},
            "ends": {},
            "errors": [],
            "usage": None,
            "kinds": set(),
        }
        for block in self.body.decode().split("\n\n"):
            data = block.rpartition("data: ")[2]
            if data == "[DONE]":
                told["kinds"].add(data)
            elif data:
                _tell(told, json.loads(data))
        return told

    @property
    def error(self) -> str:
        """The text of its error, "" if it is none."""
        if self.is_stream:
            return str(self.said["errors"][0]) if self.said["errors"] else ""
        return self.body.decode(errors="replace") if self.status >= 400 else ""


def _tell(told: dict[str, Any], event: dict[str, Any]) -> None:
    if "error" in event:
        error = event["error"]
        told["errors"].append(error["message"] if isinstance(error, dict) else error)
        return
    told["kinds"].add(event.get("type") or event.get("object") or "native")
    if event.get("usage") and not event.get("choices"):
        told["usage"] = _plain(event["usage"])
    for choice in event.get("choices", ()):
        delta = choice.get("delta", choice)
        words = [delta.get(name) for name in ("reasoning_content", "content", "text")]
        at = choice["index"]
        told["texts"][at] = told["texts"].get(at, "") + "".join(word for word in words if word)
        told["ends"][at] = choice.get("finish_reason") or told["ends"].get(at)
    if "meta_info" in event:
        at = event.get("index", 0)
        told["texts"][at] = event["text"]
        told["ends"][at] = event["meta_info"]["finish_reason"]
    delta = event.get("delta", {})
    words = [delta.get(name) for name in ("text", "thinking", "partial_json")]
    told["texts"][-1] = told["texts"].get(-1, "") + "".join(word for word in words if word)
    told["ends"][-1] = delta.get("stop_reason") or told["ends"].get(-1)


def _plain(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """A value without what differs between two runs."""
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items() if not VARYING.match(key)}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value


def _json(body: bytes) -> Any:  # noqa: ANN401  # any JSON value
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")


# What is known to differ; each is a row of the table in docs/engines.md.


def _is_no_json(request: Request, direct: Answer, routed: Answer) -> bool:
    """The engine itself answers 400, or fails (a JSON text in the place of an object)."""
    del request
    return direct.status in (400, 500) and routed.code == "bad-request"


def _is_wrong_method(request: Request, direct: Answer, routed: Answer) -> bool:
    del request
    return direct.status == routed.status == 405 and routed.code == "method-not-allowed"


def _is_told_as_a_status(request: Request, direct: Answer, routed: Answer) -> bool:
    """The engine answers 200 and an error event, before any event of the model."""
    del request
    if not direct.is_stream or routed.is_stream or routed.code != "upstream-status":
        return False
    return direct.error in routed.error and not any(direct.said["texts"].values())


def _is_unknown_model(request: Request, direct: Answer, routed: Answer) -> bool:
    del request, direct
    return routed.status == 404 and routed.code == "unknown-model"


KNOWN: Final[dict[str, Callable[[Request, Answer, Answer], bool]]] = {
    "no JSON object": _is_no_json,
    "another method": _is_wrong_method,
    "an error event before the first": _is_told_as_a_status,
    "a model nobody serves": _is_unknown_model,
}


def _afresh() -> aiohttp.TCPConnector:
    """A connection for each request."""
    return aiohttp.TCPConnector(force_close=True)


async def _ask(http: aiohttp.ClientSession, request: Request) -> Answer:
    headers = {"Content-Type": request.content_type}
    async with http.request(
        request.method, request.path, data=request.body, headers=headers
    ) as response:
        body = await response.read()
        code = response.headers.get("x-homeport-error", "")
        return Answer(response.status, response.content_type, body, code)


def test_every_known_difference_is_documented() -> None:
    page = (ROOT / "docs" / "engines.md").read_text()
    for name in KNOWN:
        assert f"| {name} |" in page


@pytest.mark.timeout(600)
async def test_the_router_answers_what_the_engine_answers(engines: dict[str, Member]) -> None:
    member = engines[FLEET[0].name]
    make = Generator(random.Random(SEED))
    met: Counter[str] = Counter()
    with running("serve", "--port", "0", "--admin-port", "0", "--replica", member.url) as router:
        limit = aiohttp.ClientTimeout(total=60)
        # The engine closes some connections behind an answer without saying so.
        async with (
            aiohttp.ClientSession(member.url, timeout=limit, connector=_afresh()) as engine,
            aiohttp.ClientSession(router.url, timeout=limit, connector=_afresh()) as door,
        ):
            for number in range(N_REQUESTS):
                request = make.next()
                direct = await _ask(engine, request)
                routed = await _ask(door, request)
                if direct.status == routed.status and direct.said == routed.said:
                    met["the same"] += 1
                    continue
                known: list[str] = [
                    name for name, is_met in KNOWN.items() if is_met(request, direct, routed)
                ]
                assert known, (
                    f"seed {SEED}, request {number}: {request}\n"
                    f"directly: {direct.status} {direct.body.decode(errors='replace')[:2000]}\n"
                    f"routed: {routed.status} {routed.body.decode(errors='replace')[:2000]}"
                )
                met[known[0]] += 1
    sys.stderr.write(f"seed {SEED}: {dict(met)}\n")
    assert met["the same"] > N_REQUESTS // 2
    assert set(met) == {"the same", *KNOWN}
