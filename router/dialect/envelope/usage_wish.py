"""Asking an OpenAI stream for its usage where the client did not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from router.dialect.body import splice
from router.dialect.body.reading import NULL, is_true
from router.dialect.body.splice import Edit, EditKind
from router.dialect.envelope.frame import NO_RAW

if TYPE_CHECKING:
    from router.dialect.options import DialectOptions

_ASK: Final = b'"stream_options":{"include_usage":true}'


def usage_edit(
    stream: msgspec.Raw, stream_options: msgspec.Raw, options: DialectOptions
) -> Edit | None:
    """The change that makes a stream tell its usage at its end, None if none is to be made.

    Raises:
        msgspec.ValidationError: the options are no object.
    """
    if not options.is_usage_asked or not is_true(stream):
        return None
    if not stream_options:
        return Edit(EditKind.APPEND_MEMBER, new=_ASK)
    old = bytes(stream_options)
    if old == NULL:
        return Edit(EditKind.REBUILD, new=b'{"include_usage":true}')
    fields = msgspec.json.decode(stream_options, type=dict[str, msgspec.Raw])
    if is_true(fields.get("include_usage", NO_RAW)):
        return None
    fields["include_usage"] = msgspec.Raw(b"true")
    return Edit(EditKind.REPLACE, old, splice.rebuilt(fields))


def with_usage(body: bytes, edit: Edit | None) -> tuple[bytes, bool]:
    """The body with that change, and whether the usage event is to be stripped from the answer."""
    if edit is None:
        return body, False
    asking = msgspec.Raw(edit.new)
    changed = splice.edited(body, edit, key="stream_options", value=lambda _: asking)
    return changed, changed is not body
