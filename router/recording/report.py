"""What a replay came to, for the person who asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from router.recording.codec import Recording
from router.recording.player import Player

if TYPE_CHECKING:
    from collections.abc import Iterable


class Report(NamedTuple):
    """A replay's outcome; ``lines`` are to be printed."""

    n_differences: int
    lines: list[str]


def replayed(chunks: Iterable[bytes], *, maker: str, differences_max: int) -> Report:
    """Replay a recording, given as a file's bytes; tells at most so many differences.

    ``maker`` is this program: another version may rightly decide otherwise.

    Raises:
        RecordingError: it is no recording, or is damaged.
    """
    recording = Recording(chunks)
    player = Player(recording.header)
    shown: list[str] = []
    n_differences = 0
    for difference in player.play(recording):
        n_differences += 1
        if len(shown) < differences_max:
            shown.append(f"  {difference}")
    header, tally = recording.header, player.tally
    end = "cut off (a crash, or it is still written)" if recording.is_truncated else ""
    size = f"{recording.n_records:,} ({recording.n_bytes:,} bytes)"
    answers = (
        f"{tally.placed:,} placed, {tally.refused:,} refused, {tally.moved:,} sent elsewhere, "
        f"{tally.stayed:,} with nowhere else to go"
    )
    lines = [
        f"recorded by {header.maker}, policy {header.policy}",
        f"records {size}, end: {end or recording.end_reason or 'not reached'}",
        f"decisions {tally.decisions:,}: {answers}",
    ]
    if not n_differences:
        return Report(0, [*lines, "all equal"])
    if header.maker != maker:
        lines.append(f"this is {maker}: another version may rightly decide otherwise")
    which = f"the first {len(shown)}" if n_differences > len(shown) else "all of them"
    lines += [f"{n_differences:,} differences; {which}:", *shown]
    return Report(n_differences, lines)
