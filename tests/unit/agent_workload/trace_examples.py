"""A few invented requests in every format."""

from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING, Any

from router.core import CoreParameters
from router.dialect.base import SessionSource
from router.recording.chains import ChainMemory, lengths_of
from router.recording.records import Arrive, Began, Finish, Header, Placed, Refusal
from router.recording.seal import Seal
from router.state.history import Outcome
from tests.doubles.recordings import SALT, packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.recording.records import Record


def weka_row(t: float, tokens: int, ids: list[int], **changes: object) -> dict[str, Any]:
    row: dict[str, Any] = {"t": t, "type": "s", "model": "opus", "in": tokens, "out": 5}
    row |= {"hash_ids": ids, "api_time": 2.0, "input_types": ["text"], "output_types": []}
    return {**row, "stop": "", "think_time": 1.0, **changes}


def weka_agent(t: float, rows: list[dict[str, Any]], **changes: object) -> dict[str, Any]:
    agent = {"t": t, "type": "subagent", "agent_id": "agent_001", "subagent_type": "Explore"}
    agent |= {"status": "completed", "duration_ms": 4_000, "total_tokens": 9, "tool_use_count": 1}
    agent |= {"models": ["haiku"], "tool_tokens": 64, "system_tokens": 0, "requests": rows}
    return {**agent, **changes}


def weka(rows: list[dict[str, Any]], **changes: object) -> bytes:
    trace = {"id": "trace_0001", "models": ["opus"], "block_size": 64, "hash_id_scope": "local"}
    totals = {"subagent_count": 1}
    trace |= {"tool_tokens": 64, "system_tokens": 64, "requests": rows, "totals": totals}
    return json.dumps({**trace, **changes}).encode()


WEKA = weka(
    [
        weka_row(0.0, 200, [1, 2, 3]),
        weka_row(10.0, 330, [1, 2, 3, 4, 5], ttft=0.5),
        weka_agent(
            17.0,
            [
                weka_row(0.0, 130, [1, 6], type="n", model="haiku"),
                weka_row(2.5, 200, [1, 6, 7], type="n", model="haiku", out=0),
            ],
        ),
        weka_row(18.0, 400, [1, 2, 3, 4, 5, 8], api_time=None),
        weka_row(30.0, 256, [1, 2, 3, 9], type="n"),
    ]
)


def mooncake_row(timestamp: float, tokens: int, output: int, ids: list[int]) -> dict[str, Any]:
    row = {"timestamp": timestamp, "input_length": tokens, "output_length": output}
    return {**row, "hash_ids": ids}


def lines(rows: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


MOONCAKE = lines(
    [
        mooncake_row(1_000, 1_000, 20, [0, 1]),
        mooncake_row(1_500, 2_000, 0, [0, 2, 3, 4]),
        mooncake_row(1_500, 600, 7, [0, 1]),
        mooncake_row(61_500, 100, 7, [5]),
    ]
)


def lmcache_row(at_s: float, text: str, answer: str, session: str) -> dict[str, Any]:
    row = {"timestamp": 1_700_000_000_000_000 + int(at_s * 1e6), "input": text, "output": answer}
    return {**row, "session_id": session}


HEAD = "You mend programs. " * 30
LMCACHE = lines(
    [
        lmcache_row(3.5, HEAD + "a" * 700, "run it", "s1"),
        lmcache_row(1.0, HEAD + "a" * 200, "look", "s1"),
        lmcache_row(2.0, HEAD + "b" * 10, "", "s2"),
    ]
)

AZURE = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    b"2023-11-16 18:17:03.9799600,4808,10\r\n"
    b"2023-11-16 18:17:04.0319600,3180,8\r\n"
    b"2023-11-16 18:17:05.0000000,0,0\r\n"
)


class RecordingWriter:
    """Writes a recording by hand: ``ask`` and ``answer`` at times of one's own."""

    def __init__(self) -> None:
        self._seal = Seal(SALT)
        self._chains = ChainMemory(10_000)
        self.records: list[Record] = [Header("test", "home", 1, CoreParameters(), 10_000)]
        self._n_asked = 0

    def ask(
        self,
        at_s: float,
        session: str,
        links: list[int],
        *,
        parent: str | None = None,
        is_refused: bool = False,
    ) -> int:
        """A request whose segments have 400 bytes each; answers its ticket."""
        chain, ends = array("Q", links), array("I", [400 * (i + 1) for i in range(len(links))])
        sealed = self._seal.session(session)
        shared = self._chains.shorten(sealed, chain, ends)
        self.records.append(
            Arrive(
                at_s,
                "openai-chat",
                self._seal.model("kimi"),
                sealed,
                SessionSource.HEADER,
                None if parent is None else self._seal.session(parent),
                is_stream=True,
                is_readable=True,
                output_tokens_max=None,
                head_segments=1,
                n_messages=len(links),
                back=shared.back,
                common=shared.common,
                links=self._seal.links(chain[shared.common :]),
                lengths_bytes=lengths_of(ends, shared),
            )
        )
        self._n_asked += 1
        ticket = self._n_asked
        if is_refused:
            self.records.append(Refusal("saturated", 1.0))
        else:
            self.records.append(Placed(ticket, ("r1",), "new", None, 0, 0))
        return ticket

    def answer(self, ticket: int, at_s: float, prompt: int | None, output: int | None) -> None:
        self.records.append(Began(ticket, at_s - 0.5))
        finished = Finish(ticket, at_s, Outcome.DONE, prompt, output, None, None, None)
        self.records.append(finished)

    def packed(self, *, end: str | None = "closed") -> bytes:
        return packed(self.records, end=end)


def recording() -> bytes:
    """Two turns of a session, one beside the second, a sub-agent, and one that was refused."""
    writer = RecordingWriter()
    first = writer.ask(100.0, "main", [1, 2])
    writer.answer(first, 103.0, 200, 30)
    second = writer.ask(105.0, "main", [1, 2, 3, 4])
    beside = writer.ask(106.0, "main", [1, 2, 9])
    child = writer.ask(107.0, "child", [1, 7], parent="main")
    writer.ask(107.5, "other", [1, 2, 3], is_refused=True)
    writer.answer(second, 110.0, 400, 40)
    writer.answer(beside, 111.0, None, None)
    writer.answer(child, 112.0, 200, 20)
    third = writer.ask(115.0, "main", [1, 2, 3, 4, 5])
    writer.answer(third, 116.0, 500, 50)
    return writer.packed()


EXAMPLES = {
    "weka": ("trace_0001.json", WEKA),
    "mooncake": ("trace.jsonl", MOONCAKE),
    "lmcache": ("s1.jsonl", LMCACHE),
    "azure": ("code.csv", AZURE),
    "recording": ("monday.rec", recording()),
}
