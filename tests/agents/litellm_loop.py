"""A tool loop on LiteLLM alone, as the agents built on it make one: MODEL, then one prompt a turn."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import litellm  # type: ignore[import-not-found]  # of the agents' environment

SHELL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
}


def main(model: str, prompts: list[str]) -> None:
    """Hold the conversation."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You run commands. " * 200}]
    for prompt in prompts:
        messages.append({"role": "user", "content": prompt})
        while True:
            chunks = litellm.completion(
                model=f"openai/{model}", messages=messages, tools=[SHELL], stream=True
            )
            answer = litellm.stream_chunk_builder(list(chunks)).choices[0].message
            calls = answer.tool_calls or []
            messages.append(answer.model_dump(exclude_none=True))
            for call in calls:
                command = json.loads(call.function.arguments)["command"]
                done = subprocess.run(
                    command, shell=True, capture_output=True, text=True, check=False
                )
                messages.append({"role": "tool", "tool_call_id": call.id, "content": done.stdout})
            if not calls:
                break


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
