"""Which replica keeps which response of ``/v1/responses``.

SGLang keeps a response (with ``--enable-response-store``) in the memory of the process that made it:
it alone can show it, cancel it, or go on from it. What is not remembered here is answered as the
engine answers an id that it does not know.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from router.dialect.base import SessionSource
from router.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.dialect.base import PromptFacts
    from router.state.history import RequestRecord

_HOLDERS_MAX: Final = 100_000
"""Some 40 MB; a replica that keeps a hundred thousand responses has other worries."""

_ID_LENGTH_MAX: Final = 128


class Holder(NamedTuple):
    """Where a response is, in which session it was made, and who alone may ask for it ("": anybody)."""

    replica_id: str
    session_key: str
    owner: str


class Holders:
    """Response id -> holder; the ones not asked for longest are forgotten first."""

    def __init__(self, holders_max: int = _HOLDERS_MAX) -> None:
        self._holders_max = holders_max
        self._known: OrderedDict[str, Holder] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def learn(
        self, response_id: str, replica_id: str, session_key: str, *, owner: str = ""
    ) -> None:
        """A replica has said that it made this response, and keeps it; "" is none."""
        if not 0 < len(response_id) <= _ID_LENGTH_MAX:
            return
        known = self._known
        known[response_id] = Holder(replica_id, session_key, owner)
        known.move_to_end(response_id)
        if len(known) > self._holders_max:
            known.popitem(last=False)

    def keep(self, response_id: str, record: RequestRecord) -> None:
        """The same, of a placed request."""
        self.learn(response_id, record.replica_id, record.session_key, owner=record.tenant)

    def bind(
        self,
        facts: PromptFacts,
        response_id: str,
        replica: Callable[[str], object | None],
        *,
        is_unnamed: bool | None = None,
        owner: str = "",
    ) -> None:
        """Let a request go where its response is kept, as a part of the session that made it.

        Unless it names another: ``is_unnamed`` says so where its key is no longer the client's own.

        ``replica`` answers None for a replica that the fleet has lost. Changes ``facts``, if the
        request is about a response at all.

        Raises:
            ClientError: nobody is known to keep it for this ``owner`` (``unknown-response``).
        """
        if not response_id:
            return
        holder = self._known.get(response_id)
        if holder is not None and replica(holder.replica_id) is None:
            del self._known[response_id]
            holder = None
        if holder is None or holder.owner != owner:
            raise ClientError(
                "unknown-response", f"Response with id '{response_id[:_ID_LENGTH_MAX]}' not found."
            )
        self._known.move_to_end(response_id)
        facts.bound_to = holder.replica_id
        # It names no session but by this response, if with the model behind it.
        if is_unnamed is None:
            is_unnamed = facts.session_key in ("", response_id, f"{response_id}/{facts.model}")
        if is_unnamed:
            facts.session_key, facts.session_source = holder.session_key, SessionSource.BODY
