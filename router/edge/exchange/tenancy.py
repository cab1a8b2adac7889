"""Whose request this is: at its head, before a byte of its body is read, and when it is placed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.dialect.clients.agents import manners_of
from router.dialect.clients.salt import claimed, may_be_isolated, salt_of, salted
from router.edge.bounds.holding import wait_s
from router.edge.routes.naming import settle
from router.errors import ClientError, TenantLimit
from router.tenants.accounts import BYTES_PER_TOKEN

if TYPE_CHECKING:
    from router.dialect.base import PromptFacts
    from router.edge.context import Door
    from router.edge.routes.routes import Route
    from router.errors import RouterError
    from router.framing.events import RequestHead
    from router.state.fleet.names import ModelNames
    from router.tenants.accounts import Account, Admission
    from router.tenants.gate import Gate
    from router.ticket import Ticket

_HEALTH: Final = "/health"
_CHALLENGE: Final = b'www-authenticate: Bearer realm="homeport"\r\n'


class Visit:
    """One request of a tenant; ``account`` is whose. Counted against its limits until it is over."""

    __slots__ = ("_admission", "_body_bytes", "_is_isolated", "account")

    def __init__(self, account: Account, body_bytes: int, *, is_isolated: bool) -> None:
        self.account = account
        self._body_bytes = body_bytes
        self._admission: Admission | None = None
        self._is_isolated = is_isolated

    def admit(self, now_s: float) -> None:
        """Let the request in, within the tenant's limits; repeating it changes nothing.

        Raises:
            TenantLimit: not now.
        """
        if self._admission is None:
            self._admission = self.account.admit(self._body_bytes, now_s)

    def claim(self, facts: PromptFacts, names: ModelNames) -> str | None:
        """Make the request the tenant's own: its model, its session, what it may share.

        A model may be allowed by the name that is asked for or by the one it stands for. Answers
        what :func:`settle` does.

        Raises:
            ClientError: ``model-not-allowed``, or nobody serves such a model.
        """
        account = self.account
        asked = f"{facts.model}:{facts.lora_name}" if facts.lora_name else facts.model
        try:
            name = settle(facts, names)
        except ClientError:
            account.demand_model(asked)  # the names of others' models are not told
            raise
        # What is neither asks no model anything.
        if account.tenant.models is not None and (facts.model or facts.is_turn):
            account.demand_model(asked, facts.model)
        tenant = account.tenant
        claimed(facts, tenant.name, account.scope, is_isolated=self._is_isolated)
        facts.priority = tenant.priority
        return name

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


def welcome(door: Door, gate: Gate, head: RequestHead, found: Route) -> Visit | None:
    """Whose request begins with this head; ``found.error`` says why it may not go on.

    The key comes before all else: who has none learns nothing of paths and methods. Only the
    health that load balancers ask for is open. A tenant at its limit is refused here, unless its
    agent's requests wait at the door: then :meth:`Visit.admit` is asked again when it is placed.
    """
    if found.path == _HEALTH and found.error is None:
        return None
    try:
        account = gate.account_of(head.headers)
    except ClientError as error:
        found.error = error
        return None
    visit = Visit(account, head.content_length or 0, is_isolated=gate.is_isolated)
    if found.error is None and found.is_forwarded:
        try:
            _demand_path(gate, account, found)
        except ClientError as error:
            found.error = error
        else:
            found.error = let_in(door, visit, head)
    return visit


def let_in(door: Door, visit: Visit, head: RequestHead) -> TenantLimit | None:
    """Count a visit that may be made; answers why it cannot be made now, None if it can, or may wait."""
    try:
        visit.admit(door.now_s())
    except TenantLimit as limit:
        manners = manners_of(head.headers, head.path)
        return None if wait_s(door.limits.hold, limit, manners) else limit
    return None


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
