"""Requests at random, well and ill formed, for every API: equal seeds make equal requests.

What is asked for is short and has temperature 0, so that two answers to one request are the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.doubles.engines import MODEL

if TYPE_CHECKING:
    import random

WORDS: Final = ("parse", "the", "file", "ünïcode", "def f(x):", "\n", '{"a": 1}', "日本", "read it")
TOOL: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
}
ODD: Final[tuple[Any, ...]] = (None, 3, -1, 1.5, True, [], {}, [[]], "no such", {"a": [1]})
"""Values that take the place of a member's own."""
_PROMPTS: Final = frozenset({"prompt", "text", "input_ids", "query", "items", "documents"})
"""No empty ones: SGLang ends on a text without a token."""
_LIMITS: Final = frozenset({"temperature", "max_tokens", "sampling_params"})
"""They keep an answer short and the same each time: they are never left out or out of order."""
_NO_LIMITS: Final[tuple[Any, ...]] = (-1, "no such", {"a": [1]}, 1.5)


@dataclass(frozen=True)
class Request:
    """One request; ``kind`` says how it was made, for the person who reads a failure."""

    kind: str
    path: str
    body: bytes
    method: str = "POST"
    content_type: str = "application/json"


class Generator:
    """Makes requests one after the other."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._bodies = {
            "/v1/chat/completions": self._chat,
            "/v1/messages": self._message,
            "/v1/completions": self._completion,
            "/generate": self._native,
            "/v1/messages/count_tokens": self._count,
            "/v1/tokenize": self._tokenize,
            "/v1/detokenize": self._detokenize,
            "/v1/score": self._score,
            "/v1/embeddings": self._embedding,
            "/v1/rerank": self._rerank,
        }
        self._weights = (6, 6, 6, 6, 2, 1, 1, 1, 1, 1)

    def next(self) -> Request:
        """The next request."""
        dice = self._dice
        path = dice.choices(list(self._bodies), self._weights)[0]
        body = self._bodies[path]()
        luck = dice.random()
        if luck < 0.6:
            return Request("well formed", path, self._written(body))
        if luck < 0.9:
            name = dice.choice([*body, "temperature", "stream_options", "rid", "messages"])
            if name not in _LIMITS and dice.random() < 0.3:
                body.pop(name, None)
                return Request(f"without {name}", path, self._written(body))
            body[name] = self._odd(name)
            return Request(f"odd {name}", path, self._written(body))
        return self._broken(path, self._written(body))

    def _odd(self, name: str) -> object:
        """A value that this member may not have, or has in no client's request."""
        if name == "temperature":
            return self._dice.choice(_NO_LIMITS[:3])
        if name in _LIMITS:
            return self._dice.choice(_NO_LIMITS)
        value = self._dice.choice(ODD)
        return {} if name in _PROMPTS and not value else value

    def _broken(self, path: str, raw: bytes) -> Request:
        """A body that is no JSON object."""
        dice = self._dice
        what = dice.choice(("cut", "array", "text", "none", "bytes", "nested", "method"))
        if what == "cut":
            return Request(what, path, raw[: dice.randrange(1, len(raw))])
        if what == "method":
            return Request(what, path, b"", method="GET")
        bodies = {
            "array": b"[1]",
            "text": b'"x"',
            "none": b"",
            "bytes": b'{"model": "\xff"}',
            "nested": b"[" * 5_000,
        }
        return Request(what, path, bodies[what])

    def _written(self, body: dict[str, Any]) -> bytes:
        """JSON in one of the forms it can have."""
        dice = self._dice
        names = list(body)
        dice.shuffle(names)
        indent = dice.choice((None, None, 1))
        text = json.dumps(
            {name: body[name] for name in names}, indent=indent, ensure_ascii=dice.random() < 0.5
        )
        return text.encode()

    def _text(self, words_max: int = 12) -> str:
        dice = self._dice
        return " ".join(dice.choices(WORDS, k=dice.randint(1, words_max)))

    def _ids(self) -> list[int]:
        return [self._dice.randrange(10, 5_000) for _ in range(self._dice.randint(1, 20))]

    def _some(self, **members: object) -> dict[str, Any]:
        """Each of these members with even chances."""
        return {name: value for name, value in members.items() if self._dice.random() < 0.5}

    def _turns(self) -> list[dict[str, Any]]:
        turns = []
        for _ in range(self._dice.randrange(3)):
            turns.append({"role": "user", "content": self._text()})
            turns.append({"role": "assistant", "content": self._text()})
        last: Any = self._text()
        if self._dice.random() < 0.3:
            last = [{"type": "text", "text": last}, {"type": "text", "text": self._text()}]
        return [*turns, {"role": "user", "content": last}]

    def _chat(self) -> dict[str, Any]:
        turns = self._turns()
        if self._dice.random() < 0.5:
            turns.insert(0, {"role": "system", "content": self._text()})
        tool = {"type": "function", "function": {"name": "read", "parameters": TOOL}}
        return {
            "model": MODEL,
            "messages": turns,
            "max_tokens": self._dice.randint(1, 4),
            "temperature": 0,
            **self._some(stream=True, tools=[tool], user="u", seed=1, cache_salt="s"),
            **self._some(stream_options={"include_usage": self._dice.random() < 0.5}),
        }

    def _message(self) -> dict[str, Any]:
        tool = {"name": "read", "description": "Read.", "input_schema": TOOL}
        body = {"max_tokens": self._dice.randint(1, 4), "temperature": 0, **self._count()}
        return {**body, **self._some(stream=True, tools=[tool], metadata={"user_id": "u"})}

    def _count(self) -> dict[str, Any]:
        return {"model": MODEL, "messages": self._turns(), **self._some(system=self._text())}

    def _completion(self) -> dict[str, Any]:
        prompts = (self._text(), [self._text(), self._text()], self._ids(), [self._ids(), [7]])
        return {
            "model": MODEL,
            "prompt": self._dice.choice(prompts),
            "max_tokens": self._dice.randint(1, 4),
            "temperature": 0,
            **self._some(stream=True, echo=True, suffix="x", stop=["zz"]),
            **self._some(stream_options={"include_usage": True}),
        }

    def _native(self) -> dict[str, Any]:
        prompt: Any = self._dice.choice((self._text(), [self._text()], self._ids(), [self._ids()]))
        first = prompt[0] if isinstance(prompt, list) else prompt
        name = "text" if isinstance(first, str) else "input_ids"
        sampling = {"temperature": 0, "max_new_tokens": self._dice.randint(1, 4)}
        more = self._some(stream=True, extra_key="k", session_id="s")
        return {name: prompt, "sampling_params": sampling, **more}

    def _tokenize(self) -> dict[str, Any]:
        if self._dice.random() < 0.5:
            return {"model": MODEL, "messages": self._turns()}
        return {"prompt": self._dice.choice((self._text(), [self._text(), ""]))}

    def _detokenize(self) -> dict[str, Any]:
        return {"tokens": self._dice.choice((self._ids(), [self._ids(), [7]], []))}

    def _score(self) -> dict[str, Any]:
        items = [self._text(), self._text()]
        return {"model": MODEL, "query": self._text(), "items": items, "label_token_ids": [5, 6]}

    def _embedding(self) -> dict[str, Any]:
        return {"model": MODEL, "input": self._text()}

    def _rerank(self) -> dict[str, Any]:
        return {"query": self._text(), "documents": [self._text()]}
