"""What other routers tell a core, written to a journal."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from typing_extensions import override

from router.recording.records import Loaded, Parted, Pinned
from router.state.shared.peers import Peers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.core import RouterCore
    from router.recording.journal import Journal
    from router.recording.seal import Seal
    from router.state.fleet.replica import PeerLoad
    from router.state.shared.peers import ToldPin


class RecordedPeers(Peers):
    """What other routers tell, each word written down before it counts."""

    def __init__(self, core: RouterCore, seal: Seal, journal: Journal) -> None:
        super().__init__(core.fleet, core.pins, core.index)
        self._seal = seal
        self._journal = journal

    @override
    def part(self, *, is_apart: bool) -> None:
        if self._journal.is_open:
            self._journal.write(Parted(is_apart))
        super().part(is_apart=is_apart)

    @override
    def loaded(
        self, router: str, loads: Mapping[str, PeerLoad], now_s: float, *, ttl_s: float
    ) -> None:
        if self._journal.is_open:
            rows = tuple([(replica_id, *load) for replica_id, load in loads.items()])
            self._journal.write(Loaded(now_s, router, ttl_s, rows))
        super().loaded(router, loads, now_s, ttl_s=ttl_s)

    @override
    def pinned(self, told: ToldPin, now_s: float) -> None:
        if self._journal.is_open:
            self._journal.write(
                Pinned(
                    now_s=now_s,
                    session=self._seal.session(told.key),
                    home_id=told.home_id,
                    version=told.version,
                    turn=told.turn,
                    tokens=told.tokens,
                    prompt_tokens=told.prompt_tokens,
                    prompt_bytes=told.prompt_bytes,
                    output_tokens=told.output_tokens,
                    tail=self._seal.links(array("Q", (told.tail,))),
                    tail_segments=told.tail_segments,
                    served_id=told.served_id,
                    age_s=told.age_s,
                    source=told.source,
                    wins=told.wins,
                    fixed_id=told.fixed_id,
                    fixed_for_s=told.fixed_for_s,
                )
            )
        super().pinned(told, now_s)
