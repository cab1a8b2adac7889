"""What a tenant may use: buckets that go into debt, and accounts that outlive a change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import ClientError, TenantLimit
from router.tenants.accounts import Account
from router.tenants.bucket import Bucket
from router.tenants.gate import Gate
from router.tenants.keys import digest_of
from router.tenants.model import Tenant, scope_of

KEY = b"hp-first-key-of-the-tenant"
OTHER = b"hp-second-key-of-the-tenant"


def tenant(name: str = "a", *keys: bytes, **limits: int) -> Tenant:
    return Tenant(name, tuple(digest_of(key) for key in keys), **limits)  # type: ignore[arg-type]


def refused_for(account: Account, now_s: float, body_bytes: int = 0) -> float:
    with pytest.raises(TenantLimit) as limit:
        account.admit(body_bytes, now_s)
    assert limit.value.retry_after_s is not None
    return limit.value.retry_after_s


def test_requests_a_minute_and_when_to_come_back() -> None:
    account = Account(tenant(requests_per_min_max=2), 0.0)
    account.admit(0, 0.0)
    account.admit(0, 0.0)
    assert refused_for(account, 0.0) == pytest.approx(30.0)
    assert refused_for(account, 20.0) == pytest.approx(10.0)
    account.admit(0, 30.0)
    assert refused_for(account, 30.0) == pytest.approx(30.0)


def test_a_prompt_larger_than_the_limit_is_late_and_not_impossible() -> None:
    account = Account(tenant(prompt_tokens_per_min_max=60), 0.0)
    account.admit(4 * 600, 0.0).measured(660)
    assert refused_for(account, 0.0) == pytest.approx(601.0)
    account.admit(0, 601.0)


def test_a_prompt_that_never_came_costs_nothing() -> None:
    account = Account(tenant(prompt_tokens_per_min_max=60), 0.0)
    first = account.admit(4 * 600, 0.0)
    refused_for(account, 0.0)
    first.release(1.0)
    first.release(1.0)
    assert account.inflight == 0
    account.admit(0, 1.0)


def test_requests_in_flight() -> None:
    account = Account(tenant(inflight_max=1), 0.0)
    first = account.admit(0, 0.0)
    assert 1.0 <= refused_for(account, 0.0) <= 60.0
    first.release(5.0)
    account.admit(0, 5.0)


def test_a_refused_request_uses_up_nothing() -> None:
    account = Account(tenant(inflight_max=1, requests_per_min_max=60), 0.0)
    account.admit(0, 0.0).release(0.0)
    second = account.admit(0, 0.0)
    for _ in range(100):
        refused_for(account, 0.0)
    second.release(0.0)
    account.admit(0, 0.0)


@settings(deadline=None)
@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.floats(0, 30), st.integers(0, 3000)), min_size=1, max_size=60),
)
def test_in_the_long_run_a_bucket_lets_through_what_it_says(
    per_min: int, steps: list[tuple[float, int]]
) -> None:
    bucket, now_s, taken, largest = Bucket(per_min, 0.0), 0.0, 0, 0
    for pause_s, amount in steps:
        now_s += pause_s
        wait_s = bucket.wait_s(now_s)
        assert wait_s >= 0
        if wait_s:
            assert bucket.wait_s(now_s + wait_s + 1e-6) == 0
            now_s += wait_s + 1e-6
        bucket.take(amount)
        taken, largest = taken + amount, max(largest, amount)
        assert taken <= per_min + per_min / 60 * now_s + largest + 1e-3


def test_the_first_known_key_of_a_request_counts() -> None:
    gate = Gate([tenant("a", KEY), tenant("b", OTHER)], 0.0, is_isolated=False)

    def name(*headers: tuple[bytes, bytes]) -> str:
        return gate.account_of(headers).name

    assert name((b"authorization", b"Bearer " + KEY)) == "a"
    assert name((b"authorization", b"bearer  " + KEY + b" ")) == "a"
    assert name((b"x-api-key", OTHER)) == "b"
    assert name((b"authorization", b"Bearer sk-other"), (b"x-api-key", OTHER)) == "b"
    said = set()
    for wrong in (
        [],
        [(b"authorization", b"Basic " + KEY)],
        [(b"authorization", KEY)],
        [(b"authorization", b"Bearer " + KEY[:-1])],
        [(b"authorization", b"Bearer")],
        [(b"x-api-key", b"")],
        [(b"x-api-key", KEY + b"\xff")],
        [(b"x-api-key", KEY * 100)],
        [(b"cookie", KEY)],
    ):
        with pytest.raises(ClientError) as refused:
            gate.account_of(wrong)
        said.add((refused.value.code, refused.value.message))
    assert len(said) == 1
    assert KEY.decode() not in str(said)


def test_a_changed_file_keeps_what_was_used() -> None:
    gate = Gate([tenant("a", KEY, requests_per_min_max=1)], 0.0, is_isolated=False)
    held = gate.accounts["a"].admit(0, 0.0)
    gate.replace([tenant("a", OTHER, requests_per_min_max=60), tenant("b", KEY)], 0.0)
    account = gate.account_of([(b"x-api-key", OTHER)])
    assert (account.name, account.inflight) == ("a", 1)
    assert refused_for(account, 0.0) == pytest.approx(1.0)
    assert gate.account_of([(b"x-api-key", KEY)]).name == "b"
    gate.replace([], 0.0)
    with pytest.raises(ClientError):
        gate.account_of([(b"x-api-key", OTHER)])
    held.release(1.0)
    assert account.inflight == 0


def test_tenants_are_told_apart_by_number_too() -> None:
    assert scope_of("") == 0
    numbers = {scope_of(f"t{n}") for n in range(1000)}
    assert len(numbers) == 1000
    assert all(0 < number < 1 << 64 for number in numbers)
