"""What an engine is told of how urgent a request is, and by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from router.state.fleet.replica import Description
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import chat, client_of, post
from tests.doubles.scripted_replica import Call, ScriptedReplica, events, stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect

HINT = "x-override-priority"
LONG = "word " * 4_000
OTHERS = ("x-override-rid", "x-override-bootstrap-host", "x-override-routed-dp-rank")
SPOOFED = "".join(f"{name}: 9\r\n" for name in (HINT, "X-Override-Priority", *OTHERS))


class Listener:
    """A replica that keeps the hints of what came, "" where there was none."""

    def __init__(self) -> None:
        self.hints: list[str] = []
        self.others: set[str | None] = set()

    async def __call__(self, call: Call) -> None:
        """The script."""
        self.hints.append(call.header(HINT) or "")
        self.others |= {call.header(name) for name in OTHERS}
        await call.send(stream(events("fine")))


@pytest.mark.parametrize("has_priorities", [True, False])
async def test_a_warm_turn_is_more_urgent_than_a_cold_one_where_that_counts(
    table: Mapping[str, Dialect], *, has_priorities: bool
) -> None:
    engine = Listener()
    said = Description(models=("m",), has_priorities=has_priorities)
    async with (
        ScriptedReplica(engine) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        [it] = rig.core.fleet.replicas()
        rig.core.members.described(it.replica_id, said)
        for _ in range(2):
            await client.send(post(chat(text=LONG), extra=SPOOFED))
            answer = await client.read()
            assert answer.status == 200
        await client.send(
            post(b'{"model": "m", "prompt": "x"}', path="/v1/tokenize", extra=SPOOFED)
        )
        await client.read()
    turns = ["0", "1"] if has_priorities else ["", ""]
    assert engine.hints == [*turns, ""], "what generates nothing is no turn"
    assert engine.others == {None}, "that is for no client to say"
