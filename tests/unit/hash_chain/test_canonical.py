"""Canonical bytes are unambiguous."""

from __future__ import annotations

from hashing.canonical import fingerprint, message, part


def test_fields_cannot_run_into_each_other() -> None:
    assert part("t", b"ab", b"c") != part("t", b"a", b"bc")
    assert part("t", b"ab") != part("t", b"ab", b"")
    assert part("t", b"a") + part("t", b"b") != part("t", b"ab")
    assert part("t", b"a") != part("u", b"a")
    assert message(part("t", b"a")) != part("t", b"a")


def test_a_text_that_grew_keeps_its_beginning() -> None:
    assert part("t", b"a text that grew").startswith(part("t", b"a text"))


def test_fingerprint() -> None:
    assert fingerprint(b"a") == fingerprint(b"a") != fingerprint(b"b")
    assert len(fingerprint(b"")) == 32
