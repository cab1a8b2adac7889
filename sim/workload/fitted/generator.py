"""Draws sessions of coding agents by a seed, in the form that recorded traffic is read into.

A session grows by what each turn appends, is compacted at its limit, loses parts of its prefix now
and then, and waits for tools and people; it begins with one of several versions of tools and system
prompt. Beside it run sub-agents, branches under the same session key, and auxiliary calls.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from sim.rng import stream
from sim.workload.fitted.columns import BLOCK_TOKENS, Columns, Stem
from sim.workload.fitted.quantiles import Table
from sim.workload.traces.model import NO_PARENT, RecordedSession
from sim.workload.traces.tree import ROOT

if TYPE_CHECKING:
    import random

    from sim.workload.fitted.mix import Mix
    from sim.workload.traces.model import RecordedWorkload

_MID_TOKENS: Final = 60_000
"""A session whose first prompt is longer was met in its middle."""
_CONTEXT_MAX: Final = 1_000_000
_OWN_TOKENS_MIN: Final = 200
"""A first prompt has so much behind tools and system prompt at least."""
_GAP_S_MAX: Final = 100_000.0
_RESET_FROM_TOKENS: Final = 40_000
_CUT_RATIO: Final = 0.69
"""A compacted prompt has this share of what it was at most."""
_REST_S: Final = (0.1, 1.1)
"""From the last sub-agent's end to its session's next turn (Weka)."""
_TURNS_Z: Final = 0.9
"""The mean score of the sessions that turns belong to, not of the sessions."""
_BRANCH_TURNS: Final = (1, 4)
_TITLE_TOKENS: Final = 30


def generate(mix: Mix, *, seed: int) -> RecordedWorkload:
    """Draw ``mix.n_sessions`` sessions with what runs beside them; equal arguments, equal sessions."""
    return _Generator(mix, seed).drawn()


class _Heads:
    """Versions of tools and system prompt; sessions draw one by its popularity."""

    def __init__(
        self, columns: Columns, n: int, zipf: float, sizes: Table, dice: random.Random
    ) -> None:
        self._columns = columns
        self._sums = list(accumulate((rank + 1.0) ** -zipf for rank in range(n)))
        self._tokens = [int(sizes.at(dice.gauss(0.0, 1.0))) for _ in range(n)]
        self._branches: dict[int, int] = {}

    def draw(self, dice: random.Random) -> tuple[int, int]:
        """A branch of the tree and the tokens that it stands for."""
        version = bisect_right(self._sums, dice.random() * self._sums[-1])
        version = min(version, len(self._sums) - 1)
        tokens = self._tokens[version]
        branch = self._branches.get(version)
        if branch is None:
            branch = self._branches[version] = self._columns.tree.add(ROOT, 0)
            self._columns.tree.reach(branch, tokens - tokens % BLOCK_TOKENS)
        return branch, tokens


class _Beside(NamedTuple):
    """What runs beside a session: ``stem`` is its beginning, ``tokens`` long; None: begins anew."""

    after_turn: int
    delay_s: float
    n_turns: int
    stem: Stem | None = None
    tokens: int = 0
    is_joined: bool = False
    is_auxiliary: bool = False


_BESIDE_NOTHING: Final = _Beside(after_turn=-1, delay_s=0.0, n_turns=0)


class _Generator:
    """Draws one session after another; what its lines draw from."""

    def __init__(self, mix: Mix, seed: int) -> None:
        self.mix = mix
        self._seed = seed
        self.dice = stream(seed, "fitted/heads")
        self.columns = Columns()
        self.tables = _Tables(mix)
        self._heads = _Heads(
            self.columns, int(mix.heads), mix.heads_zipf, self.tables.head, self.dice
        )
        self._agent_heads = _Heads(
            self.columns, int(mix.agent_heads), mix.heads_zipf, self.tables.head, self.dice
        )

    def drawn(self) -> RecordedWorkload:
        """All sessions."""
        for number in range(int(self.mix.n_sessions)):
            self.dice = stream(self._seed, f"fitted/{number}")  # more sessions: the same and others
            self._session(f"fitted-{number:05d}")
        return self.columns.workload()

    def _session(self, session_id: str) -> None:
        mix, dice, tables = self.mix, self.dice, self.tables
        is_mid = dice.random() < mix.mid_ratio
        z = dice.gauss(0.0, 1.0)
        first = int((tables.mid_first if is_mid else tables.fresh_first).at(z))
        weight = mix.mid_turns_correlation if is_mid else 0.0
        z = weight * z + math.sqrt(1.0 - weight * weight) * dice.gauss(0.0, 1.0)
        n_turns = int((tables.mid_turns if is_mid else tables.fresh_turns).at(z) + 0.5)
        branch, head = self._heads.draw(dice)
        first = max(first, head + _OWN_TOKENS_MIN)
        depth = head - head % BLOCK_TOKENS
        stem = Stem(self.columns.tree, [(branch, 0)]).forked(depth)
        line = _Line(self, stem, first, head)
        limit = tables.limit.at(dice.gauss(0.0, 1.0))
        if first > limit or dice.random() < (mix.mid_long_ratio if is_mid else mix.long_ratio):
            limit = _CONTEXT_MAX
        line.limit, line.is_fresh = limit, not is_mid
        line.ends_at_limit = dice.random() < mix.limit_ends_ratio
        line.lean(z)
        beside: list[_Beside] = []
        if not is_mid and dice.random() < mix.auxiliary_ratio:
            tokens = int(tables.auxiliary.at(dice.gauss(0.0, 1.0)))
            beside.append(_Beside(-1, 0.0, 1, tokens=tokens, is_auxiliary=True))
        has_agents = dice.random() < mix.agents_ratio
        is_thick = dice.random() < mix.thick_ratio
        number, begun = len(self.columns.sessions), self.columns.n_turns
        for step in range(n_turns):
            if step:
                line.grow()
                if line.is_over:
                    break
            line.turn(is_first=step == 0)
            if has_agents and dice.random() < mix.agents_burst_ratio:
                line.is_awaited = self._agents(beside, step)
            if is_thick and dice.random() < mix.thick_burst_ratio:
                self._branches(beside, step, line)
        self._add(session_id, begun, head, NO_PARENT, _BESIDE_NOTHING)
        for n, one in enumerate(beside):
            self._beside(f"{session_id}/{n}", number, one)

    def _agents(self, beside: list[_Beside], step: int) -> bool:
        """Sub-agents that begin after a turn; answers whether they are waited for."""
        mix, dice = self.mix, self.dice
        is_joined = dice.random() < mix.agents_joined_ratio
        for _ in range(dice.randint(1, int(mix.agents_max))):
            n_turns = int(self.tables.agent_turns.at(dice.gauss(0.0, 1.0)) + 0.5)
            beside.append(_Beside(step, dice.uniform(*_REST_S), n_turns, is_joined=is_joined))
        return is_joined

    def _branches(self, beside: list[_Beside], step: int, line: _Line) -> None:
        """Branches that go on from a turn's prompt, all at once."""
        mix, dice = self.mix, self.dice
        depth = line.tokens - line.tokens % BLOCK_TOKENS
        for _ in range(dice.randint(int(mix.thick_min), int(mix.thick_max))):
            n_turns = dice.randint(*_BRANCH_TURNS)
            stem = line.stem.forked(depth)
            beside.append(_Beside(step, dice.uniform(*_REST_S), n_turns, stem, line.tokens))

    def _beside(self, session_id: str, parent: int, one: _Beside) -> None:
        begun = self.columns.n_turns
        stem, tokens, head = one.stem, one.tokens, 0
        if one.is_auxiliary:
            stem = Stem(self.columns.tree, []).forked(0)
        elif stem is None:
            branch, head = self._agent_heads.draw(self.dice)
            stem = Stem(self.columns.tree, [(branch, 0)]).forked(head - head % BLOCK_TOKENS)
            tokens = head
        line = _Line(self, stem, tokens, head)
        line.is_beside = True
        if not one.is_auxiliary:
            line.grow()
        for step in range(one.n_turns):
            if step:
                line.grow()
            line.turn(is_first=step == 0)
        if one.is_auxiliary:
            self.columns.output_tokens[-1] = _TITLE_TOKENS
        self._add(session_id, begun, head, parent, one)

    def _add(
        self, session_id: str, begun: int, head_tokens: int, parent: int, one: _Beside
    ) -> None:
        session = RecordedSession(
            session_id,
            begun,
            self.columns.n_turns,
            parent=parent,
            after_turn=one.after_turn,
            delay_s=one.delay_s,
            is_joined=one.is_joined,
            head_tokens=head_tokens,
            is_auxiliary=one.is_auxiliary,
        )
        self.columns.sessions.append(session)


class _Tables:
    """All distributions of a mix, tabulated once."""

    def __init__(self, mix: Mix) -> None:
        def table(name: str, unit: str, least: float, most: float) -> Table:
            return Table(mix.percentiles(name, unit), least=least, most=most)

        self.fresh_turns = table("fresh_turns", "", 2.0, 1_500.0)
        self.mid_turns = table("mid_turns", "", 2.0, 1_500.0)
        self.agent_turns = table("agent_turns", "", 1.0, 100.0)
        self.fresh_first = table("fresh_first", "_tokens", 5_000.0, _MID_TOKENS)
        self.mid_first = table("mid_first", "_tokens", _MID_TOKENS + 1.0, 900_000.0)
        self.growth = table("growth", "_tokens", 20.0, 600_000.0)
        self.opening_growth = table("opening_growth", "_tokens", 20.0, 600_000.0)
        self.output = table("output", "_tokens", 10.0, 16_000.0)
        self.latency = table("latency", "_s", 1.0, 300.0)
        self.limit = table("limit", "_tokens", 30_000.0, _CONTEXT_MAX)
        self.compacted = table("compacted", "_tokens", 8_000.0, _CONTEXT_MAX)
        self.kept = table("rewrite_kept", "_ratio", 0.0, 1.0)
        self.tool_gap = table("tool_gap", "_s", 0.005, _GAP_S_MAX)
        self.user_gap = table("user_gap", "_s", 0.5, _GAP_S_MAX)
        self.head = table("head", "_tokens", 1_024.0, 100_000.0)
        self.auxiliary = table("auxiliary", "_tokens", 64.0, 10_000.0)
        self.user_chances = _user_chances(mix)


def _user_chances(mix: Mix) -> tuple[float, float]:
    """That a person begins a turn, after one that a tool began and after one that a person did.

    So that the share of all turns is ``user_ratio``, whatever share follows one.
    """
    share, stays = mix.user_ratio, mix.user_stays_ratio
    begins = share * (1.0 - stays)
    if begins < 1.0 - share:
        return begins / (1.0 - share), stays
    return 1.0, 2.0 - 1.0 / share


class _Line:
    """One session as it grows: its newest prompt, and what it has of its own."""

    def __init__(self, generator: _Generator, stem: Stem, tokens: int, head_tokens: int) -> None:
        self._mix, self._dice = generator.mix, generator.dice
        self._tables, self._columns = generator.tables, generator.columns
        self.stem, self.tokens, self._head_tokens = stem, tokens, head_tokens
        self.limit: float = _CONTEXT_MAX
        self.is_fresh = self.ends_at_limit = self.is_over = self.is_beside = False
        self.is_awaited = False
        self._n_grown = 0
        mix, gauss = self._mix, self._dice.gauss
        self._growth_z = mix.growth_session_correlation * gauss(0.0, 1.0)
        pace_z = gauss(0.0, 1.0)
        self._gap_z = mix.gap_session_correlation * pace_z
        self._latency_z = mix.latency_gap_correlation * pace_z
        session, answer = mix.growth_session_correlation, mix.growth_answer_correlation
        self._growth_rest = math.sqrt(max(0.0, 1.0 - session * session - answer * answer))
        self._gap_rest = math.sqrt(1.0 - mix.gap_session_correlation**2)
        output, pace = mix.latency_output_correlation, mix.latency_gap_correlation
        self._latency_rest = math.sqrt(max(0.0, 1.0 - output * output - pace * pace))
        self._answer_z = 0.0
        self._was_user = False
        self._now_s = 0.0

    def lean(self, turns_z: float) -> None:
        """Grow as sessions do that have as many turns as this score says."""
        weight = self._mix.growth_turns_correlation
        share = self._growth_z * math.sqrt(1.0 - weight * weight)
        lean = self._mix.growth_session_correlation * weight * (turns_z - _TURNS_Z)
        self._growth_z = share + lean

    def grow(self) -> None:
        """The next prompt: longer, or cut."""
        mix, dice = self._mix, self._dice
        z = (
            self._growth_z
            + mix.growth_answer_correlation * self._answer_z
            + self._growth_rest * dice.gauss(0.0, 1.0)
        )
        self._n_grown += 1
        growth = self._tables.growth
        if self.is_fresh and dice.random() < self._n_grown**-mix.opening_decay:
            growth = self._tables.opening_growth
        tokens = self.tokens + int(growth.at(z))
        is_at_limit = tokens > self.limit
        if is_at_limit and self.ends_at_limit:
            self.is_over = True
            return
        is_reset = self.tokens > _RESET_FROM_TOKENS and dice.random() < mix.reset_ratio
        if (is_at_limit or is_reset) and self._compact():
            return
        if dice.random() * self.tokens < mix.rewrite_ratio * mix.rewrite_context_tokens:
            self._cut(int(self._tables.kept.at(dice.gauss(0.0, 1.0)) * self.tokens))
        self.tokens = min(tokens, _CONTEXT_MAX)

    def _compact(self) -> bool:
        """Go on with a summary behind tools and system prompt, if that is shorter."""
        after = int(self._tables.compacted.at(self._dice.gauss(0.0, 1.0)))
        after = max(min(after, int(_CUT_RATIO * self.tokens)), self._head_tokens + _OWN_TOKENS_MIN)
        if after >= self.tokens:
            return False
        self._cut(self._head_tokens)
        self.tokens = after
        return True

    def turn(self, *, is_first: bool) -> None:
        """Note the newest prompt as a turn."""
        columns, dice, tables = self._columns, self._dice, self._tables
        z = self._answer_z = dice.gauss(0.0, 1.0)
        named = self.tokens - self.tokens % BLOCK_TOKENS
        self.stem.reach(named)
        columns.prompt_tokens.append(self.tokens)
        columns.named_tokens.append(named)
        columns.branch.append(self.stem.branch)
        columns.output_tokens.append(int(tables.output.at(z)))
        gap_s = 0.0 if is_first else self._gap_s()
        rest_s = math.nan
        if self.is_awaited:
            rest_s, self.is_awaited = dice.uniform(*_REST_S), False
        columns.gap_s.append(gap_s)
        columns.rest_s.append(rest_s)
        weight = self._mix.latency_output_correlation
        latency_z = self._latency_z + weight * z + self._latency_rest * dice.gauss(0.0, 1.0)
        latency_s = tables.latency.at(latency_z)
        columns.latency_s.append(latency_s)
        columns.at_s.append(self._now_s + gap_s)
        self._now_s += gap_s + latency_s

    def _gap_s(self) -> float:
        dice = self._dice
        z = self._gap_z + self._gap_rest * dice.gauss(0.0, 1.0)
        if self.is_beside:
            return self._tables.tool_gap.at(z)
        self._was_user = dice.random() < self._tables.user_chances[self._was_user]
        return (self._tables.user_gap if self._was_user else self._tables.tool_gap).at(z)

    def _cut(self, tokens: int) -> None:
        """Go on behind the first ``tokens`` of the newest prompt."""
        self.stem = self.stem.forked(tokens - tokens % BLOCK_TOKENS)
