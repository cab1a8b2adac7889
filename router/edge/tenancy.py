"""Whose request this is: at its head, before a byte of its body is read, and when it is placed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.dialect.salt import claimed, may_be_isolated, salt_of, salted
from router.errors import ClientError, Refused
from router.tenants.accounts import BYTES_PER_TOKEN

if TYPE_CHECKING:
    from router.core import Ticket
    from router.dialect.base import PromptFacts
    from router.edge.routes import Route
    from router.errors import RouterError
    from router.framing.events import RequestHead
    from router.tenants.accounts import Account, Admission
    from router.tenants.gate import Gate

_HEALTH: Final = "/health"
_CHALLENGE: Final = b'www-authenticate: Bearer realm="homeport"\r\n'


class Visit:
    """One request of a tenant; ``account`` is whose. Counted against its limits until it is over."""

    __slots__ = ("_admission", "_is_isolated", "account")

    def __init__(self, account: Account, admission: Admission | None, *, is_isolated: bool) -> None:
        self.account = account
        self._admission = admission
        self._is_isolated = is_isolated

    def claim(self, facts: PromptFacts) -> None:
        """Make the request the tenant's own: its session, its model, what it may share.

        Raises:
            ClientError: ``model-not-allowed``.
        """
        account = self.account
        account.demand_model(facts.model)
        claimed(facts, account.name, account.scope, is_isolated=self._is_isolated)
        facts.priority = account.tenant.priority

    def outgoing(self, body: bytes) -> bytes:
        """The body as a replica gets it."""
        return salted(body, salt_of(self.account.scope)) if self._is_isolated else body

    def placed(self, ticket: Ticket, body_bytes: int) -> None:
        """The request goes to a replica: what it costs is known better now."""
        if self._admission is not None:
            tokens = ticket.prompt_tokens if ticket.facts.is_readable else 0
            self._admission.measured(tokens or body_bytes // BYTES_PER_TOKEN)

    def over(self, now_s: float) -> None:
        """The request is answered, or its client gone."""
        if self._admission is not None:
            self._admission.release(now_s)


def welcome(gate: Gate, head: RequestHead, found: Route, now_s: float) -> Visit | None:
    """Whose request begins with this head; ``found.error`` says why it may not go on.

    The key comes before all else: who has none learns nothing of paths and methods. Only the
    health that load balancers ask for is open.
    """
    if found.path == _HEALTH and found.error is None:
        return None
    try:
        account = gate.account_of(head.headers)
    except ClientError as error:
        found.error = error
        return None
    admission: Admission | None = None
    if found.error is None and found.is_generation:
        try:
            _demand_path(gate, account, found)
            admission = account.admit(head.content_length or 0, now_s)
        except (ClientError, Refused) as error:
            found.error = error
    return Visit(account, admission, is_isolated=gate.is_isolated)


def challenge(error: RouterError) -> bytes:
    """The header line that a 401 of the router's own is owed (RFC 9110, 11.6.1)."""
    return _CHALLENGE if error.code == "bad-api-key" else b""


def _demand_path(gate: Gate, account: Account, found: Route) -> None:
    if found.is_other and not account.tenant.other_paths:
        raise ClientError(
            "path-not-allowed",
            f"Tenant {account.name} may not use the engine's own path {found.path}.",
        )
    if gate.is_isolated and not may_be_isolated(found.path):
        raise ClientError(
            "path-not-allowed",
            f"Tenants are isolated here, and the engine has no way to isolate {found.path};"
            " use /v1/chat/completions.",
        )
