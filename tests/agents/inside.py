"""Runs inside a network namespace that has nothing but loopback: fleet, router, and one agent.

Takes the name of an agent and a folder; prints as JSON how its commands ended, what the router knows of
its sessions, and its access log.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.agents.catalog import AGENTS, TOOL_TURNS  # noqa: E402
from tests.doubles.processes import stack  # noqa: E402

_COMMAND_S: Final = 120.0
_FIELD: Final = re.compile(r"(\w+)=(\S+)")


def main(name: str, place: Path) -> dict[str, Any]:
    """Let one agent do its commands."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    agent = next(agent for agent in AGENTS if agent.name == name)
    home, work = place / "home", place / "work"
    work.mkdir()
    home.mkdir()
    replica_flags = ("--output-tokens", "60", "--tool-turns", str(TOOL_TURNS))
    with stack(3, replica_flags=replica_flags) as started:
        router = started.router
        setting = agent.setting(str(agent.path), router.url)
        for path, text in setting.files.items():
            file = home / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "dumb"}
        environment |= setting.environment
        ended = [_ended(command, environment, work) for command in setting.commands]
        with urllib.request.urlopen(f"{router.admin_url}/sessions", timeout=10) as answer:
            sessions = json.load(answer)["sessions"]
    log = [dict(_FIELD.findall(line)) for line in router.lines if "homeport.access" in line]
    return {"ended": ended, "sessions": sessions, "log": log}


def _ended(command: list[str], environment: dict[str, str], work: Path) -> dict[str, Any]:
    """How one command ended: its exit code, and the end of what it printed."""
    done = subprocess.run(
        command,
        env=environment,
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=_COMMAND_S,
    )
    return {"code": done.returncode, "printed": done.stdout[-2_000:]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
