"""What a supervisor tells of a replica is what a router takes: the two ends of a registration."""

from __future__ import annotations

import json

import pytest

from replica.engines.base import Launch
from replica.hardware.profiles import PROFILES
from replica.supervise.talk.identity import facts_of, prefill_terms
from router.control.api.registration import registration_of, spec_of
from router.state.members.roster import Source

PROMPTS = ((100_000, 0), (1_000, 100_000), (20_000, 30_000), (300, 50_000), (250_000, 0))


def launch(profile: str | None) -> Launch:
    return Launch(
        "sglang",
        ("x",),
        {},
        "127.0.0.1",
        30_000,
        "m",
        profile=profile,
        inflight_max=16,
        api_key="its-own-key",
    )


@pytest.mark.parametrize("profile", [None, "cpu-tp1-bf16", *PROFILES])
def test_a_router_takes_what_a_supervisor_sends(profile: str | None) -> None:
    body = {**facts_of(launch(profile)), "id": "r7", "url": "http://10.0.0.7:1", "lease_s": 15.0}
    spec = spec_of(registration_of(json.dumps(body).encode()), Source.REGISTERED)
    assert (spec.replica_id, spec.profile, spec.inflight_max) == ("r7", profile, 16)
    assert spec.api_key == "its-own-key"
    assert (spec.rate is not None) is (profile in PROFILES)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize(("new", "cached"), PROMPTS)
def test_the_four_terms_are_the_profiles_seconds(name: str, new: int, cached: int) -> None:
    terms = prefill_terms(PROFILES[name])
    told_s = (
        terms["fixed_s"]
        + terms["linear_s"] * new
        + terms["cross_s"] * new * cached
        + terms["half_s"] * new * new / 2
    )
    assert told_s == pytest.approx(PROFILES[name].prefill_s(new, cached), rel=0.1)


def test_a_key_is_not_shown() -> None:
    assert "its-own-key" not in repr(launch(None))
