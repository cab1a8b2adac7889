"""What would be decided now on the next turn of a session that is known; nothing changes by asking."""

from __future__ import annotations

from array import array
from copy import copy
from typing import TYPE_CHECKING

from router.dialect.base import PromptFacts
from router.explaining.decision import refused, told
from router.policy.view import Explanation, RouteRequest, Weighed
from router.state.estimate import estimate
from router.state.fleet.calls import ruled

if TYPE_CHECKING:
    from router.core import RouterCore
    from router.explaining.decision import Decision
    from router.policy.view import Ranking
    from router.state.cache.prefix_index import Node
    from router.state.sessions.pins import Pin

_MASK = (1 << 64) - 1


def next_turn(core: RouterCore, key: str, now_s: float, *, new_tokens: int = 0) -> Decision | None:
    """The decision on the session's last prompt and answer with ``new_tokens`` behind; None: no such session.

    What is not known of the session (its model, its prompt's beginning), because it was served elsewhere or is
    cached nowhere any more, is left open: any model, and nothing of the prompt cached.
    """
    pin = core.pins.get(key)
    if pin is None:
        return None
    facts = prompt_of(core, pin, new_tokens)
    changed: dict[str, int] = {}
    if pin.claim_id and core.fleet.get(pin.claim_id) is not None:
        changed[pin.claim_id] = pin.tail_segments
    match = core.beliefs.look(facts, pin, changed)
    guess = estimate(
        facts, pin, match, core.ratio, core.answers, parameters=core.parameters.estimate
    )
    request = core.as_ranked(
        RouteRequest(
            key,
            guess.prompt_tokens,
            guess.output_tokens,
            core.serial + 1,
            pin.home_id,
            now_s - pin.homed_s,
            core.ledger.session_inflight(key, pin.home_id),
            guess.is_auxiliary,
            guess.cached_tokens,
            guess.head_key,
            core.peers.is_apart,
        )
    )
    model = facts.model
    view = core.fleet.view(home_id=pin.home_id, model=model)
    if view.is_empty:
        decision = refused(core, request, core.members.refusal(model).code, now_s, model=model)
    else:
        explanation = core.policy.explain(request, view, copy(core.dice))
        rule = ruled(request, view, pin, now_s, bound_to="", is_turn=True)
        if rule is not None:
            explanation = _fixed(explanation, rule)
        decision = told(core, request, explanation, now_s, model=model)
    decision.session_key = key
    return decision


def _fixed(explanation: Explanation, ranking: Ranking) -> Explanation:
    """An operator's pin goes before the policy, whose prices are told all the same."""
    fixed_id = ranking.ranked[0]
    rows = [
        Weighed(
            row.replica_id,
            row.compared,
            "" if row.replica_id == fixed_id else f"an operator pinned the session to {fixed_id}",
            row.price,
        )
        for row in explanation.candidates
    ]
    return Explanation(ranking, "an operator pinned the session there", tuple(rows))


def prompt_of(core: RouterCore, pin: Pin, new_tokens: int) -> PromptFacts:
    """The session's next prompt, as far as it is known: the last one, its answer, and what is new."""
    records = core.history.of(pin.key)
    model, dialect = "", ""
    if records:
        model, dialect = records[-1].model, records[-1].dialect
    elif (home := core.fleet.get(pin.home_id)) is not None and home.models:
        model = home.models[0]
    chain, ends = _last_prompt(pin)
    # Of who has not been answered yet nothing is known but how much it will occupy.
    more_tokens = new_tokens + (pin.output_tokens if chain else pin.tokens)
    more = max(1, int(more_tokens * core.ratio.bytes_per_token(model, dialect)))
    chain.append(pin.tail ^ _MASK)  # what nobody has
    ends.append((ends[-1] if ends else 0) + more)
    return PromptFacts(dialect, model, session_key=pin.key, chain=chain, ends_bytes=ends)


def _last_prompt(pin: Pin) -> tuple[array[int], array[int]]:
    """The chain of the session's last prompt; links that are not known any more are such as nobody holds."""
    n, chain, ends = pin.tail_segments, array("Q"), array("I")
    if not n:
        return chain, ends
    tie = pin.tie
    if tie is not None and len(tie.chain) >= n and tie.chain[n - 1] == pin.tail:
        return tie.chain[:n], tie.ends_bytes[:n]
    if pin.place is not None:
        chain, ends = _path_to(pin.place)
        chain, ends = chain[:n], ends[:n]
    if len(chain) == n and chain[n - 1] == pin.tail:
        return chain, ends
    known = len(chain) if len(chain) < n else 0  # a longer one is another session's
    chain, ends = chain[:known], ends[:known]
    start = ends[-1] if ends else 0
    for segment in range(known + 1, n + 1):
        chain.append(pin.tail if segment == n else 0)
        ends.append(start + (pin.prompt_bytes - start) * (segment - known) // (n - known))
    return chain, ends


def _path_to(node: Node) -> tuple[array[int], array[int]]:
    """The chain from the index's root to a node's end; empty where the node was dropped."""
    path: list[Node] = []
    at: Node | None = node
    while at is not None and at.run:
        path.append(at)
        at = at.parent
    chain, ends = array("Q"), array("I")
    for part in reversed(path):
        chain.extend(part.run)
        ends.extend(part.ends)
    return chain, ends
