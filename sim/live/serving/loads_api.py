"""The replica's numbers: ``/v1/loads`` as the engine told it last, and ``/metrics``."""

from __future__ import annotations

import datetime as dt
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from replica.hardware.models import KIMI_K26
from sim.live.serving.answers import answer, invalid
from sim.live.serving.counters import exposition
from sim.live.serving.options import ENGINE_VERSION
from sim.live.serving.wire import epoch_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.live.serving.counters import Counters
    from sim.live.serving.options import EmulatorOptions
    from sim.live.serving.pacer import Pacer

_SECTIONS: Final = frozenset({"core", "memory", "spec", "lora", "disagg", "queues", "all"})
_PREFIXES: Final = {"speculative": "spec", "disaggregation": "disagg"}
_EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"
_DISAGGREGATION: Final = {
    "mode": "null",
    "prefill_bootstrap_queue_reqs": 0,
    "prefill_inflight_queue_reqs": 0,
    "decode_prealloc_queue_reqs": 0,
    "decode_transfer_queue_reqs": 0,
    "decode_retracted_queue_reqs": 0,
    "kv_transfer_speed_gb_s": 0.0,
    "kv_transfer_latency_ms": 0.0,
}


class LoadsApi:
    """Load reports and metrics of one replica; durations in them are engine time."""

    def __init__(self, options: EmulatorOptions, pacer: Pacer, counters: Counters) -> None:
        self._options = options
        self._pacer = pacer
        self._counters = counters

    def routes(self) -> list[web.RouteDef]:
        """The routes that this class answers."""
        return [
            web.get("/v1/loads", self._loads, allow_head=False),
            web.get("/metrics", self._metrics, allow_head=False),
        ]

    async def _loads(self, request: web.Request) -> web.Response:
        try:
            rank = int(request.query.get("dp_rank", "0"))
        except ValueError as error:
            return invalid(f"dp_rank: {error}")
        asked = {part.strip() for part in (request.query.get("include") or "all").split(",")}
        if not asked <= _SECTIONS:
            # SGLang does not catch its own complaint about an unknown section.
            return web.Response(
                status=HTTPStatus.INTERNAL_SERVER_ERROR, text="Internal Server Error"
            )
        entries = [] if rank else [self._entry(asked)]
        if request.query.get("format") == "prometheus":
            text = "".join(_lines(entries[0])) if entries else "\n"
            return web.Response(body=text.encode(), headers={"Content-Type": _EXPOSITION})
        return answer(
            {
                "timestamp": dt.datetime.fromtimestamp(epoch_s(), tz=dt.UTC).isoformat(),
                "version": ENGINE_VERSION,
                "accelerator": self._options.facts.gpu,
                "num_accelerators": self._options.facts.tp,
                "loads": entries,
            }
        )

    def _entry(self, asked: set[str]) -> dict[str, Any]:
        """The rank's report with the sections asked for."""
        facts = self._options.facts
        report = self._pacer.report()
        total_tokens = report.used_tokens + report.waiting_tokens
        moments = report.decode_moments
        entry: dict[str, Any] = {
            "timestamp": self._pacer.epoch_of_s(report.at_s),
            "dp_rank": 0,
            "num_running_reqs": report.running,
            "num_waiting_reqs": report.waiting,
            "num_waiting_uncached_tokens": report.waiting_uncached_tokens,
            "num_used_tokens": report.used_tokens,
            "num_total_tokens": total_tokens,
            "num_active_tokens": total_tokens,
            "num_prealloc_ready_tokens": 0,
            "max_total_num_tokens": facts.capacity_tokens,
            "max_running_requests": facts.max_running_requests,
            "token_usage": round(report.used_tokens / facts.capacity_tokens, 4),
            "gen_throughput": round(report.generated_per_s, 2),
            "cache_hit_rate": round(report.hit_ratio, 4),
            "utilization": 0.0,
            "total_prefill_uncached_tokens": report.total_prefill_uncached_tokens,
            "total_prefill_busy_us": int(report.total_prefill_busy_s * 1e6),
            "decode_moments": None if moments is None else list(moments),
        }
        sections = _SECTIONS if "all" in asked else asked
        if "memory" in sections:
            kv_gb = facts.capacity_tokens * KIMI_K26.kv_bytes_per_token(facts.kv_dtype) / 1e9
            entry["memory"] = {
                "weight_gb": 0.0,
                "kv_cache_gb": round(kv_gb, 3),
                "graph_gb": 0.0,
                "token_capacity": facts.capacity_tokens,
            }
        if "spec" in sections and facts.verify_tokens > 1 and moments is not None:
            accept_rate = (facts.accept_length - 1) / (facts.verify_tokens - 1)
            entry["speculative"] = {
                "accept_length": facts.accept_length,
                "accept_rate": accept_rate,
            }
        if "disagg" in sections:
            entry["disaggregation"] = _DISAGGREGATION
        if "queues" in sections:
            names = ("grammar", "paused", "retracted", "prealloc_ready")
            entry["queues"] = {"waiting": report.waiting, **dict.fromkeys(names, 0)}
        return entry

    async def _metrics(self, request: web.Request) -> web.Response:
        del request
        pacer = self._pacer
        text = exposition(self._counters, pacer.loads(), pacer.report(), self._options)
        return web.Response(body=text, headers={"Content-Type": _EXPOSITION})


def _lines(entry: dict[str, Any]) -> Iterator[str]:
    """Every number of a report as a gauge."""
    rank = entry["dp_rank"]
    for key, value in entry.items():
        parts = {key: value}
        if isinstance(value, dict):
            prefix = _PREFIXES.get(key, key)
            parts = {f"{prefix}_{name}": number for name, number in value.items()}
        for name, number in parts.items():
            if name != "dp_rank" and isinstance(number, int | float):
                yield f'# TYPE sglang_{name} gauge\nsglang_{name}{{dp_rank="{rank}"}} {number}\n'
