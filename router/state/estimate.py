"""From a prompt's bytes to what a policy weighs: tokens, cached tokens, expected output."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from array import array
    from collections.abc import Collection, Iterator

    from router.state.prefix_index import Holdings, Mark, Match, Node
    from router.state.rates import AnswerShare, TokenRatio
    from router.state.sessions.pins import Pin

_PAGE_TOKENS: Final = 64
"""SGLang's page with its MLA backends: cached tokens come in whole pages."""

_HEAD_BYTES: Final = 1_024
"""What SMG's ``prefix_hash`` takes as a prompt's first 256 tokens where it has only text."""


class Prompt(Protocol):
    """What is read of a request's facts."""

    dialect: str
    model: str
    chain: array[int]
    ends_bytes: array[int]
    output_tokens_max: int | None

    @property
    def is_turn(self) -> bool:
        """It generates."""

    @property
    def prompt_bytes(self) -> int:
        """Canonical bytes of the whole prompt."""


class Held:
    """The tokens of one prompt that each replica holds, worked out for those that are asked for."""

    __slots__ = (
        "_answered",
        "_asked_id",
        "_asked_tokens",
        "_bytes_per_token",
        "_ends",
        "_known",
        "_last",
        "_match",
        "_tokens_max",
    )

    def __init__(
        self,
        match: Match,
        ends_bytes: array[int],
        *,
        bytes_per_token: float,
        prompt_tokens: int,
        last: tuple[int, int, int] | None,
        answered: int,
    ) -> None:
        """``last`` are the segments, bytes and tokens of the session's last prompt if this continues it."""
        self._match = match
        self._ends = ends_bytes
        self._bytes_per_token = bytes_per_token
        self._tokens_max = prompt_tokens - 1
        self._last = last
        self._answered = answered
        self._known: dict[int, int] = {}
        self._asked_id: str | None = None
        self._asked_tokens: int | None = None

    def anew(self, match: Match) -> Held:
        """The same prompt, matched again."""
        tokens = self._tokens_max + 1
        return Held(
            match, self._ends, bytes_per_token=self._bytes_per_token, prompt_tokens=tokens,
            last=self._last, answered=self._answered,
        )  # fmt: skip

    def get(self, replica_id: str, default: int = 0, /) -> int:
        """The tokens of one replica."""
        # The home, and then the chosen one, are asked for several times in a row.
        if replica_id is not self._asked_id:
            segments = self._match.segments(replica_id)
            self._asked_id = replica_id
            self._asked_tokens = self._tokens(segments) if segments else None
        tokens = self._asked_tokens
        return default if tokens is None else tokens

    @property
    def place(self) -> Node:
        """Where the index had most of the prompt."""
        return self._match.node

    def marks(self, replica_id: str, holdings: Holdings | None) -> tuple[Mark, ...]:
        """When one replica last used what it holds; to be asked before the index changes."""
        return self._match.marks(replica_id, holdings)

    def segments_within(self, tokens: float) -> int:
        """How many leading segments have no more tokens than that."""
        return bisect_right(range(1, len(self._ends) + 1), tokens, key=self._tokens)

    @property
    def most(self) -> int:
        """The most that any replica may hold."""
        segments = self._match.most
        return self._tokens(segments) if segments else 0

    def levels(self) -> Iterator[tuple[int, Collection[str]]]:
        """Holders from those of the most on: the most that any of them may hold, and their ids."""
        for segments, ids in self._match.levels():
            yield self._tokens(segments), ids

    def everyone(self) -> dict[str, int]:
        """The tokens of all that hold any."""
        found = self._match.everyone()
        for segments in set(found.values()):
            self._tokens(segments)
        known = self._known
        return {replica_id: known[segments] for replica_id, segments in found.items()}

    def _tokens(self, segments: int) -> int:
        """Tokens of the first ``segments``, in whole pages, never the whole prompt."""
        known = self._known.get(segments)
        if known is not None:
            return known
        held_bytes, last = self._ends[segments - 1], self._last
        if last is not None and segments >= last[0]:
            # What follows the last prompt begins with the last answer, or what is sent back of it.
            after = self._answered if segments == last[0] else 0
            tokens = last[2] + after + int((held_bytes - last[1]) / self._bytes_per_token)
        else:
            tokens = int(held_bytes / self._bytes_per_token)
        if tokens >= self._tokens_max:
            known = self._tokens_max // _PAGE_TOKENS * _PAGE_TOKENS
        else:
            known = tokens // _PAGE_TOKENS * _PAGE_TOKENS if tokens > 0 else 0
        self._known[segments] = known
        return known


@dataclass(slots=True)
class Estimate:
    """Tokens of one request. ``continues``: its prompt begins with the session's last prompt.

    ``head_key`` is the chain's value behind the first 256 tokens, 0 for a prompt without a chain.
    """

    prompt_tokens: int
    output_tokens: int
    continues: bool
    is_auxiliary: bool
    cached_tokens: Held
    head_key: int


@dataclass(slots=True, frozen=True)
class EstimateParameters:
    """``output_tokens`` stands for a session that has not answered yet.

    A request is *auxiliary* (a title, a token count) if it does not continue its session and is
    below ``auxiliary_tokens_max`` while the session is over ``auxiliary_factor`` times its size.
    """

    output_tokens: int = 500
    auxiliary_tokens_max: int = 4_000
    auxiliary_factor: int = 4


def estimate(
    prompt: Prompt,
    pin: Pin | None,
    match: Match,
    ratio: TokenRatio,
    answers: AnswerShare,
    *,
    parameters: EstimateParameters,
) -> Estimate:
    """Estimate one request from its session's pin and from what each replica holds of its chain.

    What generates nothing has no tokens.
    """
    if not prompt.is_turn:
        nothing = Held(
            match, prompt.ends_bytes, bytes_per_token=1.0, prompt_tokens=1, last=None, answered=0
        )
        return Estimate(0, 0, continues=False, is_auxiliary=True, cached_tokens=nothing, head_key=0)
    bytes_per_token = ratio.bytes_per_token(prompt.model, prompt.dialect)
    chain, ends_bytes = prompt.chain, prompt.ends_bytes
    prompt_bytes = ends_bytes[-1] if ends_bytes else 0
    prompt_tokens = int(prompt_bytes / bytes_per_token)
    output_tokens, answered, last = parameters.output_tokens, 0, None
    is_next = is_auxiliary = False
    if pin is not None:
        output_tokens = pin.output_tokens or output_tokens
        is_next = continues(prompt, pin)
        if is_next:
            answered = int(pin.output_tokens * answers.share(prompt.model, prompt.dialect))
            if pin.prompt_tokens:
                # Only the new part is estimated: the rest was counted by the engine.
                last = (pin.tail_segments, pin.prompt_bytes, pin.prompt_tokens)
                grown_bytes = prompt_bytes - pin.prompt_bytes
                prompt_tokens = pin.prompt_tokens + int(grown_bytes / bytes_per_token)
    if prompt_tokens <= 0:
        prompt_tokens = 1
    if prompt.output_tokens_max is not None:
        output_tokens = min(output_tokens, max(1, prompt.output_tokens_max))
    if pin is not None and not is_next:
        is_auxiliary = (
            prompt_tokens < parameters.auxiliary_tokens_max
            and pin.tokens > parameters.auxiliary_factor * prompt_tokens
        )
    held = Held(
        match, ends_bytes, bytes_per_token=bytes_per_token, prompt_tokens=prompt_tokens,
        last=last, answered=answered,
    )  # fmt: skip
    head_key = 0
    if chain:
        # Mostly the first segment is long enough.
        is_first = ends_bytes[0] >= _HEAD_BYTES
        head_key = chain[0 if is_first else bisect_left(ends_bytes, _HEAD_BYTES, 0, len(chain) - 1)]
    return Estimate(prompt_tokens, output_tokens, is_next, is_auxiliary, held, head_key)


def continues(prompt: Prompt, pin: Pin) -> bool:
    """Whether a prompt begins with all of the last one that its session is known to have had."""
    n, chain = pin.tail_segments, prompt.chain
    return 0 < n <= len(chain) and chain[n - 1] == pin.tail
