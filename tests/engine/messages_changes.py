"""Changes of a messages body; see :mod:`tests.engine.changes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.engine.changes import COMMON
from tests.engine.conversations import functions, some_text, text

if TYPE_CHECKING:
    import random

    from tests.engine.changes import Change
    from tests.engine.conversations import Json


def _blocks(body: Json, *kinds: str) -> list[Json]:
    """Blocks of these kinds in the messages, those inside results included."""
    found = []
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            inner = block.get("content")
            found += [block, *(inner if isinstance(inner, list) else ())]
    return [block for block in found if block["type"] in kinds]


def _one(dice: random.Random, places: list[Json]) -> Json | None:
    return dice.choice(places) if places else None


def billing_line(dice: random.Random, body: Json) -> Json:
    line = f"x-anthropic-billing-header: cc_version=2.2.0; cch={dice.randrange(16**5):05x};"
    if dice.random() < 0.3:
        del body["system"][0]
    elif dice.random() < 0.3:
        body["system"][1]["text"] = f"{line}\n{body['system'][1]['text']}"
    else:
        body["system"][0]["text"] = line
    return body


def system_as_string(_dice: random.Random, body: Json) -> Json:
    body["system"] = "\n".join(block["text"] for block in body["system"])
    return body


def system_changed(dice: random.Random, body: Json) -> Json:
    blank = {"type": "text", "text": dice.choice(["", " ", "\n"])}
    kept = body["system"][1:]
    body["system"] = dice.choice(
        [" ", None, [], [blank], [*kept, blank], kept[:-1], [*kept[:-1], {**kept[-1], "text": "x"}]]
    )
    return body


def cache_marks(dice: random.Random, body: Json) -> Json:
    mark = {"type": "ephemeral"}
    for block in _blocks(body, "text", "tool_use", "tool_result"):
        if dice.random() < 0.5:
            block["cache_control"] = mark
    body["system"][-1]["cache_control"] = mark
    return body


def as_blocks(dice: random.Random, body: Json) -> Json | None:
    holders = [*body["messages"], *_blocks(body, "tool_result")]
    found = _one(dice, [each for each in holders if isinstance(each["content"], str)])
    if found is None:
        return None
    cut = dice.randrange(len(found["content"]) + 1)
    pieces = [found["content"][:cut], found["content"][cut:]]
    found["content"] = [{"type": "text", "text": piece} for piece in pieces]
    return body


def as_string(dice: random.Random, body: Json) -> Json | None:
    places = [
        each
        for each in (*body["messages"], *_blocks(body, "tool_result"))
        if isinstance(each["content"], list)
        and all(block["type"] == "text" for block in each["content"])
    ]
    found = _one(dice, places)
    if found is None:
        return None
    found["content"] = dice.choice(["", " "]).join(block["text"] for block in found["content"])
    return body


def signature(dice: random.Random, body: Json) -> Json | None:
    found = _one(dice, _blocks(body, "thinking"))
    if found is None:
        return None
    found["signature"] = "bmV3"
    return body


def thought_dropped(dice: random.Random, body: Json) -> Json | None:
    places = [
        message["content"]
        for message in body["messages"]
        if isinstance(message["content"], list) and message["content"][0]["type"] == "thinking"
    ]
    if not places:
        return None
    blocks = dice.choice(places)
    if dice.random() < 0.5:
        del blocks[0]
    else:
        blocks.insert(0, {"type": "thinking", "thinking": dice.choice(["", "More."])})
    return body


def blocks_turned_round(dice: random.Random, body: Json) -> Json | None:
    places = [
        message
        for message in body["messages"]
        if isinstance(message["content"], list) and len(message["content"]) > 1
    ]
    found = _one(dice, places)
    if found is None:
        return None
    found["content"].reverse()
    return body


def result_changed(dice: random.Random, body: Json) -> Json | None:
    found = _one(dice, _blocks(body, "tool_result"))
    if found is None:
        return None
    texts = [{"type": "text", "text": part} for part in ("", text(dice, 3))]
    reference = {"type": "tool_reference", "tool_name": "read"}
    change: Json = dice.choice(
        [
            {"is_error": True},
            {"tool_use_id": "toolu_99"},
            {"content": dice.choice([None, "", [], texts])},
            {"content": [reference]},
            {"content": [*texts, reference, *texts]},
        ]
    )
    found.update(change)
    return body


def call_changed(dice: random.Random, body: Json) -> Json | None:
    found = _one(dice, _blocks(body, "tool_use"))
    if found is None:
        return None
    given = found["input"]
    change: Json = dice.choice(
        [
            {"id": "toolu_99"},
            {"input": {}},
            {"input": dict(reversed(given.items()))},
            {"input": {**given, "a0": dice.choice([1, 1.0, "1", None, 2**70])}},
        ]
    )
    found.update(change)
    return body


def tool_changed(dice: random.Random, body: Json) -> Json | None:
    if not body.get("tools"):
        return None
    tool = dice.choice(body["tools"])
    schema = tool["input_schema"]
    change: Json = dice.choice(
        [
            {"strict": True},
            {"strict": False},
            {"type": "custom"},
            {"description": dice.choice(["", None, "Other."])},
            {"input_schema": dict(reversed(schema.items()))},
            {"input_schema": {key: schema[key] for key in schema if key != "type"}},
            {"cache_control": {"type": "ephemeral"}},
        ]
    )
    tool.update(change)
    return body


def a_servers_tool(dice: random.Random, body: Json) -> Json:
    tools = body.setdefault("tools", [])
    tools.insert(dice.randrange(len(tools) + 1), {"type": "bash_20250124", "name": "bash"})
    return body


def tool_choice(dice: random.Random, body: Json) -> Json | None:
    if not body.get("tools"):
        return None
    named = {"type": "tool", "name": dice.choice(body["tools"])["name"]}
    body["tool_choice"] = dice.choice([{"type": "auto"}, {"type": "any"}, {"type": "none"}, named])
    return body


def other_tools(dice: random.Random, body: Json) -> Json:
    declared = functions(dice)
    body["tools"] = [{"name": f["name"], "input_schema": f["parameters"]} for f in declared]
    return body


def thinking(dice: random.Random, body: Json) -> Json:
    body["thinking"] = {"type": dice.choice(["adaptive", "disabled"])}
    body["output_config"] = {"effort": dice.choice(["low", "high", "xhigh"])}
    return body


def a_reminder(dice: random.Random, body: Json) -> Json:
    content = dice.choice([text(dice, 5), [], [{"type": "text", "text": some_text(dice)}]])
    index = dice.randrange(1, len(body["messages"]) + 1)
    body["messages"].insert(index, {"role": "system", "content": content})
    return body


MESSAGES: Final[tuple[Change, ...]] = (
    *COMMON,
    billing_line,
    system_as_string,
    system_changed,
    cache_marks,
    as_blocks,
    as_string,
    signature,
    thought_dropped,
    blocks_turned_round,
    result_changed,
    call_changed,
    tool_changed,
    a_servers_tool,
    tool_choice,
    other_tools,
    thinking,
    a_reminder,
)
