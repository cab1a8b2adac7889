"""A worker's post: from when it learns what its siblings know until it has left what it counted to the parent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.control.whole.calls import siblings_only
from router.control.whole.joining import Joining
from router.control.whole.whole import Whole
from router.workers.board import Stage

if TYPE_CHECKING:
    import ssl

    from router.control.api.server import ControlApi
    from router.control.whole.joining import Known
    from router.workers.place import Place


class Post:
    """One worker among its siblings; ``shares_sessions``: they tell each other of sessions, and no Redis does."""

    def __init__(self, place: Place, known: Known, *, shares_sessions: bool) -> None:
        self.place = place
        self.joining = Joining(place, known)
        self._known = known
        self._shares_sessions = shares_sessions
        self._whole = Whole(place)

    async def begin(self, api: ControlApi) -> None:
        """Hear siblings, and learn what they know; what they say from now on comes by itself."""
        place = self.place
        around = (siblings_only(place), self._whole.inner)
        await api.serve_siblings(place.calls, around, self.joining.routes)
        self._enter(Stage.LISTENING)
        await self.joining.join(with_sessions=self._shares_sessions)
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
