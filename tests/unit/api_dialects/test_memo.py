"""What is remembered, and that it stays bounded."""

from __future__ import annotations

from router.dialect.body.memo import PartMemo, RenderedPart


def part(n_segments: int = 1) -> RenderedPart:
    return RenderedPart((b"12345678",) * n_segments, (10,) * n_segments)


def test_a_part_is_remembered_by_its_key() -> None:
    memo = PartMemo(100)
    memo.put(b"a", part())

    assert memo.get(b"a") == part()
    assert memo.get(b"b") is None


def test_it_never_holds_more_than_its_limit() -> None:
    memo = PartMemo(40)
    for number in range(1000):
        memo.put(b"%d" % number, part(3))
        assert len(memo) * part(3).weight <= 40
    assert memo.get(b"999") is not None
    assert memo.get(b"0") is None


def test_what_is_asked_for_stays() -> None:
    memo = PartMemo(40)
    memo.put(b"kept", part())
    for number in range(1000):
        memo.put(b"%d" % number, part())
        assert memo.get(b"kept") is not None


def test_a_part_larger_than_half_the_memo_is_not_kept() -> None:
    memo = PartMemo(10)
    memo.put(b"a", part(5))
    memo.put(b"b", part(2)._replace(bare=part(2)))
    assert len(memo) == 0


def test_putting_a_key_again_weighs_nothing_more() -> None:
    memo = PartMemo(20)
    memo.put(b"a", part())
    for _ in range(100):
        memo.put(b"b", part())
    assert memo.get(b"a") is not None


def test_a_part_is_rendered_once() -> None:
    rendered = []

    def render() -> RenderedPart:
        rendered.append(1)
        return part()

    memo = PartMemo(100)
    assert memo.part(b"a", render) is memo.part(b"a", render)
    assert len(rendered) == 1
