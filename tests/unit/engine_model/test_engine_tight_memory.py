"""Many requests in little memory: none is lost or stuck, whatever the order and wherever pages end."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace

import pytest

from replica.hardware.profiles import profile_named
from sim.engine.checks import check_events, check_schedule
from sim.engine.replica_model import ReplicaModel
from sim.engine.requests import EngineRequest, Event
from sim.engine.rules import ORDERS, EngineRules

PAGE = 64
FACTS = replace(
    profile_named("b200-tp4-fp8"),
    chunk_tokens=2_048,
    capacity_tokens=160 * PAGE,
    host_capacity_tokens=0,
    max_running_requests=12,
)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", [*range(1, 9), 44])
def test_every_request_ends_once(order: str, seed: int) -> None:
    """In seed 44 the last piece of a prompt, under a page, meets less memory than it has tokens."""
    dice = random.Random(seed)
    model = ReplicaModel(FACTS, rules=EngineRules(order=order))
    now_s = 0.0
    requests: list[EngineRequest] = []
    events: list[Event] = []
    for number in range(40):
        now_s += dice.expovariate(8.0)
        prompt_tokens, output_tokens = dice.randint(1, 4_000), dice.randint(1, 600)
        ids = array("Q", [(number << 32) + page for page in range(prompt_tokens // PAGE)])
        request = EngineRequest(
            f"r{number}",
            prompt_tokens,
            output_tokens,
            ids,
            output_tokens_max=output_tokens + dice.randint(0, 900),
        )
        events += model.advance(now_s, with_progress=False)
        model.submit(request, now_s)
        requests.append(request)
        check_schedule(model)
    while (at_s := model.next_at()) is not None:
        events += model.advance(at_s, with_progress=False)
        check_schedule(model)
    check_events(requests, events)
