"""The tenants file: what it says, and one line for every mistake in it."""

from __future__ import annotations

import pytest

from router.errors import ConfigError
from router.tenants.keys import hash_of, key_fault, new_key, parsed_hash
from router.tenants.model import Priority
from router.tenants.reading import read_tenants

KEY = "hp-" + "k" * 43
HASH = hash_of(KEY)
WHOLE = f"""
# people
[tenants.team-a]
keys = ["{HASH}"]
models = ["kimi-k2.6", "kimi-k2.6:*"]
inflight_max = 8
requests_per_min_max = 600
prompt_tokens_per_min_max = 30_000_000
priority = "high"
other_paths = true

[tenants."b.c"]
"""


def read(text: str) -> object:
    return read_tenants(text.encode(), "t.toml")


def test_everything_that_can_be_said() -> None:
    team, bare = read_tenants(WHOLE.encode(), "t.toml")
    assert (team.name, team.digests) == ("team-a", (parsed_hash(HASH),))
    assert (team.inflight_max, team.requests_per_min_max) == (8, 600)
    assert team.prompt_tokens_per_min_max == 30_000_000
    assert (team.priority, team.other_paths) == (Priority.HIGH, True)
    assert team.allows_model("kimi-k2.6")
    assert team.allows_model("kimi-k2.6:lora")
    assert not team.allows_model("kimi-k2")
    assert not team.allows_model("")
    assert (bare.name, bare.digests, bare.models, bare.inflight_max) == ("b.c", (), None, None)
    assert bare.allows_model("anything")
    assert bare.priority is Priority.NORMAL
    assert not bare.other_paths
    assert read_tenants(b"", "t.toml") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[tenants.a]\n\ninflight_max = 0\n",
            r"t.toml, line 3: tenants.a.inflight_max = 0: .*>= 1",
        ),
        ("[tenants.a]\ninflight_max = true\n", r"line 2: tenants.a.inflight_max = True: .*int"),
        ("[tenants.b]\n[tenants.a]\ninflight_max='x'", r"line 3: tenants.a.inflight_max = 'x'"),
        ("[tenants.a]\nrequests_per_min_max = 1.5", r"line 2: .* = 1.5"),
        ("[tenants.a]\npriority = 'urgent'", r"line 2: tenants.a.priority = 'urgent': .*urgent"),
        ("[tenants.a]\nkey = 'secret-value'", r"line 2: tenants.a.key: is not known; use keys, "),
        ("[tenants.'a b']", r"line 1: tenants.'a b': a name has 1 to 64 letters"),
        ("[tenants]\na = 1", r"line 2: tenants.a: must be a table"),
        ("tenants = 3", r"line 1: tenants: must be tables"),
        ("[[tenants]]\nname = 'a'", r"tenants: must be tables"),
        ("[tenant.a]", r"tenant: is not known here"),
        ("[tenants.a]\nmodels = 'kimi'", r"line 2: tenants.a.models = 'kimi'"),
        ("[tenants.a", r"t.toml: not TOML: .*end of document"),
        ("[tenants.a]\n[tenants.a]", r"not TOML: .*line 2"),
        (
            f"[tenants.a]\nkeys = ['{HASH}']\n[tenants.b]\nkeys = ['{HASH}']",
            r"line 4: tenants.b.keys: has a key that tenant a has too",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        read(text)
    assert "\n" not in str(refused.value)
    assert "secret-value" not in str(refused.value)


@pytest.mark.parametrize(
    "keys", [f'["{KEY}"]', f'"{KEY}"', f'[["{KEY}"]]', f'["sha256:{KEY}"]', f'[1, "{KEY}"]']
)
def test_a_key_that_was_put_in_place_of_its_hash_is_not_shown(keys: str) -> None:
    with pytest.raises(ConfigError, match=r"line 2: tenants.a.keys.* \(not shown\)") as refused:
        read(f"[tenants.a]\nkeys = {keys}\n")
    assert KEY not in str(refused.value)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"t\.toml: not TOML"):
        read_tenants(b"\xff\xfe", "t.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tenants.a]\ninflight_max = " + "9" * 5_000, "not TOML: .*5000 digits"),
        ("tenants = " + "[" * 5_000, "is nested too deeply"),
    ],
)
def test_what_python_cannot_hold_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"tenants file t.toml: {said}"):
        read(text)


def test_keys_are_long_random_and_marked() -> None:
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(key.startswith("hp-") and len(key) == 46 and not key_fault(key) for key in made)
    assert "20 to 512" in key_fault("short")
    assert "visible ASCII" in key_fault("x" * 20 + " y")
