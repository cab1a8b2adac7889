"""What an operator does to a core's fleet, written to a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from router.recording.records import Emptied, Fixed, Limited, Moved, Weighed
from router.state.operating import Operating

if TYPE_CHECKING:
    from router.core import RouterCore
    from router.recording.journal import Journal
    from router.recording.seal import Seal
    from router.state.fleet.replica import Replica
    from router.state.sessions.pins import Pin


class RecordedOperating(Operating):
    """What an operator does, each thing written down before it is done."""

    def __init__(self, core: RouterCore, seal: Seal, journal: Journal) -> None:
        super().__init__(core.fleet, core.pins, core.index)
        self._seal = seal
        self._journal = journal

    @override
    def weigh(self, replica_id: str, weight: float) -> Replica | None:
        if self._journal.is_open:
            self._journal.write(Weighed(replica_id, weight))
        return super().weigh(replica_id, weight)

    @override
    def limit(self, replica_id: str, inflight_max: int | None) -> Replica | None:
        if self._journal.is_open:
            self._journal.write(Limited(replica_id, inflight_max))
        return super().limit(replica_id, inflight_max)

    @override
    def forget(self, replica_id: str) -> int | None:
        if self._journal.is_open:
            self._journal.write(Emptied(replica_id))
        return super().forget(replica_id)

    @override
    def fix(
        self, session_key: str, replica_id: str, now_s: float, *, for_s: float | None = None
    ) -> Pin | None:
        if self._journal.is_open:
            session = self._seal.session(session_key)
            self._journal.write(Fixed(now_s, session, replica_id, for_s))
        return super().fix(session_key, replica_id, now_s, for_s=for_s)

    @override
    def release(self, session_key: str) -> Pin | None:
        if self._journal.is_open:
            self._journal.write(Fixed(None, self._seal.session(session_key), None, None))
        return super().release(session_key)

    @override
    def move(self, session_key: str, replica_id: str, now_s: float) -> Pin | None:
        if self._journal.is_open:
            self._journal.write(Moved(now_s, self._seal.session(session_key), replica_id))
        return super().move(session_key, replica_id, now_s)
