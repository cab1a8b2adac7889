"""Paths of the engine that an operator lets through, and those that no pattern lets through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_CONTROL: Final = (
    "abort_request",
    "add_external_corpus",
    "begin_weight_update",
    "close_session",
    "configure_logging",
    "continue_generation",
    "destroy_weights_update_group",
    "dump_expert_distribution_record",
    "dumper",
    "end_weight_update",
    "flush_cache",
    "freeze_gc",
    "get_remote_instance",
    "get_server_info",
    "get_weights_by_name",
    "hicache",
    "init_weights",
    "list_external_corpora",
    "load_lora_adapter",
    "metrics",
    "open_session",
    "pause_generation",
    "pd_role_switch",
    "release_memory_occupation",
    "remote_instance",
    "remove_external_corpus",
    "resume_memory_occupation",
    "send_weights",
    "server_info",
    "set_internal_state",
    "set_trace_level",
    "slow_down",
    "start_",
    "stop_",
    "unload_lora_adapter",
    "update_weight",
    "weights_checker",
)
"""Beginnings of SGLang 0.5.23's paths that change a replica, bind a session to it or tell how it was
started. Which replica gets such a request is chance."""


class EnginePaths:
    """Whole paths, and beginnings of paths with ``*`` behind.

    A path by which an operator runs a replica is let through only where it is listed whole.
    """

    __slots__ = ("_starts", "_whole", "listed")

    def __init__(self, listed: Sequence[str]) -> None:
        self.listed = tuple(listed)
        self._whole = frozenset(path for path in listed if not path.endswith("*"))
        self._starts = tuple(path[:-1] for path in listed if path.endswith("*"))

    def has(self, path: str) -> bool:
        """Whether this path, decoded, is let through."""
        if path in self._whole:
            return True
        return path.startswith(self._starts) and not is_control(path)


def is_control(path: str) -> bool:
    """Whether a path, once what is empty and what leads back is taken out, is an operator's."""
    steps: list[str] = []
    for step in path.replace("\\", "/").split("/"):
        if step == "..":
            del steps[-1:]
        elif step not in ("", "."):
            steps.append(step)
    return bool(steps) and steps[0].lower().startswith(_CONTROL)
