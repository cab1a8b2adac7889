"""What a path and method lead to: a dialect, an answer of the router's own, or an error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from router.dialect import METHODS
from router.dialect.text.calls import OtherPath
from router.edge.routes.engine_paths import EnginePaths
from router.errors import ClientError
from router.framing.decoding import CODINGS, is_read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from router.dialect.base import Dialect
    from router.edge.bounds.limits import EdgeLimits
    from router.errors import RouterError
    from router.framing.events import RequestHead

MODELS: Final = "/v1/models"
HEALTH: Final = "/health"
_DEFAULT_PATH: Final = "/v1/chat/completions"
_ANTHROPIC_PATH: Final = "/v1/messages"
_READING: Final = (b"GET", b"HEAD")
_POST: Final = (b"POST",)
_SHOWN: Final = 200
"""Characters of what a client sent that an error repeats."""


@dataclass(slots=True, frozen=True)
class Row:
    """One line of the table: the requests of a path that go to a replica.

    ``path`` may have one variable part, a step in braces: ``/v1/things/{id}/cancel``.
    ``dialect`` reads the requests and shapes their errors. ``takes_all``: any method and content.
    """

    path: str
    methods: tuple[bytes, ...]
    dialect: Dialect
    takes_all: bool = False


@dataclass(slots=True)
class Route:
    """Where one request goes. ``dialect`` shapes its errors, and reads it if ``is_forwarded``.

    ``variable`` is what stands in the path's variable part, "" where it has none; ``methods`` are
    those the path takes. ``error`` is what is wrong with the head, None if nothing. ``is_other``: the
    path is one of the engine's own that the operator lets through, and not every tenant may use.
    """

    path: str
    dialect: Dialect
    is_forwarded: bool
    error: RouterError | None
    methods: tuple[bytes, ...] = _READING
    variable: str = ""
    is_other: bool = False


class Routes:
    """The table of paths."""

    def __init__(self, dialects: Mapping[str, Dialect], engine_paths: Sequence[str] = ()) -> None:
        """``dialects`` by path, which may be a pattern with one variable part.

        ``engine_paths`` go to a replica as they are: whole paths, or beginnings with ``*`` behind.
        """
        self._dialects = dialects
        self._exact: dict[str, Row] = {}
        self._patterns: list[tuple[re.Pattern[str], Row]] = []
        self._engine_paths = EnginePaths(engine_paths)
        self._other = Row("", (), OtherPath(), takes_all=True)
        for path, dialect in dialects.items():
            row = Row(path, METHODS.get(path, _POST), dialect)
            before, brace, behind = path.partition("{")
            if brace:
                rest = behind.partition("}")[2]
                pattern = re.compile(f"{re.escape(before)}([^/]+){re.escape(rest)}")
                self._patterns.append((pattern, row))
            else:
                self._exact[path] = row

    def find(self, path: str) -> tuple[Row, str] | None:
        """The row that serves a path, and what its variable part is; None if none does."""
        row = self._exact.get(path)
        if row is None and "%" in path:  # the engine reads it decoded
            path = unquote(path)
            row = self._exact.get(path)
        if row is not None:
            return row, ""
        for pattern, row in self._patterns:
            match = pattern.fullmatch(path)
            if match is not None:
                return row, match.group(1)
        is_other = not is_own(path) and self._engine_paths.has(path)
        return (self._other, "") if is_other else None

    def nearest(self, path: str) -> Dialect:
        """The dialect whose errors a client of this path reads: by its first steps, else OpenAI's."""
        for known, row in self._exact.items():
            if path.startswith(known + "/") or path.endswith(known):
                return row.dialect
        return self._dialects.get(_DEFAULT_PATH) or next(iter(self._dialects.values()))

    def shaped(self, path: str, head: RequestHead) -> Dialect:
        """The same for a path that no row serves, where a header may tell whose client it is."""
        dialect = self._dialects.get(_ANTHROPIC_PATH)
        return dialect if dialect is not None and is_anthropic(head) else self.nearest(path)

    @property
    def served(self) -> str:
        """All paths, for the person who asked for another one."""
        return ", ".join((*self._dialects, MODELS, HEALTH, *self._engine_paths.listed))


def route(head: RequestHead, routes: Routes, limits: EdgeLimits) -> Route:
    """Find where a request goes, and what its head alone rules out."""
    path = head.path.decode("ascii", "replace")
    found = routes.find(path)
    if found is None:
        error = _own_error(path, head, routes)
        return Route(path, routes.shaped(path, head), is_forwarded=False, error=error)
    row, variable = found
    error = None
    if row.takes_all:
        pass
    elif head.method not in row.methods:
        error = _wrong_method(path, head, row.methods)
    elif head.method not in _READING:
        error = _content_fault(head)
    if head.content_length is not None and head.content_length > limits.body_bytes_max:
        error = error or too_large(head.content_length, limits)
    return Route(
        path,
        row.dialect,
        is_forwarded=True,
        error=error,
        methods=row.methods,
        variable=variable,
        is_other=row.takes_all,
    )


def allowed(error: RouterError, found: Route | None) -> bytes:
    """The header line that a wrong method (RFC 9110, 15.5.6) or a coding is owed; else nothing."""
    if error.code == "bad-content-type":
        return b"accept-encoding: %b\r\n" % CODINGS  # RFC 9110, 15.5.16
    if error.code != "method-not-allowed" or found is None:
        return b""
    return b"allow: %b\r\n" % b", ".join(found.methods)


def is_anthropic(head: RequestHead) -> bool:
    """Whether a client of the Anthropic API sent it: its every request has a version."""
    return any(name == b"anthropic-version" for name, _ in head.headers)


def too_large(body_bytes: int, limits: EdgeLimits) -> ClientError:
    """The error for a body above the limit; ``body_bytes`` is what is known of its size."""
    return ClientError(
        "too-large",
        f"The body has {body_bytes} bytes, more than the {limits.body_bytes_max} allowed;"
        " shorten the conversation or raise the limit.",
    )


def is_own(path: str) -> bool:
    """The router answers this path itself."""
    return path in (HEALTH, MODELS) or path.startswith(MODELS + "/")


def _own_error(path: str, head: RequestHead, routes: Routes) -> ClientError | None:
    """What is wrong with a request that no replica gets."""
    if not is_own(path):
        return ClientError(
            "unknown-path",
            f"There is nothing at {path[:_SHOWN]!r}; served here: {routes.served}.",
        )
    if head.method not in _READING:
        return _wrong_method(path, head, _READING[:1])
    return None


def _wrong_method(path: str, head: RequestHead, methods: Sequence[bytes]) -> ClientError:
    wanted = " or ".join(method.decode() for method in methods)
    sent = head.method.decode("ascii")
    return ClientError("method-not-allowed", f"{path[:_SHOWN]} takes {wanted}, not {sent}.")


def _content_fault(head: RequestHead) -> ClientError | None:
    for name, value in head.headers:
        if name == b"content-type":
            kind = value.partition(b";")[0].strip().lower()
            if kind not in (b"application/json", b""):
                return ClientError(
                    "bad-content-type",
                    f"The content type is {kind.decode('ascii', 'replace')!r};"
                    " send application/json.",
                )
    if head.content_coding and not is_read(head.content_coding):
        coding = head.content_coding[:_SHOWN].decode("ascii", "replace")
        return ClientError(
            "bad-content-type",
            f"The content encoding {coding!r} is not read; send the body uncompressed or as"
            f" {CODINGS.decode()}.",
        )
    return None
