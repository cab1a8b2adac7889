"""The real agents: how each is told where its model is, and what it is asked to do."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).parents[2]
INSTALLED: Final = ROOT / ".venv-agents"
MODEL: Final = "kimi-k2.6"
TOOL_TURNS: Final = 4
"""Answers in a row that call the agent's shell; the one behind them ends the turn."""

FIRST: Final = "Run the steps one by one."
SECOND: Final = "And once more."


@dataclass(frozen=True)
class Setting:
    """What an agent is given: its environment, files below its home, and its commands in order."""

    environment: dict[str, str]
    commands: list[list[str]]
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Agent:
    """One agent.

    ``source`` is where the router must find its session; ``requests`` how many a whole run sends at
    least, auxiliary ones aside; ``setting`` is made for the router's URL.
    """

    name: str
    program: str
    source: str
    requests: int
    setting: Callable[[str, str], Setting]

    @property
    def path(self) -> Path:
        """The installed program."""
        return INSTALLED / self.program


def _claude_code(program: str, url: str) -> Setting:
    usual = ["--allowedTools", "Bash", "--output-format", "json"]
    return Setting(
        {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "sk-none",
            "ANTHROPIC_MODEL": MODEL,
            "ANTHROPIC_SMALL_FAST_MODEL": MODEL,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
        },
        [[program, "-p", FIRST, *usual], [program, "-p", SECOND, "--continue", *usual]],
    )


def _codex(program: str, url: str) -> Setting:
    config = f"""\
model = "{MODEL}"
model_provider = "homeport"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.homeport]
name = "homeport"
base_url = "{url}/v1"
env_key = "FRONT_DOOR_KEY"
wire_api = "responses"
"""
    usual = ["--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check"]
    return Setting(
        {"FRONT_DOOR_KEY": "sk-none"},
        [[program, "exec", *usual, FIRST], [program, "exec", "resume", "--last", *usual, SECOND]],
        {".codex/config.toml": config},
    )


def _opencode(program: str, url: str) -> Setting:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "homeport",
        "options": {"baseURL": f"{url}/v1", "apiKey": "sk-none"},
        "models": {MODEL: {"name": MODEL, "limit": {"context": 200_000, "output": 32_000}}},
    }
    config = {
        "share": "disabled",
        "autoupdate": False,
        "model": f"homeport/{MODEL}",
        "small_model": f"homeport/{MODEL}",
        "permission": {"bash": "allow"},
        "provider": {"homeport": provider},
    }
    return Setting(
        {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        [[program, "run", FIRST], [program, "run", "-c", SECOND]],
        {".config/opencode/opencode.json": json.dumps(config)},
    )


def _cline(program: str, url: str) -> Setting:
    sign_in = [program, "auth", "openai", "-k", "sk-none", "-m", MODEL, "-b", f"{url}/v1"]
    return Setting(
        {"CLINE_TELEMETRY_DISABLED": "1", "DO_NOT_TRACK": "1"}, [sign_in, [program, FIRST]]
    )


def _litellm_environment(url: str) -> dict[str, str]:
    return {
        "OPENAI_API_KEY": "sk-none",
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_BASE_URL": f"{url}/v1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def _mini_swe_agent(program: str, url: str) -> Setting:
    more = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"}
    usual = ["-y", "--exit-immediately", "-l", "0"]
    command = [program, "-m", f"openai/{MODEL}", "-t", FIRST, *usual]
    return Setting(_litellm_environment(url) | more, [command])


def _aider(program: str, url: str) -> Setting:
    usual = [
        *("--model", f"openai/{MODEL}", "--no-git", "--no-check-update", "--analytics-disable"),
        *("--no-show-model-warnings", "--yes-always", "--no-suggest-shell-commands"),
    ]
    again = [program, *usual, "--restore-chat-history", "--message", SECOND]
    return Setting(_litellm_environment(url), [[program, *usual, "--message", FIRST], again])


def _litellm(program: str, url: str) -> Setting:
    script = str(Path(__file__).with_name("litellm_loop.py"))
    return Setting(_litellm_environment(url), [[program, script, MODEL, FIRST, SECOND]])


_BOTH_TURNS: Final = 2 * (TOOL_TURNS + 1)

AGENTS: Final = (
    Agent("claude-code", "npm/node_modules/.bin/claude", "header", _BOTH_TURNS, _claude_code),
    Agent("codex", "npm/node_modules/.bin/codex", "header", _BOTH_TURNS, _codex),
    Agent("opencode", "npm/node_modules/.bin/opencode", "header", _BOTH_TURNS, _opencode),
    Agent("cline", "npm/node_modules/.bin/cline", "chain", TOOL_TURNS + 1, _cline),
    Agent("mini-swe-agent", "mini-swe-agent/bin/mini", "chain", TOOL_TURNS + 1, _mini_swe_agent),
    Agent("aider", "aider/bin/aider", "chain", 2, _aider),
    Agent("litellm", "mini-swe-agent/bin/python", "chain", _BOTH_TURNS, _litellm),
)
