"""The endpoints that do not generate: health, loads, facts, tokenize, metrics, control."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web

from replica.hardware.models import KIMI_K26, KvDtype
from sim.live.rendering import pages, template
from sim.live.rendering.anthropic_bodies import MessagesBody, messages_prompt
from sim.live.rendering.bodies import (
    BadBodyError,
    ChatBody,
    TokenizeBody,
    chat_prompt,
    decode,
)
from sim.live.serving import chat_wire, messages_wire
from sim.live.serving.counters import exposition
from sim.live.serving.faults import Fault
from sim.live.serving.generation import JSON, require_json
from sim.live.serving.options import ENGINE_VERSION
from sim.live.serving.wire import encode, epoch_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.engine.requests import Loads
    from sim.live.serving.counters import Counters
    from sim.live.serving.faults import FaultPlan
    from sim.live.serving.options import EmulatorOptions
    from sim.live.serving.pacer import Pacer

_SECTIONS: Final = frozenset({"core", "memory", "spec", "lora", "disagg", "queues", "all"})
_KV_NAMES: Final = {KvDtype.FP8: "fp8_e4m3", KvDtype.BF16: "bfloat16"}
_DECODE_MOMENTS: Final = 6
_DISAGGREGATION: Final = (
    "prefill_bootstrap_queue_reqs",
    "prefill_inflight_queue_reqs",
    "decode_prealloc_queue_reqs",
    "decode_transfer_queue_reqs",
    "decode_retracted_queue_reqs",
    "kv_transfer_speed_gb_s",
    "kv_transfer_latency_ms",
)
_BAD_REQUEST: Final = 400
_UNAVAILABLE: Final = 503


class _AbortBody(msgspec.Struct):
    rid: str = ""
    abort_all: bool = False


class StateApi:
    """Answers about one replica."""

    def __init__(
        self,
        options: EmulatorOptions,
        pacer: Pacer,
        counters: Counters,
        faults: FaultPlan,
        *,
        is_draining: Callable[[], bool],
    ) -> None:
        self._options = options
        self._pacer = pacer
        self._counters = counters
        self._faults = faults
        self._is_draining = is_draining
        self._started_epoch_s = epoch_s()

    def routes(self) -> list[web.RouteDef]:
        """The routes that this class answers."""
        return [
            web.get("/health", self._health),
            web.get("/health_generate", self._health),
            web.get("/ready", self._ready),
            web.get("/v1/loads", self._get_loads),
            web.get("/v1/models", self._models),
            web.get("/v1/models/{model}", self._model),
            web.get("/model_info", self._model_info),
            web.get("/get_model_info", self._model_info),
            web.get("/server_info", self._server_info),
            web.get("/get_server_info", self._server_info),
            web.get("/metrics", self._metrics),
            web.post("/v1/tokenize", self._tokenize),
            web.post("/tokenize", self._tokenize),
            web.post("/v1/messages/count_tokens", self._count_tokens),
            web.get("/flush_cache", self._flush),
            web.post("/flush_cache", self._flush),
            web.post("/abort_request", self._abort),
            web.post("/emulator/fault", self._fault),
        ]

    async def _health(self, request: web.Request) -> web.Response:
        del request
        if not self._is_draining():
            # The engine looks for output once a second, so no answer comes sooner.
            await asyncio.sleep(self._options.health_check_s)
        return self._readiness()

    async def _ready(self, request: web.Request) -> web.Response:
        del request
        return self._readiness()

    def _readiness(self) -> web.Response:
        return web.Response(status=_UNAVAILABLE if self._is_draining() else 200)

    async def _get_loads(self, request: web.Request) -> web.Response:
        asked = set(request.query.get("include", "all").split(","))
        unknown = asked - _SECTIONS
        if unknown:
            message = f"include: unknown section {', '.join(sorted(unknown))}"
            return _chat_error(message)
        if "all" in asked:
            asked = set(_SECTIONS)
        now_s = epoch_s()
        rank = load_of(self._pacer.loads(), self._options, timestamp_s=now_s, sections=asked)
        stamp = dt.datetime.fromtimestamp(now_s, tz=dt.UTC)
        return _json(
            {
                "timestamp": stamp.isoformat(),
                "version": ENGINE_VERSION,
                "accelerator": self._options.facts.gpu,
                "num_accelerators": self._options.facts.tp,
                "loads": [rank] if request.query.get("dp_rank", "0") == "0" else [],
            }
        )

    async def _models(self, request: web.Request) -> web.Response:
        del request
        return _json({"object": "list", "data": [self._card()]})

    async def _model(self, request: web.Request) -> web.Response:
        if request.match_info["model"] != self._options.model:
            raise web.HTTPNotFound
        return _json(self._card())

    def _card(self) -> dict[str, Any]:
        return {
            "id": self._options.model,
            "object": "model",
            "created": int(self._started_epoch_s),
            "owned_by": "sglang",
            "root": self._options.model,
            "parent": None,
            "max_model_len": self._options.facts.context_tokens_max,
        }

    async def _model_info(self, request: web.Request) -> web.Response:
        del request
        return _json(
            {
                "model_path": self._options.model,
                "served_model_name": self._options.model,
                "tokenizer_path": self._options.model,
                "is_generation": True,
                "weight_version": "default",
                "load_format": "dummy",
                "reasoning_parser": "kimi_k2",
                "tool_call_parser": "kimi_k2",
                "disaggregation_mode": "null",
                "model_type": "kimi_k25",
                "architectures": ["KimiK25ForConditionalGeneration"],
            }
        )

    async def _server_info(self, request: web.Request) -> web.Response:
        del request
        facts = self._options.facts
        return _json(
            {
                "status": "ready",
                "version": ENGINE_VERSION,
                "model_path": self._options.model,
                "served_model_name": self._options.model,
                "tp_size": facts.tp,
                "dp_size": 1,
                "page_size": facts.page_tokens,
                "chunked_prefill_size": facts.chunk_tokens,
                "context_length": facts.context_tokens_max,
                "max_running_requests": facts.max_running_requests,
                "max_queued_requests": self._options.max_queued_requests,
                "max_total_num_tokens": facts.capacity_tokens,
                "max_req_input_len": facts.context_tokens_max - 1,
                "kv_cache_dtype": _KV_NAMES[facts.kv_dtype],
                "enable_hierarchical_cache": facts.host_capacity_tokens > 0,
                "launch_command": f"homeport emulate --profile {facts.name}",
                "frontend": "http",
                "internal_states": [{"last_gen_throughput": 0.0}],
                "startup_time": self._started_epoch_s,
                "kv_events": None,
                "homeport": {
                    "profile": facts.name,
                    "time_scale": self._options.time_scale,
                    "host_tokens": facts.host_capacity_tokens,
                },
            }
        )

    async def _metrics(self, request: web.Request) -> web.Response:
        del request
        text = exposition(self._counters, self._pacer.loads, self._options.model)
        content_type = "text/plain; version=0.0.4; charset=utf-8"
        return web.Response(body=text, headers={"Content-Type": content_type})

    async def _tokenize(self, request: web.Request) -> web.Response:
        raw = await request.read()
        try:
            require_json(request)
            body = decode(raw, TokenizeBody)
            if body.messages is not None:
                prompt = chat_prompt(decode(raw, ChatBody), self._options.template)
                tokens: Any = pages.token_ids(template.render(prompt))
                count: Any = len(tokens)
            elif isinstance(body.prompt, str):
                tokens = pages.token_ids(body.prompt.encode())
                count = len(tokens)
            elif body.prompt is not None:
                tokens = [pages.token_ids(text.encode()) for text in body.prompt]
                count = [len(ids) for ids in tokens]
            else:
                return _chat_error("prompt or messages must be given")
        except BadBodyError as error:
            return _chat_error(str(error))
        context_tokens = self._options.facts.context_tokens_max
        return _json({"tokens": tokens, "count": count, "max_model_len": context_tokens})

    async def _count_tokens(self, request: web.Request) -> web.Response:
        raw = await request.read()
        try:
            require_json(request)
            prompt = messages_prompt(decode(raw, MessagesBody), self._options.template)
            count = pages.prompt_tokens(template.render(prompt))
        except BadBodyError as error:
            body = encode(messages_wire.error_of(_BAD_REQUEST, str(error)))
            return web.Response(status=_BAD_REQUEST, body=body, content_type=JSON)
        return _json({"input_tokens": count})

    async def _flush(self, request: web.Request) -> web.Response:
        del request
        if self._pacer.flush():
            return web.Response(text="Cache flushed.\n")
        return web.Response(status=_BAD_REQUEST, text="Not flushed: requests wait or run.\n")

    async def _abort(self, request: web.Request) -> web.Response:
        try:
            body = decode(await request.read(), _AbortBody)
        except BadBodyError as error:
            return _chat_error(str(error))
        if body.abort_all or body.rid:
            self._pacer.cancel_all("" if body.abort_all else body.rid)
        return web.Response()

    async def _fault(self, request: web.Request) -> web.Response:
        try:
            self._faults.add(decode(await request.read(), Fault))
        except BadBodyError as error:
            return _chat_error(str(error))
        return web.Response()


def load_of(
    loads: Loads, options: EmulatorOptions, *, timestamp_s: float, sections: set[str]
) -> dict[str, Any]:
    """One rank's entry of ``/v1/loads`` with the sections asked for; times are engine time."""
    busy_s = loads.total_decode_busy_s
    throughput = loads.total_generated_tokens / busy_s if busy_s else 0.0
    entry: dict[str, Any] = {
        "timestamp": timestamp_s,
        "dp_rank": 0,
        "num_running_reqs": loads.running,
        "num_waiting_reqs": loads.waiting,
        "num_waiting_uncached_tokens": loads.waiting_uncached_tokens,
        "num_used_tokens": loads.used_tokens,
        "num_total_tokens": loads.used_tokens + loads.waiting_uncached_tokens,
        "num_active_tokens": loads.used_tokens,
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": loads.capacity_tokens,
        "max_running_requests": loads.max_running_requests,
        "token_usage": loads.usage_ratio,
        "gen_throughput": throughput,
        "cache_hit_rate": loads.hit_ratio,
        "utilization": loads.running / loads.max_running_requests,
        "total_prefill_uncached_tokens": loads.total_prefill_uncached_tokens,
        "total_prefill_busy_us": int(loads.total_prefill_busy_s * 1e6),
        "decode_moments": [0.0] * _DECODE_MOMENTS,
    }
    if "memory" in sections:
        kv_gb = loads.capacity_tokens * KIMI_K26.kv_bytes_per_token(options.facts.kv_dtype) / 1e9
        entry["memory"] = {
            "weight_gb": 0.0,
            "kv_cache_gb": round(kv_gb, 2),
            "graph_gb": 0.0,
            "token_capacity": loads.capacity_tokens,
        }
    if "disagg" in sections:
        entry["disaggregation"] = {"mode": "null", **dict.fromkeys(_DISAGGREGATION, 0)}
    if "spec" in sections and options.facts.verify_tokens > 1:
        accept_length = options.facts.accept_length
        accept_rate = (accept_length - 1) / (options.facts.verify_tokens - 1)
        entry["speculative"] = {"accept_length": accept_length, "accept_rate": accept_rate}
    if "queues" in sections:
        names = ("grammar", "paused", "retracted", "prealloc_ready")
        entry["queues"] = {"waiting": loads.waiting, **dict.fromkeys(names, 0)}
    return entry


def _json(value: object) -> web.Response:
    return web.Response(body=encode(value), content_type=JSON)


def _chat_error(message: str) -> web.Response:
    body = encode(chat_wire.error_of(_BAD_REQUEST, message))
    return web.Response(status=_BAD_REQUEST, body=body, content_type=JSON)
