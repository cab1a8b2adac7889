"""From a prompt's bytes to what a policy weighs: tokens, cached tokens, expected output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from array import array

    from router.state.pins import Pin
    from router.state.rates import AnswerShare, TokenRatio

_PAGE_TOKENS: Final = 64
"""SGLang's page with its MLA backends: cached tokens come in whole pages."""


class Prompt(Protocol):
    """What is read of a request's facts."""

    dialect: str
    model: str
    chain: array[int]
    ends_bytes: array[int]
    output_tokens_max: int | None

    @property
    def prompt_bytes(self) -> int:
        """Canonical bytes of the whole prompt."""


@dataclass(slots=True, frozen=True)
class Estimate:
    """Tokens of one request. ``continues``: its prompt begins with the session's last prompt."""

    prompt_tokens: int
    output_tokens: int
    continues: bool
    is_auxiliary: bool
    cached_tokens: dict[str, int]


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
    held_segments: dict[str, int],
    ratio: TokenRatio,
    answers: AnswerShare,
    *,
    parameters: EstimateParameters,
) -> Estimate:
    """Estimate one request from its session's pin and from how many segments each replica holds."""
    bytes_per_token = ratio.bytes_per_token(prompt.model, prompt.dialect)
    last = pin if pin is not None and continues(prompt, pin) else None
    prompt_tokens = max(1, int(prompt.prompt_bytes / bytes_per_token))
    if last is not None and last.prompt_tokens:
        # Only the new part is estimated: the rest was counted by the engine.
        grown_bytes = prompt.prompt_bytes - last.prompt_bytes
        prompt_tokens = max(1, last.prompt_tokens + int(grown_bytes / bytes_per_token))
    answered = 0
    if last is not None:
        answered = int(last.output_tokens * answers.share(prompt.model, prompt.dialect))
    cached = {
        replica_id: _cached(
            prompt, segments, bytes_per_token, prompt_tokens, last=last, answered=answered
        )
        for replica_id, segments in held_segments.items()
    }
    output_tokens = (pin.output_tokens if pin is not None else 0) or parameters.output_tokens
    if prompt.output_tokens_max is not None:
        output_tokens = min(output_tokens, max(1, prompt.output_tokens_max))
    is_auxiliary = (
        pin is not None
        and last is None
        and prompt_tokens < parameters.auxiliary_tokens_max
        and pin.tokens > parameters.auxiliary_factor * prompt_tokens
    )
    return Estimate(prompt_tokens, output_tokens, last is not None, is_auxiliary, cached)


def continues(prompt: Prompt, pin: Pin) -> bool:
    """Whether a prompt begins with all of the last one that its session is known to have had."""
    n = pin.tail_segments
    return 0 < n <= len(prompt.chain) and prompt.chain[n - 1] == pin.tail


def _cached(
    prompt: Prompt,
    segments: int,
    bytes_per_token: float,
    prompt_tokens: int,
    *,
    last: Pin | None,
    answered: int,
) -> int:
    """Tokens of the first ``segments``, in whole pages, never the whole prompt."""
    held_bytes = prompt.ends_bytes[segments - 1]
    if last is not None and last.prompt_tokens and segments >= last.tail_segments:
        # What follows the last prompt begins with the last answer, or what is sent back of it.
        after = answered if segments == last.tail_segments else 0
        beyond_bytes = held_bytes - last.prompt_bytes
        tokens = last.prompt_tokens + after + int(beyond_bytes / bytes_per_token)
    else:
        tokens = int(held_bytes / bytes_per_token)
    return max(0, min(tokens, prompt_tokens - 1)) // _PAGE_TOKENS * _PAGE_TOKENS
