"""What the edge tells of each request that is over: to the counters, its tenant and the access log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.obs.access import AccessLog
    from router.obs.metrics import Counts
    from router.state.history import RequestRecord
    from router.tenants.accounts import Account
    from router.tenants.gate import Gate


class Observer:
    """Told of each request's end by the edge: counts it, and has its line written (``access``)."""

    def __init__(
        self, counts: Counts, *, access: AccessLog | None = None, gate: Gate | None = None
    ) -> None:
        self._counts = counts
        self._gate = gate
        self._access = access

    def finished(self, record: RequestRecord) -> None:
        """A placed request is over."""
        self._counts.finished(record)
        gate, tenant = self._gate, record.tenant
        account = gate.accounts.get(tenant) if gate is not None and tenant else None
        if account is not None:
            account.count(
                str(record.outcome),
                prompt_tokens=record.reported_prompt_tokens or 0,
                cached_tokens=record.reported_cached_tokens or 0,
                output_tokens=record.output_tokens or 0,
            )
        if self._access is not None:
            self._access.finished(record)

    def turned_away(self, *, code: str, dialect: str, target: str, tenant: str = "") -> None:
        """The router answered a request itself, without placing it."""
        self._counts.turned_away[code] += 1
        if tenant and (account := self._account(tenant)) is not None:
            account.refused[code] += 1
        if self._access is not None:
            self._access.turned_away(code=code, dialect=dialect, target=target, tenant=tenant)

    def noted(self, event: str) -> None:
        """A request could not be served at once: counts what was done about it."""
        self._counts.pressure[event] += 1

    def _account(self, tenant: str) -> Account | None:
        return None if self._gate is None else self._gate.accounts.get(tenant)
