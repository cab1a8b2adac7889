"""An engine's output as lines, cut anywhere, bounded, its progress bars thinned out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replica.supervise.engine.lines import LastLines, Lines


def lines_of(*pieces: bytes, now_s: float = 0.0) -> list[str]:
    lines = Lines()
    found = [line for piece in pieces for line in lines.take(piece, now_s)]
    return found + lines.rest()


@given(
    text=st.lists(st.sampled_from([b"a", b"bc ", b"\n", b"\r\n", b"\xc3\xa9", b"\xff"])),
    cut=st.data(),
)
def test_where_it_is_cut_does_not_matter(text: list[bytes], cut: st.DataObject) -> None:
    whole = b"".join(text)
    at = cut.draw(st.integers(0, len(whole)))
    assert lines_of(whole[:at], whole[at:]) == lines_of(whole)


def test_lines_are_what_ends_with_a_newline_and_what_comes_last() -> None:
    assert lines_of(b"one\ntwo\r\n\n three") == ["one", "two", " three"]


def test_a_line_without_end_is_cut_and_its_rest_left_out() -> None:
    lines = Lines()
    for _ in range(1000):
        assert lines.take(b"x" * 1000, 0.0) == []
    (line, after) = lines.take(b"\nshort\n", 0.0)
    assert line.endswith(" ... (cut)")
    assert len(line) < 8_300
    assert after == "short"


def test_a_progress_bar_gives_a_line_a_second() -> None:
    lines = Lines()
    shown = [line for n in range(50) for line in lines.take(b"%d%%\r" % n, n / 10)]
    assert shown == ["0%", "10%", "20%", "30%", "40%"]
    assert lines.take(b"done\n", 5.0) == ["done"]


def test_the_last_lines_are_kept() -> None:
    last = LastLines(count=3)
    for n in range(10):
        last.add(f"{n}" * 1_000)
    assert [line[:1] for line in last.all()] == ["7", "8", "9"]
    assert {len(line) for line in last.all()} == {500}
