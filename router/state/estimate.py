"""From a prompt's bytes to what a policy weighs: tokens, cached tokens, expected output."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from router.rows import Row
from router.state.cache.held import Held

if TYPE_CHECKING:
    from array import array

    from router.state.cache.prefix_index import Match
    from router.state.rates.tokens import AnswerShare, TokenRatio
    from router.state.sessions.pins import Pin

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


class Estimate(Row):
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
        match.tied = None
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
