"""Isolated tenants: another chain, and a salt in the body that no client can choose."""

from __future__ import annotations

import json
from array import array

import pytest

from hashing.chain import scoped
from router.dialect.base import PromptFacts
from router.dialect.clients.salt import claimed, may_be_isolated, salt_of, salted
from router.state.sessions.tails import Tails
from router.tenants.model import scope_of

SALT = salt_of(7)


def test_a_scope_moves_a_whole_chain_and_keeps_what_is_equal_in_it() -> None:
    chain = array("Q", [1, 2**64 - 1, 3])
    mine, same, other = scoped(chain, 7), scoped(chain[:2], 7), scoped(chain, 8)
    assert mine[:2] == same
    assert not set(mine) & set(other)
    assert not set(mine) & set(chain)
    assert scoped(mine, 7) == chain
    assert scoped(chain, 0) is chain
    assert len(scoped(array("Q"), 7)) == 0


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b" { } ",
        b'{"model":"m"}\n',
        b'{"messages":[{"content":"}"}]} ',
        b'{"cache\\u005fsalt":"mine","model":"m"}',
    ],
)
def test_the_salt_is_the_last_member(body: bytes) -> None:
    before, after = json.loads(body), json.loads(salted(body, SALT))
    before.pop("cache_salt", None)
    assert after.pop("cache_salt") == SALT
    assert after == before


def test_a_clients_own_salt_is_mixed_in() -> None:
    found = {
        json.loads(salted(body, salt_of(scope)))["cache_salt"]
        for scope in (7, 8)
        for body in (b'{"cache_salt":"x"}', b'{"cache_salt":"y","model":"m"}', b'{"model":"m"}')
    }
    assert len(found) == 6
    text = salted(b'{"cache_salt":"x","model":"m","cache_salt":"z"}', SALT)
    assert text.count(b"cache_salt") == 1
    said = b'{"messages":[{"content":"\\"cache_salt\\" is a word"}]}'
    assert json.loads(salted(said, SALT))["cache_salt"] == SALT


def test_what_a_tenant_claims() -> None:
    chain = array("Q", [1, 2])
    facts = PromptFacts(dialect="d", session_key="s", parent_key="p", chain=chain)
    claimed(facts, "a", 7, is_isolated=False)
    assert (facts.session_key, facts.parent_key) == ("a/s", "a/p")
    assert (facts.tenant, facts.scope, facts.chain) == ("a", 7, chain)
    claimed(facts, "a", 7, is_isolated=True)
    assert facts.chain == scoped(chain, 7)


def test_a_prompt_without_a_key_continues_no_session_of_another_tenant() -> None:
    tails, chain = Tails(), array("Q", [5, 6, 7])
    one, two = scope_of("one"), scope_of("two")
    tails.move("a/one", 0, 6, one)
    assert tails.find(chain, 1, one) == "a/one"
    assert tails.find(chain, 1, two) is None
    assert tails.find(chain, 1) is None
    tails.move("b/two", 0, 6, two)
    tails.move("a/one", 6, 7, one)
    assert tails.find(chain, 1, one) == "a/one"
    assert tails.find(chain[:2], 1, one) is None
    assert tails.find(chain, 1, two) == "b/two"


def test_only_what_the_engine_can_keep_apart_is_served_to_isolated_tenants() -> None:
    assert may_be_isolated("/v1/chat/completions")
    assert may_be_isolated("/v1/messages/count_tokens")
    assert not may_be_isolated("/v1/messages")
    assert not may_be_isolated("/v1/embeddings")
