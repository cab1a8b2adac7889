"""Which replica keeps which response."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.dialect.base import PromptFacts, SessionSource
from router.edge.replicas.holders import Holders
from router.errors import ClientError


def present(_: str) -> object:
    return object()


def facts(key: str = "chain:1", source: SessionSource = SessionSource.CHAIN) -> PromptFacts:
    return PromptFacts(dialect="openai-responses", session_key=key, session_source=source)


def test_a_request_is_bound_to_the_holder_and_its_session() -> None:
    holders = Holders()
    holders.learn("resp_1", "r1", "session")
    by_id, named, plain = facts("resp_1", SessionSource.BODY), facts("other"), facts("")
    for request in (by_id, named, plain):
        holders.bind(request, "resp_1", present)
        assert request.bound_to == "r1"
    assert by_id.session_key == plain.session_key == "session"
    assert (by_id.session_source, plain.session_source) == (SessionSource.BODY,) * 2
    assert (named.session_key, named.session_source) == ("other", SessionSource.CHAIN)


def test_a_request_about_nothing_stays_free() -> None:
    request = facts()
    Holders().bind(request, "", present)
    assert request.bound_to == ""


@pytest.mark.parametrize("response_id", ["resp_2", "x" * 500])
def test_an_unknown_response(response_id: str) -> None:
    holders = Holders()
    holders.learn("resp_1", "r1", "session")
    with pytest.raises(ClientError) as caught:
        holders.bind(facts(), response_id, present)
    assert (caught.value.code, caught.value.http_status) == ("unknown-response", 404)
    assert response_id[:128] in caught.value.message
    assert len(caught.value.message) < 200


def test_a_response_goes_with_its_replica() -> None:
    holders = Holders()
    holders.learn("resp_1", "r1", "session")
    with pytest.raises(ClientError):
        holders.bind(facts(), "resp_1", lambda _: None)
    assert len(holders) == 0


def test_a_response_is_its_owners_alone() -> None:
    holders = Holders()
    holders.learn("resp_1", "r1", "session", owner="ann")
    for owner in ("", "bob"):
        with pytest.raises(ClientError):
            holders.bind(facts(), "resp_1", present, owner=owner)
    request = facts()
    holders.bind(request, "resp_1", present, owner="ann")
    assert request.bound_to == "r1"


def test_what_is_no_id_is_not_learned() -> None:
    holders = Holders()
    holders.learn("", "r1", "session")
    holders.learn("x" * 129, "r1", "session")
    assert len(holders) == 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60), st.integers(1, 5))
def test_the_last_ones_used_are_remembered(steps: list[tuple[bool, int]], holders_max: int) -> None:
    holders = Holders(holders_max)
    order: list[int] = []
    for is_learned, number in steps:
        name = f"resp_{number}"
        if is_learned:
            holders.learn(name, f"r{number}", "s")
        else:
            try:
                holders.bind(facts(), name, present)
            except ClientError:
                assert number not in order
                continue
        order = [*[n for n in order if n != number], number][-holders_max:]
        assert len(holders) == len(order) <= holders_max
    for number in order:
        request = facts()
        holders.bind(request, f"resp_{number}", present)
        assert request.bound_to == f"r{number}"
