"""The engine model against the wall clock: engine seconds are wall seconds times the scale."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sim.engine.requests import Began, Ended, EndReason, Progress
from sim.live.serving.wire import epoch_s

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.engine.replica_model import ReplicaModel
    from sim.engine.requests import EngineRequest, Event, LoadReport, Loads
    from sim.engine.rules import EngineRules
    from sim.live.serving.counters import Counters

TICK_S: Final = 0.02  # wall: one stream event per request and tick, however fast the engine runs
_TICK_MIN_S: Final = 0.001
_WHOLE_TOKENS: Final = 50  # an answer that is not streamed hears of its tokens so many at a time


class Generation:
    """One request at the engine, as its handler follows it. Times are engine seconds."""

    __slots__ = (
        "_changed",
        "began",
        "ended",
        "heard_at_s",
        "is_abandoned",
        "is_stream",
        "n_tokens",
        "prompt_tokens",
        "rid",
        "submitted_s",
    )

    def __init__(
        self, rid: str, *, prompt_tokens: int, submitted_s: float, is_stream: bool
    ) -> None:
        self.rid = rid
        self.prompt_tokens = prompt_tokens
        self.submitted_s = submitted_s
        self.is_stream = is_stream
        self.is_abandoned = False
        self.heard_at_s = 0.0
        self.n_tokens = 0
        self.began: Began | None = None
        self.ended: Ended | None = None
        self._changed = asyncio.Event()

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed; 0 until it began."""
        return self.began.cached_tokens if self.began is not None else 0

    @property
    def is_aborted(self) -> bool:
        """It ended before all its tokens were generated."""
        return self.ended is not None and self.ended.reason is EndReason.ABORT

    async def changed(self) -> None:
        """Wait until something happened since the last call."""
        await self._changed.wait()
        self._changed.clear()

    @property
    def n_heard(self) -> int:
        """How often the engine's front has heard of its tokens."""
        return self.n_tokens if self.is_stream else self.n_tokens // _WHOLE_TOKENS

    def apply(self, event: Event) -> None:
        """Take one event of the engine."""
        if isinstance(event, Began):
            self.began = event
            self.n_tokens = 1
        else:
            self.n_tokens += event.n_tokens
            if isinstance(event, Ended):
                self.ended = event
        self._changed.set()


class Pacer:
    """Drives one engine model; :meth:`run` must be running."""

    def __init__(self, model: ReplicaModel, counters: Counters, *, time_scale: float) -> None:
        self._model = model
        self._counters = counters
        self._time_scale = time_scale
        self._loop = asyncio.get_running_loop()
        self._started_s = self._loop.time()
        self._started_epoch_s = epoch_s()
        self._generations: dict[str, Generation] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._woken = asyncio.Event()
        self._running = asyncio.Event()
        self._running.set()
        self._frozen_s = self._started_s

    @property
    def now_s(self) -> float:
        """Engine seconds since the start, without those for which it was frozen."""
        until_s = self._frozen_s if self.is_frozen else self._loop.time()
        return (until_s - self._started_s) * self._time_scale

    @property
    def is_frozen(self) -> bool:
        """The engine hangs: its time stands still."""
        return not self._running.is_set()

    def freeze(self, *, is_frozen: bool) -> None:
        """Let the engine hang, or go on where it stood."""
        if is_frozen == self.is_frozen:
            return
        if is_frozen:
            self._advance()
            self._frozen_s = self._loop.time()
            self._running.clear()
        else:
            lasted_s = self._loop.time() - self._frozen_s
            self._started_s += lasted_s
            self._started_epoch_s += lasted_s
            self._running.set()
        self._woken.set()

    async def until_running(self) -> None:
        """Wait for as long as the engine hangs."""
        await self._running.wait()

    def is_live(self, rid: str) -> bool:
        """A request of this id waits or runs."""
        return rid in self._generations

    def submit(self, request: EngineRequest, *, is_stream: bool = False) -> Generation:
        """Hand a request to the engine; the metrics tell streamed ones from others.

        Raises:
            QueueFull: too many requests wait.
            PromptTooLong: it can never fit.
        """
        now_s = self._advance()
        self._model.submit(request, now_s)
        generation = Generation(
            request.rid,
            prompt_tokens=request.prompt_tokens,
            submitted_s=now_s,
            is_stream=is_stream,
        )
        generation.heard_at_s = self._loop.time()
        self._generations[request.rid] = generation
        self._idle.clear()
        self._woken.set()
        return generation

    def cancel(self, rid: str) -> None:
        """End a request now; nothing happens if it has ended already."""
        if rid in self._generations:
            self._model.cancel(rid, self._advance())
            self._advance()
            self._woken.set()

    def abandon(self, generation: Generation, *, poll_s: float) -> None:
        """End a request whose client has left unseen, as soon as the engine's front looks.

        It does when it hears of tokens, and whenever ``poll_s`` wall seconds passed without any.
        """
        if generation.ended is None:
            generation.is_abandoned = True
            waited_s = self._loop.time() - generation.heard_at_s
            self._loop.call_later(poll_s - waited_s % poll_s, self._drop, generation)

    def _drop(self, generation: Generation) -> None:
        if self._generations.get(generation.rid) is generation:
            self.cancel(generation.rid)

    def cancel_all(self, rid_prefix: str) -> None:
        """End every request whose id starts so, as the engine's abort does."""
        for rid in [rid for rid in self._generations if rid.startswith(rid_prefix)]:
            self.cancel(rid)

    async def until_idle(self) -> None:
        """Wait until no request waits or runs."""
        await self._idle.wait()

    def flush(self) -> bool:
        """Empty the caches; False, and nothing is done, while requests wait or run."""
        return self._model.flush(self._advance())

    @property
    def rules(self) -> EngineRules:
        """How the engine schedules."""
        return self._model.rules

    def loads(self) -> Loads:
        """The engine's state now."""
        return self._model.loads(self._advance())

    def report(self) -> LoadReport:
        """What the engine told last of itself."""
        return self._model.report(self._advance())

    def epoch_of_s(self, at_s: float) -> float:
        """Calendar time of an engine time."""
        return self._started_epoch_s + at_s / self._time_scale

    async def run(self) -> None:
        """Follow the clock until cancelled."""
        while True:
            self._woken.clear()
            now_s = self._advance()
            next_s = self._model.next_at()
            if next_s is None or self.is_frozen:
                await self._woken.wait()
                continue
            wall_s = (next_s - now_s) / self._time_scale
            try:
                async with asyncio.timeout(min(max(wall_s, _TICK_MIN_S), TICK_S)):
                    await self._woken.wait()
            except TimeoutError:
                pass

    def _advance(self) -> float:
        now_s = self.now_s
        self._dispatch(self._model.advance(now_s))
        return now_s

    def _dispatch(self, events: Iterable[Event]) -> None:
        for event in events:
            generation = self._generations.get(event.rid)
            if generation is None:
                continue
            n_heard = generation.n_heard
            generation.apply(event)
            if generation.n_heard > n_heard:
                generation.heard_at_s = self._loop.time()
                if generation.is_abandoned:
                    self._loop.call_soon(self._drop, generation)
            if isinstance(event, Progress):
                continue
            if isinstance(event, Began):
                ttft_s = event.at_s - generation.submitted_s
                self._counters.began(ttft_s=ttft_s, is_stream=generation.is_stream)
            else:
                del self._generations[event.rid]
                if not self._generations:
                    self._idle.set()
                self._counters.ended(
                    event,
                    generation.began,
                    prompt_tokens=generation.prompt_tokens,
                    e2e_s=event.at_s - generation.submitted_s,
                    is_stream=generation.is_stream,
                )
