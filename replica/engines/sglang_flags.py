"""The flags of SGLang 0.5.23 that recipes use, and what became of those that it no longer has."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from replica.errors import ReplicaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.settings import Recipe

VERSION: Final = "0.5.23"

DRAFT: Final = {
    "algorithm": "speculative-algorithm",
    "path": "speculative-draft-model-path",
    "revision": "speculative-draft-model-revision",
    "quantization": "speculative-draft-model-quantization",
    "block_tokens": "speculative-num-draft-tokens",
    "window_tokens": "speculative-draft-window-size",
    "attention_backend": "speculative-draft-attention-backend",
    "kv_dtype": "speculative-draft-kv-cache-dtype",
}
PLAIN: Final = {
    "kv_dtype": "kv-cache-dtype",
    "mem_fraction": "mem-fraction-static",
    "page_tokens": "page-size",
    "host_tier": "enable-hierarchical-cache",
    "host_gb_per_rank": "hicache-size",
    "host_write_policy": "hicache-write-policy",
    "host_io_backend": "hicache-io-backend",
    "policy": "schedule-policy",
    "running_max": "max-running-requests",
    "queued_max": "max-queued-requests",
    "chunk_tokens": "chunked-prefill-size",
    "context_tokens_max": "context-length",
    "min_free_slots_delay": "min-free-slots-delay",
    "prefill_decode_interval": "prefill-decode-interval",
    "reasoning_parser": "reasoning-parser",
    "tool_call_parser": "tool-call-parser",
    "metrics": "enable-metrics",
    "cache_report": "enable-cache-report",
    "kv_events": "kv-events-config",
    "load_publishing": "load-publish-endpoint",
}
"""What a recipe says in its own words; these may not stand in its ``flags`` as well."""
OWN: Final = frozenset({
    "model-path", "model", "revision", "served-model-name", "host", "port", "tp-size",
    "tensor-parallel-size", "trust-remote-code", "quantization",
    *DRAFT.values(), *PLAIN.values(),
})  # fmt: skip

SWITCH, NUMBER, WORD = bool, (int, float), str
FLAGS: Final[dict[str, type | tuple[type, ...]]] = {
    "abort-on-priority-when-disabled": SWITCH,
    "allow-auto-truncate": SWITCH,
    "attention-backend": WORD,
    "chat-template": WORD,
    "crash-dump-folder": WORD,
    "cuda-graph-backend-decode": WORD,
    "cuda-graph-backend-prefill": WORD,
    "cuda-graph-max-bs-decode": NUMBER,
    "cuda-graph-max-bs-prefill": NUMBER,
    "decode-attention-backend": WORD,
    "decode-log-interval": NUMBER,
    "default-chat-template-kwargs": WORD,
    "device": WORD,
    "disable-custom-all-reduce": SWITCH,
    "disable-decode-cuda-graph": SWITCH,
    "disable-flashinfer-autotune": SWITCH,
    "disable-overlap-schedule": SWITCH,
    "disable-prefill-cuda-graph": SWITCH,
    "disable-radix-cache": SWITCH,
    "disable-shared-experts-fusion": SWITCH,
    "dist-timeout": NUMBER,
    "download-dir": WORD,
    "enable-mixed-chunk": SWITCH,
    "enable-nccl-nvls": SWITCH,
    "enable-priority-scheduling": SWITCH,
    "enable-request-time-stats-logging": SWITCH,
    "enable-response-store": SWITCH,
    "enable-symm-mem": SWITCH,
    "ep-size": NUMBER,
    "flashinfer-allreduce-fusion-backend": WORD,
    "fp4-gemm-backend": WORD,
    "fp8-gemm-backend": WORD,
    "grammar-backend": WORD,
    "hicache-mem-layout": WORD,
    "incremental-streaming-output": SWITCH,
    "load-format": WORD,
    "load-snapshot-publish-interval": NUMBER,
    "log-level": WORD,
    "log-level-http": WORD,
    "max-prefill-tokens": NUMBER,
    "max-total-tokens": NUMBER,
    "mm-attention-backend": WORD,
    "moe-runner-backend": WORD,
    "nccl-port": NUMBER,
    "numa-node": WORD,
    "prefill-attention-backend": WORD,
    "prefill-max-requests": NUMBER,
    "priority-scheduling-preemption-threshold": NUMBER,
    "radix-eviction-policy": WORD,
    "random-seed": NUMBER,
    "retraction-policy": WORD,
    "sampling-backend": WORD,
    "sampling-defaults": WORD,
    "schedule-conservativeness": NUMBER,
    "skip-server-warmup": SWITCH,
    "sleep-on-idle": SWITCH,
    "soft-watchdog-timeout": NUMBER,
    "speculative-attention-mode": WORD,
    "speculative-moe-runner-backend": WORD,
    "speculative-use-block-verification": SWITCH,
    "stream-interval": NUMBER,
    "strip-thinking-cache": SWITCH,
    "tokenizer-path": WORD,
    "tokenizer-worker-num": NUMBER,
    "warmups": WORD,
    "watchdog-timeout": NUMBER,
}
"""Flags that a recipe may give besides, and what their values are."""

RENAMED: Final = {
    "cuda-graph-max-bs": "cuda-graph-max-bs-decode (and cuda-graph-max-bs-prefill)",
    "cuda-graph-bs": "cuda-graph-bs-decode (and cuda-graph-bs-prefill)",
    "disable-cuda-graph": "cuda-graph-backend-decode and cuda-graph-backend-prefill, value disabled",
    "disable-piecewise-cuda-graph": "cuda-graph-backend-prefill",
    "enable-dp-attention": "attn-dp-size",
    "enable-piecewise-cuda-graph": "cuda-graph-backend-prefill",
    "fp4-gemm-runner-backend": "fp4-gemm-backend",
    "speculative-dflash-draft-window-size": "speculative-draft-window-size",
}
"""Flags of older recipes that are gone or going, and what they are now."""
GONE_VARIABLES: Final = {"SGLANG_ENABLE_SPEC_V2": "nothing: overlap is the default"}
"""Variables of older recipes that mean nothing any more."""


def checked_flags(recipe: Recipe) -> Iterator[tuple[str, bool | int | float | str]]:
    """The recipe's own flags, each known and of the right kind.

    Raises:
        ReplicaError: ``flag-renamed``, ``unknown-flag`` or ``bad-value``.
    """
    for name, successor in GONE_VARIABLES.items():
        if name in recipe.environment:
            raise ReplicaError(
                "flag-renamed",
                f"{recipe.name}: SGLang {VERSION} has no variable {name}; use {successor}",
            )
    for name, choice in recipe.flags.items():
        kind = FLAGS.get(name)
        if kind is None:
            raise _unknown(recipe.name, name)
        is_switch = isinstance(choice.value, bool)
        if is_switch != (kind is SWITCH) or not isinstance(choice.value, kind):
            wanted = "true" if kind is SWITCH else "a number" if kind == NUMBER else "a text"
            raise ReplicaError(
                "bad-value", f"{recipe.name}: flags.{name} is {choice.value!r}, expected {wanted}"
            )
        yield name, choice.value


def _unknown(recipe: str, name: str) -> ReplicaError:
    if name in RENAMED:
        return ReplicaError(
            "flag-renamed", f"{recipe}: SGLang {VERSION} has no --{name}; it is now {RENAMED[name]}"
        )
    if name in OWN:
        return ReplicaError(
            "unknown-flag", f"{recipe}: --{name} has a key of its own in a recipe, outside flags"
        )
    close = get_close_matches(name, FLAGS, n=1)
    hint = f"; did you mean --{close[0]}?" if close else ""
    return ReplicaError("unknown-flag", f"{recipe}: flags.{name} is no flag that recipes use{hint}")
