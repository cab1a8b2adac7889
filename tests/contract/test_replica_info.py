"""What a replica says it is: models, model and server facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.engines import CONTEXT_TOKENS, MODEL
from tests.doubles.replica_calls import session

if TYPE_CHECKING:
    from tests.doubles.engines import Member

KEPT_FREE_TOKENS = 6
CARD = {
    "id": MODEL,
    "object": "model",
    "owned_by": "sglang",
    "root": MODEL,
    "parent": None,
    "max_model_len": CONTEXT_TOKENS,
}
ARGUMENTS: dict[str, tuple[type, ...]] = {
    "model_path": (str,),
    "served_model_name": (str,),
    "context_length": (int, type(None)),
    "kv_cache_dtype": (str,),
    "page_size": (int,),
    "tp_size": (int,),
    "dp_size": (int,),
    "random_seed": (int,),
    "schedule_policy": (str,),
    "chunked_prefill_size": (int,),
    "max_running_requests": (int,),
    "max_queued_requests": (int, type(None)),
    "enable_hierarchical_cache": (bool,),
    "enable_cache_report": (bool,),
    "reasoning_parser": (str,),
    "tool_call_parser": (str,),
    "disaggregation_mode": (str,),
}
SERVER: dict[str, tuple[type, ...]] = {
    **ARGUMENTS,
    "status": (str,),
    "launch_command": (str,),
    "max_total_num_tokens": (int,),
    "max_req_input_len": (int,),
    "startup_time": (dict,),
    "kv_events": (dict, type(None)),
    "internal_states": (list,),
    "version": (str,),
    "frontend": (str,),
}
STATE: dict[str, tuple[type, ...]] = {
    **ARGUMENTS,
    "effective_max_running_requests_per_dp": (int,),
    "last_gen_throughput": (float,),
    "memory_usage": (dict,),
}
MODEL_INFO: dict[str, tuple[type, ...]] = {
    "model_path": (str,),
    "served_model_name": (str,),
    "tokenizer_path": (str,),
    "is_generation": (bool,),
    "preferred_sampling_params": (str, type(None)),
    "weight_version": (str,),
    "load_format": (str,),
    "reasoning_parser": (str,),
    "tool_call_parser": (str,),
    "disaggregation_mode": (str,),
    "has_image_understanding": (bool,),
    "has_audio_understanding": (bool,),
    "model_type": (str,),
    "architectures": (list,),
}


async def ask(member: Member, path: str, *, status: int = 200) -> dict[str, Any]:
    async with session(member) as http, http.get(path) as response:
        assert response.status == status
        assert response.headers["Content-Type"] == "application/json"
        answer: dict[str, Any] = await response.json()
        return answer


def has_types(found: dict[str, Any], wanted: dict[str, tuple[type, ...]]) -> bool:
    wrong = {name: found.get(name, "missing") for name, kinds in wanted.items()
             if name not in found or type(found[name]) not in kinds}  # fmt: skip
    assert not wrong
    return True


async def test_the_list_of_models_names_one(plain: Member) -> None:
    models = await ask(plain, "/v1/models")
    assert list(models) == ["object", "data"]
    assert models["object"] == "list"
    [card] = models["data"]
    assert card.pop("created") > 1_700_000_000
    assert card == CARD


async def test_one_model_is_the_same_card(plain: Member) -> None:
    card = await ask(plain, f"/v1/models/{MODEL}")
    assert card.pop("created") > 1_700_000_000
    assert card == CARD


@pytest.mark.parametrize("name", ["other", "organisation/other"])
async def test_an_unknown_model_is_not_found(plain: Member, name: str) -> None:
    answer = await ask(plain, f"/v1/models/{name}", status=404)
    assert answer == {
        "error": {
            "message": f"The model '{name}' does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }


@pytest.mark.parametrize("path", ["/model_info", "/get_model_info"])
async def test_the_model_info_has_what_clients_read(plain: Member, path: str) -> None:
    info = await ask(plain, path)
    assert has_types(info, MODEL_INFO)
    assert info["served_model_name"] == MODEL
    assert info["reasoning_parser"] == info["tool_call_parser"] == "kimi_k2"
    assert info["is_generation"]
    assert info["disaggregation_mode"] == "null"


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
async def test_the_server_info_has_what_a_router_reads(plain: Member, path: str) -> None:
    info = await ask(plain, path)
    assert has_types(info, SERVER)
    [state] = info["internal_states"]
    assert has_types(state, STATE)
    assert state["memory_usage"]["token_capacity"] == plain.role.pool_tokens
    assert all(info[name] == state[name] for name in ARGUMENTS)
    assert info["status"] == "ready"
    assert info["version"] == "0.5.23"
    assert info["served_model_name"] == MODEL
    assert info["page_size"] == plain.role.page_tokens
    assert info["chunked_prefill_size"] % info["page_size"] == 0
    assert info["tp_size"] >= 1
    assert info["dp_size"] == len(info["internal_states"])
    assert all(isinstance(phase, str) for phase in info["startup_time"])
    if info["kv_events"] is not None:
        assert info["kv_events"]["block_size"] == info["page_size"]


async def test_the_server_info_tells_the_limits(plain: Member, tight: Member) -> None:
    for member in (plain, tight):
        info = await ask(member, "/server_info")
        role = member.role
        assert info["max_total_num_tokens"] == role.pool_tokens
        assert info["max_running_requests"] == role.max_running
        assert info["max_queued_requests"] == role.max_queued
        # The context window that matters is told as max_model_len; this is the flag, which is unset.
        assert info["context_length"] is None
        room = min(CONTEXT_TOKENS, role.pool_tokens)
        assert info["max_req_input_len"] == room - KEPT_FREE_TOKENS
