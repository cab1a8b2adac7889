"""The load of a replica from its Prometheus page, where it has no ``/v1/loads``.

A page has hundreds of kilobytes of which a dozen lines matter: those are looked for by name, and the rest
is not read.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, Final, NamedTuple

from router.control.observe.reports import RankReport

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE_BYTES_MAX: Final = 4 << 20
_SAMPLES_MAX: Final = 4_096
_RANK: Final = re.compile(rb'(?:^|,)(?:dp_rank|engine)="(\d{1,4})"')
_OTHER_RANK: Final = re.compile(rb'(?:^|,)(?:tp_rank|pp_rank)="(?!0")')
"""Tensor and pipeline ranks beyond the first say of the same requests what the first says."""


class _Names(NamedTuple):
    """An engine's names: gauges, the share of its KV in use, prefilled tokens, totals that move."""

    running: bytes
    waiting: bytes
    used_ratio: tuple[bytes, ...]
    prefilled: bytes
    prefilled_label: bytes
    moving: tuple[bytes, ...]


_SGLANG: Final = _Names(
    running=b"sglang:num_running_reqs",
    waiting=b"sglang:num_queue_reqs",
    used_ratio=(b"sglang:token_usage",),
    prefilled=b"sglang:realtime_tokens_total",
    prefilled_label=b'mode="prefill_compute"',
    moving=(b"sglang:realtime_tokens_total", b"sglang:generation_tokens_total"),
)
_VLLM: Final = _Names(
    running=b"vllm:num_requests_running",
    waiting=b"vllm:num_requests_waiting",
    used_ratio=(b"vllm:kv_cache_usage_perc", b"vllm:gpu_cache_usage_perc"),
    prefilled=b"",  # its prompt tokens include the cached ones
    prefilled_label=b"",
    moving=(b"vllm:prompt_tokens_total", b"vllm:generation_tokens_total"),
)


def read_page(body: bytes) -> list[RankReport] | None:
    """The load of each data-parallel rank; None where the page tells of no running requests.

    A report's time is not on the page: the sum of what only grows while an engine works stands for it.
    """
    page = b"\n" + body
    for names in (_SGLANG, _VLLM):
        running = _by_rank(page, names.running)
        if running:
            break
    else:
        return None
    waiting = _by_rank(page, names.waiting)
    used = {rank: v for name in names.used_ratio for rank, v in _by_rank(page, name).items()}
    prefilled = _by_rank(page, names.prefilled, names.prefilled_label)
    moving = sum(sum(_by_rank(page, name).values()) for name in names.moving)
    return [
        RankReport(
            dp_rank=rank,
            timestamp=moving,
            num_running_reqs=value,
            num_waiting_reqs=waiting.get(rank, 0.0),
            token_usage=used.get(rank),
            total_prefill_uncached_tokens=prefilled.get(rank, 0.0),
        )
        for rank, value in sorted(running.items())
    ]


def _by_rank(page: bytes, name: bytes, label: bytes = b"") -> dict[int, float]:
    """The sum of a metric's samples for each data-parallel rank."""
    found: dict[int, float] = {}
    if not name:
        return found
    for labels, value in _samples(page, name):
        if _OTHER_RANK.search(labels) or label not in labels:
            continue
        match = _RANK.search(labels)
        rank = int(match[1]) if match else 0
        found[rank] = found.get(rank, 0.0) + value
    return found


def _samples(page: bytes, name: bytes) -> Iterator[tuple[bytes, float]]:
    """Labels and value of each line of a metric; what is no sample is passed over."""
    needle = b"\n" + name
    at = page.find(needle)
    for _ in range(_SAMPLES_MAX):
        if at < 0:
            return
        end = page.find(b"\n", at + 1)
        rest = page[at + len(needle) : end if end >= 0 else len(page)]
        at = page.find(needle, at + 1)
        labels, bracket, value = rest[1:].rpartition(b"}") if rest[:1] == b"{" else (b"", b"", rest)
        if not bracket and rest[:1] not in (b" ", b"\t"):
            continue  # another metric, whose name begins so
        try:
            number = float(value.split()[0])
        except (ValueError, IndexError):
            continue
        if isfinite(number):
            yield labels, number
