"""A page taken apart: what its elements are, and whether it is well-formed."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final

VOID: Final = {"br", "input", "meta", "link", "img", "hr"}


class Page(HTMLParser):
    """Reads a page and refuses one whose elements are not closed in order."""

    def __init__(self, written: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.said: list[str] = []
        self.headings: list[tuple[int, str]] = []
        self.feed(written)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
            self.headings.append((int(tag[1]), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag, (tag, self.open)

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] in ("style", "script"):
            return
        self.said.append(data)
        if self.headings and self.open[-1] == f"h{self.headings[-1][0]}":
            level, text = self.headings[-1]
            self.headings[-1] = (level, text + data)

    @property
    def text(self) -> str:
        return " ".join(self.said)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def values(self, attribute: str) -> list[str]:
        return [found[attribute] for _, found in self.elements if attribute in found]
