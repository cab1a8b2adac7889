"""What the replica is: ``/v1/models``, ``/model_info`` and ``/server_info``."""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from replica.hardware.models import KvDtype
from sim.live.serving.answers import answer
from sim.live.serving.options import ENGINE_VERSION
from sim.live.serving.wire import epoch_s

if TYPE_CHECKING:
    from sim.live.serving.options import EmulatorOptions
    from sim.live.serving.pacer import Pacer

_KV_NAMES: Final = {KvDtype.FP8: "fp8_e4m3", KvDtype.BF16: "bfloat16"}
_INPUT_MARGIN_TOKENS: Final = 6
"""What SGLang keeps free of the smaller of context window and pool."""


class InfoApi:
    """Facts of one replica that do not change."""

    def __init__(
        self, options: EmulatorOptions, pacer: Pacer, kv_events: dict[str, Any] | None = None
    ) -> None:
        self._options = options
        self._pacer = pacer
        # SGLang draws one, and with it tells its starts apart.
        self._seed = secrets.randbelow(1 << 30)
        self._kv_events = kv_events

    def routes(self) -> list[web.RouteDef]:
        """The routes that this class answers."""
        return [
            web.get("/v1/models", self._models, allow_head=False),
            web.get("/v1/models/{model:.+}", self._model, allow_head=False),
            web.get("/model_info", self._model_info, allow_head=False),
            web.get("/get_model_info", self._model_info, allow_head=False),
            web.get("/server_info", self._server_info, allow_head=False),
            web.get("/get_server_info", self._server_info, allow_head=False),
        ]

    async def _models(self, request: web.Request) -> web.Response:
        del request
        return answer({"object": "list", "data": [self._card()]})

    async def _model(self, request: web.Request) -> web.Response:
        asked = request.match_info["model"]
        if asked == self._options.model:
            return answer(self._card())
        error = {
            "message": f"The model '{asked}' does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        return answer({"error": error}, status=HTTPStatus.NOT_FOUND)

    def _card(self) -> dict[str, Any]:
        return {
            "id": self._options.model,
            "object": "model",
            "created": int(epoch_s()),
            "owned_by": "sglang",
            "root": self._options.model,
            "parent": None,
            "max_model_len": self._options.facts.context_tokens_max,
        }

    async def _model_info(self, request: web.Request) -> web.Response:
        del request
        return answer(
            {
                "model_path": self._options.model,
                "served_model_name": self._options.model,
                "tokenizer_path": self._options.model,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": "default",
                "load_format": "dummy",
                "reasoning_parser": "kimi_k2",
                "tool_call_parser": "kimi_k2",
                "disaggregation_mode": "null",
                "has_image_understanding": True,
                "has_audio_understanding": False,
                "model_type": "kimi_k25",
                "architectures": ["KimiK25ForConditionalGeneration"],
            }
        )

    async def _server_info(self, request: web.Request) -> web.Response:
        del request
        await self._pacer.until_running()  # the engine itself is asked for a part of the answer
        facts = self._options.facts
        input_tokens_max = min(facts.context_tokens_max, facts.capacity_tokens)
        arguments = {
            "model_path": self._options.model,
            "served_model_name": self._options.model,
            "context_length": None,
            "kv_cache_dtype": _KV_NAMES[facts.kv_dtype],
            "page_size": facts.page_tokens,
            "tp_size": facts.tp,
            "dp_size": 1,
            "random_seed": self._seed,
            "schedule_policy": self._pacer.rules.order,
            "prefill_decode_interval": self._pacer.rules.prefill_decode_interval,
            "chunked_prefill_size": facts.chunk_tokens,
            "max_running_requests": facts.max_running_requests,
            "max_queued_requests": self._options.max_queued_requests,
            "enable_hierarchical_cache": facts.host_capacity_tokens > 0,
            "enable_cache_report": True,
            "reasoning_parser": "kimi_k2",
            "tool_call_parser": "kimi_k2",
            "disaggregation_mode": "null",
        }
        memory = {"token_capacity": facts.capacity_tokens}
        state = {
            **arguments,
            "effective_max_running_requests_per_dp": facts.max_running_requests,
            "last_gen_throughput": self._pacer.report().generated_per_s,
            "memory_usage": memory,
        }
        return answer(
            {
                **arguments,
                "launch_command": f"homeport emulate --profile {facts.name}",
                "status": "ready",
                "max_total_num_tokens": facts.capacity_tokens,
                "max_req_input_len": input_tokens_max - _INPUT_MARGIN_TOKENS,
                "startup_time": {"load_weight": 0.0, "scheduler_e2e": 0.0, "tokenizer_e2e": 0.0},
                "kv_events": self._kv_events,
                "internal_states": [state],
                "version": ENGINE_VERSION,
                "frontend": "python",
                "homeport": {
                    "profile": facts.name,
                    "time_scale": self._options.time_scale,
                    "host_tokens": facts.host_capacity_tokens,
                },
            }
        )
