"""Rebuilds recorded prompts as chat requests for a live engine.

Each block of a trace becomes 256 bytes of reproducible text, 64 tokens for an engine that counts
four bytes a token; the tail behind the last full block is new each time. The leading blocks are
the system message, the others follow in user messages cut every 16 blocks. A full message leaves
out as many bytes as Kimi's template puts round it, so blocks and the engine's pages coincide. A
message that is not full yet is sent longer next time, which changes only what lies behind its last
shared block.

Accuracy with Kimi's template: two prompts share exactly the pages that their traces share, and a
prompt is 21 tokens longer than recorded (the last message's markers and the generation prompt).
Prompts are cut further where prompt and answer would not fit the context. Answers are not part of
the next prompt, as in the traces, where an answer's blocks appear first in the next input.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from sim.rng import stream
from sim.workload.traces.model import CONTEXT_TOKENS_MAX
from sim.workload.traces.weka_file import BLOCK_TOKENS
from sim.workload.turns import CHAT_PATH, AgentRequest, Answer, Turn
from sim.workload.wire import MODEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.workload.weka import Trace, TraceRow

BLOCK_BYTES: Final = BLOCK_TOKENS * 4
MESSAGE_BLOCKS: Final = 16
_SYSTEM_MARKER_BYTES: Final = len("<|im_system|>system<|im_middle|><|im_end|>")
_USER_MARKER_BYTES: Final = len("<|im_user|>user<|im_middle|><|im_end|>")
_SURPLUS_TOKENS: Final = 32  # of a rebuilt prompt, rounded up
_START_SHARES: Final = (0.25, 0.75)


class TraceReplay:
    """A source that plays traces, one after another on each lane, from a warm start.

    A lane's first trace starts at a random point between 25 and 75 % of it, its later ones at
    their beginning. Lanes share no blocks, also where they play the same trace.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        *,
        lanes: int,
        seed: int,
        context_tokens_max: int = CONTEXT_TOKENS_MAX,
    ) -> None:
        assert traces
        self._lanes = lanes
        self._context_tokens_max = context_tokens_max
        self._traces = traces
        self._seed = seed
        self._played: dict[int, int] = {}

    def next_session(self, lane: int) -> TraceSession:
        """The next trace for ``lane``; which one does not depend on how fast other lanes are."""
        serial = self._played.get(lane, 0)
        self._played[lane] = serial + 1
        trace = self._traces[(serial * self._lanes + lane) % len(self._traces)]
        start = 0
        if serial == 0:
            share = stream(self._seed, f"start/{lane}").uniform(*_START_SHARES)
            start = int(share * len(trace.rows))
        return TraceSession(
            trace,
            salt=f"{self._seed}/{lane}/{serial}",
            start=start,
            context_tokens_max=self._context_tokens_max,
        )


class TraceSession:
    """One trace, played from the row ``start`` to its end."""

    def __init__(
        self,
        trace: Trace,
        *,
        salt: str,
        start: int = 0,
        context_tokens_max: int = CONTEXT_TOKENS_MAX,
    ) -> None:
        assert 0 <= start < len(trace.rows), start
        self._context_tokens_max = context_tokens_max
        self.key = f"{trace.trace_id}-{hashlib.blake2b(salt.encode(), digest_size=6).hexdigest()}"
        self._trace = trace
        self._salt = f"{salt}/{trace.trace_id}/".encode()
        self._start = start
        self._row_index = start
        self._seen: set[int] = set()
        shortest_blocks = min(len(row.block_ids) for row in trace.rows)
        head_blocks = max(1, min(trace.head_tokens // BLOCK_TOKENS, shortest_blocks))
        self._messages = _Messages(self._salt, head_blocks)
        self._headers = (
            ("content-type", "application/json"),
            ("user-agent", "opencode/1.2 ai-sdk/openai-compatible/1.0"),
            ("x-session-affinity", self.key),
            ("x-session-id", self.key),
        )

    def next_turn(self) -> Turn | None:
        """The next recorded request, or None at the trace's end."""
        if self._row_index >= len(self._trace.rows):
            return None
        row = self._trace.rows[self._row_index]
        gap_s = 0.0 if self._row_index == self._start else row.gap_s
        self._row_index += 1
        return Turn(gap_s, self._request(row))

    def answered(self, answer: Answer) -> None:
        """Ignored: the next prompt is the recorded one, whatever the engine said."""

    def _request(self, row: TraceRow) -> AgentRequest:
        room_tokens = self._context_tokens_max - row.output_tokens - _SURPLUS_TOKENS
        input_tokens = min(row.input_tokens, max(1, room_tokens))
        block_ids = row.block_ids[: input_tokens // BLOCK_TOKENS]
        n_shared = _leading_run(block_ids, self._seen)
        self._seen.update(block_ids[n_shared:])
        tail = _pseudo_text(
            self._salt + b"tail/%d" % self._row_index, (input_tokens % BLOCK_TOKENS) * 4
        )
        body = b'{"model":"%s","max_tokens":%d,"messages":[%s]%s,"homeport_emulate":%s}' % (
            MODEL.encode(),
            row.output_tokens,
            self._messages.encoded(block_ids, tail),
            b',"stream":true,"stream_options":{"include_usage":true}',
            msgspec.json.encode({"output_tokens": row.output_tokens}),
        )
        shared_ratio = n_shared * BLOCK_TOKENS / input_tokens
        return AgentRequest(CHAT_PATH, self._headers, body, shared_ratio)


class _Messages:
    """The messages of the newest prompt, each kept encoded and reused while its blocks stay."""

    def __init__(self, salt: bytes, n_head_blocks: int) -> None:
        self._salt = salt
        self._n_head_blocks = n_head_blocks
        self._full: list[tuple[int, bytes]] = []  # (id of the last block, encoded message)

    def encoded(self, block_ids: Sequence[int], tail: bytes) -> bytes:
        """All messages of a prompt, joined by commas; ``tail`` ends the last one."""
        encoded: list[bytes] = []
        begin, end, index = 0, self._n_head_blocks, 0
        while end <= len(block_ids):
            encoded.append(self._message(index, block_ids[begin:end]))
            begin, end, index = end, end + MESSAGE_BLOCKS, index + 1
        del self._full[index:]
        rest = b"".join(map(self._block, block_ids[begin:])) + tail
        # A prompt ends with a user's message, if need be a short one of its own.
        encoded.append(_encode_message(max(1, index), rest or b"next"))
        return b",".join(encoded)

    def _message(self, index: int, block_ids: Sequence[int]) -> bytes:
        # An id stands for all before it, so the last id names the whole message.
        if index < len(self._full) and self._full[index][0] == block_ids[-1]:
            return self._full[index][1]
        del self._full[index:]
        marker_bytes = _USER_MARKER_BYTES if index else _SYSTEM_MARKER_BYTES
        text = b"".join(map(self._block, block_ids))[:-marker_bytes]
        message = _encode_message(index, text)
        self._full.append((block_ids[-1], message))
        return message

    def _block(self, block_id: int) -> bytes:
        return _pseudo_text(self._salt + b"%d" % block_id, BLOCK_BYTES)


def _encode_message(index: int, text: bytes) -> bytes:
    role = b"system" if index == 0 else b"user"
    return b'{"role":"%s","content":"%s"}' % (role, text)  # hex digits need no escapes


def _pseudo_text(key: bytes, size_bytes: int) -> bytes:
    return hashlib.shake_128(key).hexdigest((size_bytes + 1) // 2)[:size_bytes].encode()


def _leading_run(block_ids: Sequence[int], seen: set[int]) -> int:
    """How many leading ids are in ``seen``."""
    return next((i for i, block_id in enumerate(block_ids) if block_id not in seen), len(block_ids))
