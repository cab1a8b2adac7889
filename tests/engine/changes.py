"""Changes of a request, equal-making and different-making alike: what they do is not said here.

Each takes the dice and a body of its own to change, and answers the changed body, its bytes where
more than its values is changed, or None where there is nothing to change.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tests.engine.conversations import functions, text
from tests.engine.text_changes import TEXTS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from tests.engine.conversations import Json

    Change = Callable[[random.Random, Json], Json | bytes | None]


# --- any API --------------------------------------------------------------------------------------


def envelope_order(_dice: random.Random, body: Json) -> Json:
    return dict(reversed(body.items()))


def message_order_of_keys(dice: random.Random, body: Json) -> Json:
    index = dice.randrange(len(body["messages"]))
    body["messages"][index] = dict(reversed(body["messages"][index].items()))
    return body


def no_escapes(_dice: random.Random, body: Json) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def white_space(_dice: random.Random, body: Json) -> bytes:
    return json.dumps(body, indent=1).encode()


def settings_of_sampling(dice: random.Random, body: Json) -> Json:
    body["temperature"] = dice.choice([0.0, 0.5, 1])
    body["max_tokens"] = dice.randrange(1, 500)
    return body


def metadata(_dice: random.Random, body: Json) -> Json:
    body["metadata"] = {"user_id": "user_2_account__session_22222222"}
    return body


def a_message_appended(dice: random.Random, body: Json) -> Json:
    body["messages"].append({"role": "user", "content": text(dice, 4)})
    return body


def a_message_inserted(dice: random.Random, body: Json) -> Json:
    index = dice.randrange(len(body["messages"]))
    body["messages"].insert(index, {"role": "user", "content": text(dice, 4)})
    return body


def cut_behind_a_message(dice: random.Random, body: Json) -> Json:
    del body["messages"][dice.randrange(1, len(body["messages"])) :]
    return body


def ends_with_the_assistant(dice: random.Random, body: Json) -> Json | None:
    messages = body["messages"]
    places = [n for n, message in enumerate(messages) if message["role"] == "assistant"]
    if not places:
        return None
    del messages[dice.choice(places) + 1 :]
    return body


def tools_turned_round(_dice: random.Random, body: Json) -> Json | None:
    if len(body.get("tools", ())) < 2:
        return None
    body["tools"].reverse()
    return body


def one_tool_fewer(dice: random.Random, body: Json) -> Json | None:
    if not body.get("tools"):
        return None
    body["tools"].pop(dice.randrange(len(body["tools"])))
    return body


def a_tools_keys_turned_round(dice: random.Random, body: Json) -> Json | None:
    if not body.get("tools"):
        return None
    index = dice.randrange(len(body["tools"]))
    body["tools"][index] = dict(reversed(body["tools"][index].items()))
    return body


def a_tool_deferred(dice: random.Random, body: Json) -> Json | None:
    if not body.get("tools"):
        return None
    dice.choice(body["tools"])["defer_loading"] = dice.choice([True, False, None])
    return body


# --- chat completions -----------------------------------------------------------------------------


def _of_role(body: Json, *roles: str) -> list[Json]:
    return [message for message in body["messages"] if message["role"] in roles]


def _calls(body: Json) -> list[Json]:
    return [call for message in body["messages"] for call in message.get("tool_calls") or ()]


def _one(dice: random.Random, places: Sequence[Json]) -> Json | None:
    return dice.choice(places) if places else None


def chat_as_parts(dice: random.Random, body: Json) -> Json | None:
    found = _one(dice, [each for each in body["messages"] if isinstance(each["content"], str)])
    if found is None:
        return None
    cut = dice.randrange(len(found["content"]) + 1)
    pieces = [found["content"][:cut], found["content"][cut:]]
    found["content"] = [{"type": "text", "text": piece, "cache_control": {}} for piece in pieces]
    return body


def chat_as_string(dice: random.Random, body: Json) -> Json | None:
    found = _one(dice, [each for each in body["messages"] if isinstance(each["content"], list)])
    if found is None:
        return None
    separator = dice.choice(["", " "])
    found["content"] = separator.join(part["text"] for part in found["content"])
    return body


def chat_no_content(dice: random.Random, body: Json) -> Json | None:
    found = _one(dice, _of_role(body, "assistant"))
    if found is None:
        return None
    found["content"] = dice.choice([None, "", []])
    if dice.random() < 0.3:
        del found["content"]
    return body


def chat_thinking_part(dice: random.Random, body: Json) -> Json | None:
    found = _one(dice, _of_role(body, "assistant"))
    if found is None:
        return None
    said = {"type": "text", "text": found["content"] or ""}
    found["content"] = [{"type": "thinking", "thinking": text(dice, 3)}, said]
    return body


def chat_unknown_keys(dice: random.Random, body: Json) -> Json:
    dice.choice(body["messages"])["annotations"] = [1]
    return body


def chat_role(dice: random.Random, body: Json) -> Json | None:
    found = _one(dice, _of_role(body, "system"))
    if found is None:
        return None
    found["role"] = dice.choice(["developer", "System", "SYSTEM"])
    return body


def chat_name(dice: random.Random, body: Json) -> Json:
    dice.choice(body["messages"])["name"] = dice.choice(["ann", ""])
    return body


def chat_reasoning(dice: random.Random, body: Json) -> Json | None:
    found = _one(dice, _of_role(body, "assistant"))
    if found is None:
        return None
    thought = found.get("reasoning_content") or ""
    found["reasoning_content"] = dice.choice([None, "", thought[: len(thought) // 2], "Hm."])
    return body


def chat_last_reasoning(dice: random.Random, body: Json) -> Json | None:
    """Of the newest answer: it may end the loop, or be in the midst of it."""
    answers = _of_role(body, "assistant")
    if not answers:
        return None
    thought = answers[-1].get("reasoning_content") or ""
    answers[-1]["reasoning_content"] = dice.choice([f"{thought} ", f"\n{thought}", f"{thought}!"])
    return body


def chat_preserved(dice: random.Random, body: Json) -> Json:
    body["chat_template_kwargs"] = {"preserve_thinking": dice.choice([True, False, None, 0, 1])}
    return body


def chat_thinking_switch(dice: random.Random, body: Json) -> Json:
    kwargs = body.setdefault("chat_template_kwargs", {})
    kwargs[dice.choice(["thinking", "enable_thinking"])] = dice.choice([True, False, None])
    return body


def chat_effort(dice: random.Random, body: Json) -> Json:
    body["reasoning_effort"] = dice.choice(["none", "low", "high", "max", None])
    return body


def chat_arguments_again(dice: random.Random, body: Json) -> Json | None:
    """The same arguments, written otherwise."""
    found = _one(dice, _calls(body))
    if found is None:
        return None
    values = json.loads(found["function"]["arguments"])
    found["function"]["arguments"] = dice.choice(
        [values, json.dumps(values, indent=2), json.dumps(values, ensure_ascii=False)]
    )
    return body


def chat_arguments_changed(dice: random.Random, body: Json) -> Json | None:
    found = _one(dice, _calls(body))
    if found is None:
        return None
    values = json.loads(found["function"]["arguments"])
    key = dice.choice(list(values))
    written = dice.choice(
        [
            json.dumps(dict(reversed(values.items()))),
            json.dumps({**values, key: dice.choice([1, 1.0, "1", None, 2**70])}),
            json.dumps(values)[:-1] + f', "{key}": 7}}',
            "{}",
        ]
    )
    found["function"]["arguments"] = written
    return body


def chat_call_id(dice: random.Random, body: Json) -> Json | None:
    found = _one(dice, [*_calls(body), *_of_role(body, "tool")])
    if found is None:
        return None
    found["id" if "function" in found else "tool_call_id"] = dice.choice(["functions.x:9", ""])
    return body


def chat_no_calls(dice: random.Random, body: Json) -> Json | None:
    found = _one(dice, [message for message in body["messages"] if message.get("tool_calls")])
    if found is None:
        return None
    found["tool_calls"] = dice.choice([None, [], found["tool_calls"][1:]])
    return body


def chat_function(dice: random.Random, body: Json) -> Json | None:
    """Something inside a declared function."""
    if not body.get("tools"):
        return None
    function = dice.choice(body["tools"])["function"]
    at = dice.randrange(len(function["description"]))
    changed: list[Json] = [
        {**function, "strict": dice.choice([True, False, None])},
        {**function, "description": function["description"][:at]},
        {**function, "defer_loading": dice.choice([True, False, None])},
        {**function, "examples": [1]},
        {key: function[key] for key in function if key != "parameters"},
        {key: function[key] for key in function if key != "description"},
        dict(reversed(function.items())),
        {**function, "parameters": dict(reversed(function["parameters"].items()))},
    ]
    new = dice.choice(changed)
    function.clear()
    function.update(new)
    return body


def chat_tool_choice(dice: random.Random, body: Json) -> Json | None:
    if not body.get("tools"):
        return None
    name = dice.choice(body["tools"])["function"]["name"]
    named = {"type": "function", "function": {"name": name}}
    body["tool_choice"] = dice.choice(["auto", "required", "none", named, None])
    return body


def chat_other_tools(dice: random.Random, body: Json) -> Json:
    body["tools"] = [{"type": "function", "function": each} for each in functions(dice)]
    return body


def chat_continued(dice: random.Random, body: Json) -> Json:
    body["messages"].append({"role": "assistant", "content": text(dice, 4)})
    body["continue_final_message"] = dice.choice([True, False])
    return body


COMMON: Final[tuple[Change, ...]] = (
    envelope_order,
    message_order_of_keys,
    no_escapes,
    white_space,
    settings_of_sampling,
    metadata,
    a_message_appended,
    a_message_inserted,
    cut_behind_a_message,
    ends_with_the_assistant,
    tools_turned_round,
    one_tool_fewer,
    a_tools_keys_turned_round,
    a_tool_deferred,
    *TEXTS,
)
CHAT: Final[tuple[Change, ...]] = (
    *COMMON,
    chat_as_parts,
    chat_as_string,
    chat_no_content,
    chat_thinking_part,
    chat_unknown_keys,
    chat_role,
    chat_name,
    chat_reasoning,
    chat_last_reasoning,
    chat_preserved,
    chat_thinking_switch,
    chat_effort,
    chat_arguments_again,
    chat_arguments_changed,
    chat_call_id,
    chat_no_calls,
    chat_function,
    chat_tool_choice,
    chat_other_tools,
    chat_continued,
)
