"""The official clients come back by themselves on what they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anthropic
import openai
import pytest

from router.edge.bounds.limits import EdgeLimits
from tests.doubles.door_rig import front_door
from tests.doubles.scripted_replica import Call, ScriptedReplica, events, stream, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect

LIMITS = EdgeLimits(sweep_s=0.01, drain_s=2.0)
MESSAGE = (
    b'{"id":"msg_1","type":"message","role":"assistant","model":"m","stop_reason":"end_turn",'
    b'"stop_sequence":null,"content":[{"type":"text","text":"fine"}],'
    b'"usage":{"input_tokens":5,"output_tokens":1}}'
)


async def at_second_try(call: Call) -> None:
    """A replica that is full the first time."""
    if call.number == 0:
        await call.send(whole(b'{"message":"full","code":503}', status=b"503 Busy"))
    elif b"/v1/messages" in call.head:
        await call.send(whole(MESSAGE))
    else:
        await call.send(stream(events("fine")))


async def test_openai(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(at_second_try) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{rig.port}/v1", api_key="any") as client,
    ):
        chunks = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hello"}], stream=True
        )
        said = [chunk.choices[0].delta.content async for chunk in chunks]
        assert said == ["fine"]
        assert [record.outcome for record in rig.notes.records] == ["failed", "done"]


async def test_anthropic(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(at_second_try) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{rig.port}", api_key="any") as client,
    ):
        answer = await client.messages.create(
            model="m", max_tokens=5, messages=[{"role": "user", "content": "hello"}]
        )
        assert answer.stop_reason == "end_turn"
        assert [record.outcome for record in rig.notes.records] == ["failed", "done"]


async def test_a_loop_is_not_gone_round_again(table: Mapping[str, Dialect]) -> None:
    """SDKs repeat every 5xx; this one says not to."""
    async with front_door(dialects=table, limits=LIMITS) as rig:
        rig.lead_to(rig.port)
        url = f"http://127.0.0.1:{rig.port}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="any") as client:
            with pytest.raises(openai.APIStatusError) as refused:
                await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "hello"}]
                )
        assert refused.value.status_code == 508
        assert refused.value.response.headers["x-should-retry"] == "false"
        assert len(rig.notes.turned) == 1
