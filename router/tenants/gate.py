"""Whose key is this: a look-up by hash that costs the same with one tenant and with thousands."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from router.errors import ClientError
from router.tenants.accounts import Account
from router.tenants.keys import KEY_LENGTH_MAX, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.tenants.model import Tenant

_AUTHORIZATION: Final = b"authorization"
_API_KEY: Final = b"x-api-key"
_BEARER: Final = b"bearer "


class Gate:
    """The tenants of the file as it was read last, and their accounts.

    ``is_isolated``: no tenant profits from another's cached prefixes. ``n_changes`` counts how often it was
    read: what a key opened before is to be asked anew after that.
    """

    __slots__ = ("_by_digest", "accounts", "is_isolated", "n_changes")

    def __init__(self, tenants: Iterable[Tenant], now_s: float, *, is_isolated: bool) -> None:
        self.is_isolated = is_isolated
        self.n_changes = 0
        self.accounts: dict[str, Account] = {}
        self._by_digest: dict[bytes, tuple[bytes, Account]] = {}
        self.replace(tenants, now_s)

    def replace(self, tenants: Iterable[Tenant], now_s: float) -> None:
        """From now on these are the tenants; who was one before keeps what it has used."""
        accounts: dict[str, Account] = {}
        by_digest: dict[bytes, tuple[bytes, Account]] = {}
        for tenant in tenants:
            account = self.accounts.get(tenant.name)
            if account is None:
                account = Account(tenant, now_s)
            else:
                account.become(tenant, now_s)
            accounts[tenant.name] = account
            for digest in tenant.digests:
                by_digest[digest] = (digest, account)
        self.accounts, self._by_digest = accounts, by_digest
        self.n_changes += 1

    def account_of(self, headers: Iterable[tuple[bytes, bytes]]) -> Account:
        """Whose request it is, by its bearer token or ``x-api-key``; the first known key counts.

        Some clients send both, one of them meant for another server.

        Raises:
            ClientError: ``bad-api-key``, in the same words whether there is no key or a wrong one.
        """
        for name, value in headers:
            if name == _AUTHORIZATION:
                if value[:7].lower() != _BEARER:
                    continue
                key = value[7:].strip()
            elif name == _API_KEY:
                key = value
            else:
                continue
            if len(key) > KEY_LENGTH_MAX:
                continue
            digest = digest_of(key)
            found = self._by_digest.get(digest)
            if found is not None and hmac.compare_digest(found[0], digest):
                return found[1]
        raise ClientError(
            "bad-api-key",
            "The request needs a valid API key: send `Authorization: Bearer KEY` or `x-api-key: KEY`.",
        )
