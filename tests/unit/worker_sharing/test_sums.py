"""Several workers' metrics as one router's."""

from __future__ import annotations

import random

from prometheus_client.parser import text_string_to_metric_families

from router.core import CoreParameters, RouterCore
from router.obs.metrics import Counts, RouterMetrics
from router.policy import registry
from router.state.fleet.replica import ReplicaSpec
from router.workers.sums import counted, summed


def text_of(seed: int, *replicas: str) -> bytes:
    """What one worker would say, with numbers of its own."""
    dice = random.Random(seed)
    core = RouterCore(registry.make("home"), random.Random(0), CoreParameters())
    for name in replicas:
        core.members.join(ReplicaSpec(name, "127.0.0.1", 30_000), 0.0)
        core.fleet.get(name).counters.requests = dice.randrange(100)  # type: ignore[union-attr]
    counts = Counts()
    for outcome in ("done", f"only-{seed}"):
        counts.requests["openai-chat", outcome] += dice.randrange(1, 100)
    for _ in range(dice.randrange(1, 50)):
        counts.ttft.add(dice.expovariate(1.0))
    counts.pressure["held"] = seed
    return RouterMetrics(core, counts, now_s=lambda: 1.0).text()


def samples(text: bytes, kinds: tuple[str, ...]) -> dict[tuple[str, ...], float]:
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        if family.type in kinds:
            for sample in family.samples:
                labels = sorted(f"{name}={value}" for name, value in sample.labels.items())
                found[sample.name, *labels] = sample.value
    return found


def test_counters_and_histograms_add_up_sample_by_sample() -> None:
    texts = [text_of(1, "r1", "r2"), text_of(2, "r2", "r3"), text_of(3)]
    kinds = ("counter", "histogram")
    parts = [samples(text, kinds) for text in texts]
    whole = samples(summed(texts[0], texts[1:]), kinds)
    assert set(whole) == set().union(*parts)
    for name, value in whole.items():
        assert abs(value - sum(part.get(name, 0.0) for part in parts)) < 1e-6, name


def test_a_gauge_is_the_answering_workers_or_a_sum() -> None:
    own, other = text_of(1, "r1"), text_of(2, "r1", "r2")
    gauges = samples(summed(own, [other]), ("gauge",))
    held = ("homeport_held_requests",)
    assert gauges.pop(held) == 3.0
    expected = samples(own, ("gauge",))
    del expected[held]
    assert gauges == expected


def test_who_is_gone_leaves_counters_and_no_gauge() -> None:
    left = counted([b"", counted([text_of(1, "r1")]), text_of(2, "r1")])
    assert samples(left, ("gauge",)) == {}
    whole = samples(summed(text_of(3, "r1"), [left]), ("counter", "histogram"))
    alive = samples(
        summed(text_of(3, "r1"), [text_of(1, "r1"), text_of(2, "r1")]), ("counter", "histogram")
    )
    assert whole == alive


def test_nothing_is_a_text_too() -> None:
    assert counted([]) == b""
    assert counted([b"", b""]) == b""
    text = text_of(1, "r1")
    kinds = ("counter", "gauge", "histogram")
    assert samples(summed(text, [b""]), kinds) == samples(text, kinds)
