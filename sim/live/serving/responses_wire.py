"""Answers of ``/v1/responses`` in SGLang 0.5.23's shapes."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sim.live.rendering.responses_bodies import packed_reasoning
from sim.live.serving.wire import UNAVAILABLE, Usage, encode, epoch_s, named_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.live.rendering.answer import Answer, CallSpan, Piece
    from sim.live.rendering.responses_bodies import ResponsesBody

Item = dict[str, Any]

REFUSED: Final = "invalid_request_error"
_ECHOED_EFFORTS: Final = frozenset({"minimal", "low", "medium", "high"})
_STATUS: Final = {"stop": "completed", "tool_calls": "completed", "length": "incomplete"}


class ResponsesWriter:
    """Writes one response; ``keep`` is told of it once it is final.

    Where calls may come, the events of a message are held back until it is known whether one follows.
    """

    def __init__(
        self,
        rid: str,
        body: ResponsesBody,
        *,
        model: str,
        call: CallSpan | None,
        keep: Callable[[Item], None],
    ) -> None:
        self._body = body
        self._call = call
        self._keep = keep
        self._is_custom = call is not None and any(
            tool.type == "custom" and tool.name == call.name for tool in body.tools
        )
        self._head = _head_of(rid, body, model)
        self._n_events = 0
        self._output: list[Item] = []
        self._open: Item | None = None
        self._arguments = ""
        self._call_id = ""
        self._held: list[Item] = []

    def greeting(self) -> list[bytes]:
        """What is sent before the engine has seen the request."""
        started = self.document("in_progress")
        return [
            *self._event("response.created", response=started),
            *self._event("response.in_progress", response=started),
        ]

    def opening(self, usage: Usage) -> list[bytes]:
        """Nothing: the first of what it holds opens an item."""
        del usage
        return []

    def piece(self, piece: Piece, usage: Usage) -> list[bytes]:
        """Deltas, with the beginnings and ends of the items they belong to."""
        del usage
        events: list[bytes] = []
        if piece.reasoning:
            events += self._turn_to("reasoning")
            events += self._thought_delta(piece.reasoning)
        if piece.text:
            events += self._turn_to("message")
            events += self._text_delta(piece.text)
        if piece.opens_call:
            events += self._turn_to("call")
        if piece.arguments and self._open is not None:
            self._arguments += piece.arguments
            if not self._is_custom:
                events += self._event(
                    "response.function_call_arguments.delta", **self._at(), delta=piece.arguments
                )
        return events

    def closing(self, finish: str, usage: Usage) -> list[bytes]:
        """The end of the open item, and the whole response as the last event."""
        events = self._close()
        final = self._final(finish, usage)
        events += self._event(f"response.{final['status']}", response=final)
        self._keep(final)
        return events

    def fault(self, status: int, message: str) -> list[bytes]:
        """``response.failed``, whatever was said before."""
        del status
        return self._event("response.failed", response=self.failed(message))

    def failed(self, message: str) -> Item:
        """A response that has failed before anything was computed."""
        failed = self.document("failed")
        failed["error"] = {"code": "server_error", "message": message}
        return failed

    def whole(self, answer: Answer, visible: Piece, finish: str, usage: Usage) -> bytes:
        """The ``response`` object."""
        final = self.finished(answer, visible, finish, usage)
        self._keep(final)
        return encode(final)

    def finished(self, answer: Answer, visible: Piece, finish: str, usage: Usage) -> Item:
        """The response with all its items."""
        if visible.reasoning:
            self._output.append(self._thought(_new_id("rs"), visible.reasoning))
        has_call = answer.call is not None and finish == "tool_calls"
        if visible.text:
            self._output.append(_message(_new_id("msg"), visible.text))
        if has_call:
            self._called()
            self._arguments = visible.arguments
            self._output.append(self._call_item())
        return self._final(finish, usage)

    def document(self, status: str) -> Item:
        """The response as it stands, without usage."""
        return {**self._head, "status": status, "output": list(self._output)}

    def _final(self, finish: str, usage: Usage) -> Item:
        final = self.document(_STATUS.get(finish, "failed"))
        final["usage"] = usage_of(usage)
        if final["status"] == "incomplete":
            final["incomplete_details"] = {"reason": "max_output_tokens"}
        elif final["status"] == "failed":
            final["error"] = {"code": "server_error", "message": "Generation aborted"}
        is_text = [item["type"] for item in self._output] == ["message"] * len(self._output)
        if self._body.text is None and self._output and is_text:
            final["text"] = {"format": {"type": "text"}}
        return final

    # Items of a stream

    def _turn_to(self, kind: str) -> list[bytes]:
        """Open an item of this kind, unless the open one is; the one before is closed."""
        if self._open is not None and self._open["kind"] == kind:
            return []
        events = self._close()
        if kind == "call":
            self._called()
        self._open = {"kind": kind, "text": "", "id": ""}
        prefix = {"reasoning": "rs", "message": "msg", "call": "ctc" if self._is_custom else "fc"}
        self._open["id"] = _new_id(prefix[kind], 8 if kind == "call" else 32)
        events += self._event(
            "response.output_item.added", output_index=len(self._output), item=self._begun(kind)
        )
        if kind == "message":
            events += self._event(
                "response.content_part.added", **self._at(), content_index=0, part=_text_part("")
            )
        elif kind == "reasoning":
            name, index = self._thought_names("part.added")
            kind_of_part = "summary_text" if self._wants_summary else "reasoning_text"
            part = {"type": kind_of_part, "text": ""}
            events += self._event(name, **self._at(), **index, part=part)
        return events

    def _begun(self, kind: str) -> Item:
        assert self._open is not None
        item_id = self._open["id"]
        if kind == "message":
            return {**_message(item_id, ""), "content": [], "status": "in_progress"}
        if kind == "reasoning":
            empty = {**self._thought(item_id, ""), "summary": [], "content": []}
            return {**empty, "encrypted_content": None, "status": "in_progress"}
        item = self._call_item()
        return item if self._is_custom else {**item, "status": "in_progress"}

    def _close(self) -> list[bytes]:
        """End the open item."""
        item, index = self._open, len(self._output)
        if item is None:
            return []
        done: Item
        if item["kind"] == "message":
            done, events = _message(item["id"], item["text"]), self._text_done(item["text"])
        elif item["kind"] == "reasoning":
            done, events = self._thought(item["id"], item["text"]), self._thought_done(item["text"])
        else:
            done = self._call_item()
            events = self._call_done(done)
        events += self._event("response.output_item.done", output_index=index, item=done)
        self._output.append(done)
        self._open = None
        return events

    def _text_delta(self, text: str) -> list[bytes]:
        assert self._open is not None
        self._open["text"] += text
        return self._event(
            "response.output_text.delta", **self._at(), content_index=0, delta=text, logprobs=[]
        )

    def _text_done(self, text: str) -> list[bytes]:
        part = _text_part(text)
        return [
            *self._event(
                "response.output_text.done", **self._at(), content_index=0, text=text, logprobs=[]
            ),
            *self._event("response.content_part.done", **self._at(), content_index=0, part=part),
        ]

    @property
    def _wants_summary(self) -> bool:
        return self._body.reasoning is not None and self._body.reasoning.summary is not None

    def _thought_names(self, what: str) -> tuple[str, Item]:
        """An event of the reasoning by its end, and what numbers its part."""
        if self._wants_summary:
            return f"response.reasoning_summary_{what}", {"summary_index": 0}
        prefix = "response.content_" if what.startswith("part") else "response.reasoning_"
        return prefix + what, {"content_index": 0}

    def _thought_delta(self, text: str) -> list[bytes]:
        assert self._open is not None
        self._open["text"] += text
        name, index = self._thought_names("text.delta")
        return self._event(name, **self._at(), **index, delta=text)

    def _thought_done(self, text: str) -> list[bytes]:
        name, index = self._thought_names("text.done")
        part_name, _ = self._thought_names("part.done")
        part = {"type": "summary_text" if self._wants_summary else "reasoning_text", "text": text}
        return [
            *self._event(name, **self._at(), **index, text=text),
            *self._event(part_name, **self._at(), **index, part=part),
        ]

    def _call_done(self, item: Item) -> list[bytes]:
        if self._is_custom:
            name, payload = "response.custom_tool_call_input", {"input": item["input"]}
            delta = self._event(f"{name}.delta", **self._at(), delta=item["input"])
            return [*delta, *self._event(f"{name}.done", **self._at(), **payload)]
        return self._event(
            "response.function_call_arguments.done",
            **self._at(),
            arguments=item["arguments"],
            name=item["name"],
        )

    def _called(self) -> None:
        """A call follows: what was said before it was no final answer."""
        self._call_id = f"call_{secrets.token_hex(12)}"
        for item in self._output:
            if item["type"] == "message":
                item["phase"] = "commentary"

    def _call_item(self) -> Item:
        assert self._call is not None
        name = self._call.name
        item_id = _new_id("fc", 8) if self._open is None else self._open["id"]
        common = {"id": item_id, "call_id": self._call_id, "name": name}
        if self._is_custom:
            return {**common, "type": "custom_tool_call", "input": _payload_of(self._arguments)}
        item = {**common, "type": "function_call", "arguments": self._arguments}
        return {**item, "status": "completed"}

    def _thought(self, item_id: str, text: str) -> Item:
        summary = [{"type": "summary_text", "text": text}] if self._wants_summary else []
        is_packed = "reasoning.encrypted_content" in (self._body.include or ())
        return {
            "id": item_id,
            "summary": summary,
            "type": "reasoning",
            "content": [{"text": text, "type": "reasoning_text"}],
            "encrypted_content": packed_reasoning(text) if is_packed else None,
            "status": "completed",
        }

    def _at(self) -> Item:
        assert self._open is not None
        return {"item_id": self._open["id"], "output_index": len(self._output)}

    def _event(self, name: str, /, **fields: object) -> list[bytes]:
        """One event, or nothing yet: a message's wait for what follows it."""
        event = {"type": name, **fields, "sequence_number": self._n_events}
        self._n_events += 1
        item = fields.get("item")
        kind = item["type"] if isinstance(item, dict) else ""
        is_added = name == "response.output_item.added"
        if not self._body.has_calls or not (self._held or (is_added and kind == "message")):
            return [named_event(event)]
        self._held.append(event)
        has_call = is_added and kind.endswith("_call")
        if not has_call and "response" not in fields:
            return []
        held, self._held = self._held, []
        phase = "commentary" if has_call else "final_answer"
        return [named_event(_in_phase(each, phase)) for each in held]


def usage_of(usage: Usage) -> Item:
    """``usage`` in this API's words."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }


def error_of(status: int, message: str, *, kind: str = REFUSED, param: str | None = None) -> Item:
    """The error object of this API."""
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def refusal_text(status: int, message: str) -> str:
    """What a whole answer says of a problem: all are a bad request, an overload by its words alone."""
    return f"{status}: {message}" if status == UNAVAILABLE else message


def _head_of(rid: str, body: ResponsesBody, model: str) -> Item:
    effort = None if body.reasoning is None else body.reasoning.effort
    tools = [
        {**msgspec.to_builtins(tool), "tools": None, "defer_loading": None} for tool in body.tools
    ]
    return {
        "id": rid,
        "object": "response",
        "created_at": int(epoch_s()),
        "model": model,
        "output": [],
        "status": "in_progress",
        "usage": None,
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "tool_choice": body.effective_choice,
        "tools": tools,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": effort if effort in _ECHOED_EFFORTS else None, "summary": None},
        "store": body.store,
        "temperature": body.temperature,
        "text": body.text,
        "top_p": body.top_p,
        "truncation": body.truncation,
        "user": body.user,
        "metadata": body.metadata or {},
    }


def _message(item_id: str, text: str) -> Item:
    return {
        "id": item_id,
        "content": [_text_part(text)],
        "role": "assistant",
        "status": "completed",
        "type": "message",
        "phase": "final_answer",
    }


def _text_part(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": None}


def _in_phase(event: Item, phase: str) -> Item:
    item = event.get("item")
    if not isinstance(item, dict) or item["type"] != "message":
        return event
    return {**event, "item": {**item, "phase": phase}}


def _payload_of(arguments: str) -> str:
    """The free text in the arguments of a custom tool's call."""
    try:
        return str(msgspec.json.decode(arguments, type=dict[str, Any]).get("input", arguments))
    except msgspec.MsgspecError:
        return arguments


def _new_id(kind: str, digits: int = 32) -> str:
    return f"{kind}_{secrets.token_hex(digits // 2)}"
