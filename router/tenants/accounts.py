"""What each tenant has in flight, has used and may still use."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from router.errors import ClientError, TenantLimit
from router.tenants.bucket import Bucket
from router.tenants.model import scope_of

if TYPE_CHECKING:
    from router.tenants.model import Tenant

BYTES_PER_TOKEN: Final = 4
"""Reserves for a prompt of which only the size is known; corrected when it has been read."""

_WAIT_S_MIN: Final = 1.0
_WAIT_S_MAX: Final = 60.0
_SMOOTHING: Final = 0.1


class Account:
    """One tenant as it stands: its facts, replaced when the file changes, and its use.

    Counters are since the router started; ``refused`` is by error code, ``ended`` by outcome.
    """

    __slots__ = (
        "_duration_s",
        "_requests",
        "_tokens",
        "cached_tokens",
        "ended",
        "inflight",
        "output_tokens",
        "prompt_tokens",
        "refused",
        "scope",
        "tenant",
    )

    def __init__(self, tenant: Tenant, now_s: float) -> None:
        self.tenant = tenant
        self.scope = scope_of(tenant.name)
        self.inflight = 0
        self.ended: defaultdict[str, int] = defaultdict(int)
        self.refused: defaultdict[str, int] = defaultdict(int)
        self.prompt_tokens = self.cached_tokens = self.output_tokens = 0
        self._duration_s = _WAIT_S_MIN
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        self.become(tenant, now_s)

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.tenant.name

    def become(self, tenant: Tenant, now_s: float) -> None:
        """The file says something else of this tenant; what it used stays used."""
        self.tenant = tenant
        self._requests = _bucket(self._requests, tenant.requests_per_min_max, now_s)
        self._tokens = _bucket(self._tokens, tenant.prompt_tokens_per_min_max, now_s)

    def admit(self, body_bytes: int, now_s: float) -> Admission:
        """Let one request in and count it until its admission is released.

        ``body_bytes`` is what is known of its size, 0 for nothing.

        Raises:
            TenantLimit: the tenant may not send one now.
        """
        tenant, requests, tokens = self.tenant, self._requests, self._tokens
        if tenant.inflight_max is not None and self.inflight >= tenant.inflight_max:
            wait_s = min(max(self._duration_s / tenant.inflight_max, _WAIT_S_MIN), _WAIT_S_MAX)
            raise self._limit(f"{tenant.inflight_max} requests in flight", wait_s)
        if requests is not None and (wait_s := requests.wait_s(now_s)):
            raise self._limit(f"{tenant.requests_per_min_max} requests a minute", wait_s)
        if tokens is not None and (wait_s := tokens.wait_s(now_s)):
            raise self._limit(f"{tenant.prompt_tokens_per_min_max} prompt tokens a minute", wait_s)
        if requests is not None:
            requests.take(1)
        self.inflight += 1
        reserved = body_bytes // BYTES_PER_TOKEN
        if tokens is not None:
            tokens.take(reserved)
        return Admission(self, reserved, now_s)

    def demand_model(self, model: str, *others: str) -> None:
        """Let a model be asked for, by this name or by one of its others.

        Raises:
            ClientError: ``model-not-allowed``.
        """
        if not any(map(self.tenant.allows_model, (model, *others))):
            allowed = ", ".join(self.tenant.models or ()) or "none"
            raise ClientError(
                "model-not-allowed",
                f"Tenant {self.name} may not use the model {model!r}; it may use: {allowed}.",
            )

    def count(
        self, outcome: str, *, prompt_tokens: int, cached_tokens: int, output_tokens: int
    ) -> None:
        """A placed request has ended, and this is what the engine reported of it."""
        self.ended[outcome] += 1
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens
        self.output_tokens += output_tokens

    def take_tokens(self, amount: int) -> None:
        """Correct what the tenant's prompts have used."""
        if self._tokens is not None:
            self._tokens.take(amount)

    def release(self, duration_s: float) -> None:
        """A request is over."""
        self.inflight -= 1
        self._duration_s += _SMOOTHING * (duration_s - self._duration_s)

    def _limit(self, what: str, wait_s: float) -> TenantLimit:
        return TenantLimit(
            "tenant-limit",
            f"Tenant {self.name} has reached its limit of {what}; try again in {wait_s:.1f} s.",
            retry_after_s=wait_s,
        )


class Admission:
    """One admitted request of a tenant, counted until it is released."""

    __slots__ = ("_is_measured", "_is_over", "_reserved", "_since_s", "account")

    def __init__(self, account: Account, reserved: int, now_s: float) -> None:
        self.account = account
        self._reserved = reserved
        self._since_s = now_s
        self._is_measured = self._is_over = False

    def measured(self, prompt_tokens: int) -> None:
        """The prompt has been read: it has about so many tokens. Said again, it is not charged again."""
        if not self._is_measured:
            self._is_measured = True
            self.account.take_tokens(prompt_tokens - self._reserved)
            self._reserved = 0

    def release(self, now_s: float) -> None:
        """The request is over; what was reserved for a prompt that never came is given back."""
        if self._is_over:
            return
        self._is_over = True
        if self._reserved:
            self.account.take_tokens(-self._reserved)
        self.account.release(now_s - self._since_s)


def _bucket(old: Bucket | None, per_min: int | None, now_s: float) -> Bucket | None:
    if per_min is None:
        return None
    if old is None:
        return Bucket(per_min, now_s)
    old.resize(per_min)
    return old
