"""A worker's post: from when it learns what its siblings know until it has left what it counted to the parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from router.control.whole.calls import siblings_only
from router.control.whole.joining import Joining
from router.control.whole.kept import KeptResponses
from router.control.whole.whole import Whole
from router.workers.board import Stage

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from router.control.api.server import ControlApi
    from router.control.whole.joining import Known
    from router.workers.place import Place


class Holders(Protocol):
    """Which replica keeps which response, as the front door knows it."""

    told: Callable[[str, Any], None] | None

    def hear(self, response_id: str, holder: Any) -> None:  # noqa: ANN401  (the front door's own)
        """A sibling has learned it."""

    def newest(self, count: int) -> list[Any]:
        """Those that were asked for last."""


class Post:
    """One worker among its siblings; ``shares_sessions``: they tell each other of sessions, and no Redis does."""

    def __init__(self, place: Place, known: Known, *, shares_sessions: bool) -> None:
        self.place = place
        self.joining = Joining(place, known)
        self._known = known
        self._shares_sessions = shares_sessions
        self._whole = Whole(place)
        self._kept: KeptResponses | None = None

    def share_responses(self, holders: Holders, holder: Callable[[str, str, str], Any]) -> None:
        """Tell siblings which replica keeps which response; ``holder`` makes what ``holders`` keeps of it."""
        kept = KeptResponses(
            self.place, lambda word: holders.hear(word[0], holder(*word[1])), holders.newest
        )
        holders.told = lambda response_id, found: kept.note((response_id, found))
        self._kept = kept

    async def begin(self, api: ControlApi) -> None:
        """Hear siblings, and learn what they know; what they say from now on comes by itself."""
        place = self.place
        around = (siblings_only(place), self._whole.inner)
        kept, routes = self._kept, self.joining.routes
        if kept is not None:
            routes = [*routes, *kept.routes]
        await api.serve_siblings(place.calls, around, routes)
        self._enter(Stage.LISTENING)
        await self.joining.join(
            with_sessions=self._shares_sessions, further=None if kept is None else kept.learn
        )
        self._whole.joined.set()

    async def open(self, api: ControlApi, tls: ssl.SSLContext | None, handshake_s: float) -> int:
        """Answer on the control port for all; answers the port."""
        return await api.start(
            "",
            0,
            tls,
            handshake_s,
            sockets=self.place.control,
            around=(self._whole.public,),
        )

    def ready(self) -> None:
        """Serve, and let the parent know."""
        self._enter(Stage.READY)
        self.place.ready()

    def leave(self, api: ControlApi) -> bool:
        """Nothing new comes here; True if siblings take it, False if all workers end."""
        self._enter(Stage.LEAVING)
        if self.place.board.is_stopping:
            return False
        api.leave()
        return True

    def end(self, counts: bytes) -> None:
        """Leave what was counted to the parent."""
        self.place.board.keep_counts(self.place.slot, counts)

    def _enter(self, stage: Stage) -> None:
        self.place.stage = stage
        self.place.beat(self._known.now_s())
