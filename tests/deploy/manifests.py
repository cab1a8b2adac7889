"""Reads what ``deploy/`` ships, as the tests compare it with the code."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
DOCKERFILE: Final = ROOT / "deploy" / "docker" / "router.Dockerfile"
COMPOSE: Final = ROOT / "deploy" / "compose" / "compose.yaml"

Instruction = tuple[str, str]


def stages() -> list[list[Instruction]]:
    """The Dockerfile's stages: keyword and arguments of each instruction, lines joined."""
    kept = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    found: list[list[Instruction]] = []
    for line in "\n".join(kept).replace("\\\n", " ").splitlines():
        keyword, _, arguments = line.strip().partition(" ")
        if keyword == "FROM":
            found.append([])
        if keyword:
            found[-1].append((keyword, arguments.strip()))
    return found


def of_image(keyword: str) -> list[str]:
    """The arguments of every instruction of this keyword in the stage that becomes the image."""
    return [arguments for word, arguments in stages()[-1] if word == keyword]


def image_environment() -> dict[str, str]:
    """What the image sets, but for PATH."""
    pairs = [pair.partition("=") for line in of_image("ENV") for pair in shlex.split(line)]
    return {name: value for name, _, value in pairs if name != "PATH"}


def image_command() -> list[str]:
    """The whole command of a container that is told nothing."""
    (entry,), (arguments,) = of_image("ENTRYPOINT"), of_image("CMD")
    words: list[str] = json.loads(entry) + json.loads(arguments)
    return words


def image_check() -> list[str]:
    """The command of the image's health check."""
    (line,) = of_image("HEALTHCHECK")
    words: list[str] = json.loads(line.partition("CMD ")[2])
    return words


def copied() -> list[str]:
    """The paths of the repository that the image is built from."""
    return [
        path.rstrip("/")
        for stage in stages()
        for word, arguments in stage
        if word == "COPY" and not arguments.startswith("--from")
        for path in arguments.split()[:-1]
    ]


def services() -> dict[str, dict[str, Any]]:
    """The compose file's services by name."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def emulated() -> dict[str, dict[str, Any]]:
    """The services that are emulated replicas."""
    return {name: row for name, row in services().items() if name != "router"}


def option(command: list[str], name: str) -> str:
    """The value of a flag in a command."""
    return command[command.index(name) + 1]
