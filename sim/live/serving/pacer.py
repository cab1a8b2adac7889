"""The engine model against the wall clock: engine seconds are wall seconds times the scale."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sim.engine.requests import Began, Ended, EndReason, Progress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.engine.replica_model import ReplicaModel
    from sim.engine.requests import EngineRequest, Event, Loads
    from sim.live.serving.counters import Counters

TICK_S: Final = 0.02  # wall: one stream event per request and tick, however fast the engine runs
_TICK_MIN_S: Final = 0.001


class Generation:
    """One request at the engine, as its handler follows it. Times are engine seconds."""

    __slots__ = ("_changed", "began", "ended", "n_tokens", "prompt_tokens", "rid", "submitted_s")

    def __init__(self, rid: str, *, prompt_tokens: int, submitted_s: float) -> None:
        self.rid = rid
        self.prompt_tokens = prompt_tokens
        self.submitted_s = submitted_s
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
        self._generations: dict[str, Generation] = {}
        self._woken = asyncio.Event()

    @property
    def now_s(self) -> float:
        """Engine seconds since the start."""
        return (self._loop.time() - self._started_s) * self._time_scale

    def is_live(self, rid: str) -> bool:
        """A request of this id waits or runs."""
        return rid in self._generations

    def submit(self, request: EngineRequest) -> Generation:
        """Hand a request to the engine.

        Raises:
            QueueFull: too many requests wait.
            PromptTooLong: it can never fit.
        """
        now_s = self._advance()
        self._model.submit(request, now_s)
        generation = Generation(request.rid, prompt_tokens=request.prompt_tokens, submitted_s=now_s)
        self._generations[request.rid] = generation
        self._woken.set()
        return generation

    def cancel(self, rid: str) -> None:
        """End a request now; nothing happens if it has ended already."""
        if rid in self._generations:
            self._model.cancel(rid, self._advance())
            self._advance()
            self._woken.set()

    def cancel_all(self, rid_prefix: str) -> None:
        """End every request whose id starts so, as the engine's abort does."""
        for rid in [rid for rid in self._generations if rid.startswith(rid_prefix)]:
            self.cancel(rid)

    def flush(self) -> bool:
        """Empty the caches; False, and nothing is done, while requests wait or run."""
        return self._model.flush(self._advance())

    def loads(self) -> Loads:
        """The engine's state now."""
        return self._model.loads(self._advance())

    async def run(self) -> None:
        """Follow the clock until cancelled."""
        while True:
            self._woken.clear()
            now_s = self._advance()
            next_s = self._model.next_at()
            if next_s is None:
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
            generation.apply(event)
            if isinstance(event, Progress):
                continue
            if isinstance(event, Began):
                self._counters.began(event, ttft_s=event.at_s - generation.submitted_s)
            else:
                del self._generations[event.rid]
                self._counters.ended(event, e2e_s=event.at_s - generation.submitted_s)
