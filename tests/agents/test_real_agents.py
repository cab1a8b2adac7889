"""Real agents through the router, offline: recognised without configuration, every turn at its home.

`make test-agents` installs them. Each runs in a network namespace of its own that has only loopback, with
telemetry off, before three emulated replicas whose answers call the agent's shell.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.agents.catalog import AGENTS, Agent

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400)]

PAGE_TOKENS = 64
_ALONE = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
"""No network but loopback, and nothing that an agent leaves running outlives it."""
RUN_S = 360.0


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_an_agent_holds_its_session_at_one_replica(agent: Agent, tmp_path: Path) -> None:
    assert agent.path.exists(), f"{agent.path} is missing: run `make test-agents`"
    assert shutil.which("unshare"), "network namespaces need util-linux's unshare"
    script = Path(__file__).with_name("inside.py")
    done = subprocess.run(
        [*_ALONE, sys.executable, "-P", str(script), agent.name, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    told = json.loads(done.stdout)
    assert [command["code"] for command in told["ended"]] == [0] * len(told["ended"]), told["ended"]
    log = [entry for entry in told["log"] if "session" in entry]
    assert all(entry["outcome"] == "done" for entry in log), log
    (session, count), *_ = Counter(entry["session"] for entry in log).most_common(1)
    assert count >= agent.requests, told
    turns = [entry for entry in log if entry["session"] == session]
    assert {entry["source"] for entry in turns} == {agent.source}
    assert len({entry["replica"] for entry in turns}) == 1, turns
    # At its home a turn finds all that was said before: what one cache without an end would hold.
    missed = [int(entry["predicted"]) - int(entry["cached"]) for entry in turns]
    assert all(abs(tokens) <= 3 * PAGE_TOKENS for tokens in missed), turns
    known = [
        int(turn["cached"]) >= int(before["prompt"]) - 3 * PAGE_TOKENS
        for before, turn in pairwise(turns)
    ]
    assert sum(known) >= len(known) - 2, turns  # a title or another head may come in between
