"""Elements of HTML and SVG; whatever is not markup already is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

VOID: Final = frozenset({"br", "input", "meta"})
CASED: Final = {"viewbox": "viewBox", "preserveaspectratio": "preserveAspectRatio"}


class Markup(str):
    """Text that is markup and is not escaped again."""

    __slots__ = ()


def escaped(content: str) -> Markup:
    """The text as markup; markup as it is."""
    return content if isinstance(content, Markup) else Markup(escape(content, quote=True))


def joined(parts: Iterable[str], between: str = "") -> Markup:
    """The parts one after another, each escaped unless it is markup."""
    return Markup(escape(between).join(escaped(part) for part in parts))


def element(tag: str, *content: str, **attributes: str | float | None) -> Markup:
    """One element.

    A trailing underscore of an attribute's name is dropped, others become hyphens; None leaves the
    attribute out and an empty string writes its name alone.
    """
    written = [tag]
    for key, value in attributes.items():
        if value is None:
            continue
        name = key.rstrip("_").replace("_", "-")
        name = CASED.get(name, name)
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        written.append(f'{name}="{escape(shown, quote=True)}"' if shown else name)
    opening = f"<{' '.join(written)}>"
    return Markup(opening if tag in VOID else f"{opening}{joined(content)}</{tag}>")


def svg(*content: str, label: str, height: int = 1000, class_: str | None = None) -> Markup:
    """A drawing 1,000 units wide that is stretched to its box; strokes and text are not drawn in units.

    ``label`` is what a screen reader says of it.
    """
    return element(
        "svg",
        element("title", label),
        *content,
        class_=class_,
        viewbox=f"0 0 1000 {height}",
        preserveaspectratio="none",
        role="img",
        aria_label=label,
    )


def line_path(points: Iterable[tuple[float, float] | None]) -> str:
    """A path's data through points of 0..1 by 0..1, y upwards; None breaks the line."""
    written: list[str] = []
    last: tuple[int, int] | None = None
    for point in points:
        if point is None:
            last = None
            continue
        x, y = round(point[0] * 1000), round((1 - point[1]) * 1000)
        if last is None:
            written.append(f"M{x} {y}")
        elif (x, y) != last:
            written.append(f"l{x - last[0]} {y - last[1]}")
        last = (x, y)
    return "".join(written)


def dot_path(x: float, y: float) -> str:
    """A path's data that a round line cap makes a dot."""
    return f"M{round(x * 1000)} {round((1 - y) * 1000)}h0"
