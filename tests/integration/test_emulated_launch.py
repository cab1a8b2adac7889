"""An emulated launch is a process that says what the recipe's plan says."""

from __future__ import annotations

import json
import urllib.request

from replica.engines.emulated import launch_of
from tests.doubles.processes import COMMAND, end, start
from tests.unit.replica_recipes.setups import free_port, kimi


def test_the_process_has_the_sizes_of_the_plan() -> None:
    setup = kimi("throughput", gpu="b300", tp=8)
    launch = launch_of(setup, port=free_port(), command=COMMAND)
    process = start(*launch.argv[len(COMMAND) :])
    try:
        process.wait_ready()
        assert process.url == f"http://{launch.host}:{launch.port}"
        with urllib.request.urlopen(f"{process.url}/server_info", timeout=10) as answer:
            info = json.load(answer)
    finally:
        end(process)
    assert info["max_total_num_tokens"] == launch.capacity_tokens == setup.capacity_tokens
    assert info["max_running_requests"] == launch.inflight_max == 32
    assert info["served_model_name"] == launch.model
    assert info["schedule_policy"] == "shortest-prefill-first"
    assert info["prefill_decode_interval"] == 12
