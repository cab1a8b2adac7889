"""Invented results of the simulator, in the shape of its JSON document."""

from __future__ import annotations

import math
from typing import Any

POLICIES = (
    "affinity",
    "dynamo_kv",
    "home",
    "least_inflight",
    "llm_d",
    "modal_v2",
    "power_of_two",
    "random",
    "rendezvous",
    "ring_bounded",
    "round_robin",
    "smg_cache_aware",
    "spill",
    "sticky",
)


def times(mean_s: float) -> dict[str, float]:
    return {"mean": mean_s, "p50": mean_s / 4, "p90": mean_s * 2.5, "p99": mean_s * 11}


def curves(
    mean_s: float, *, replicas: int = 4, buckets: int = 20, bucket_s: float = 90.0
) -> dict[str, Any]:
    steps = range(buckets)
    wave = [1 + math.sin(step) / 3 for step in steps]
    return {
        "ttft_cdf": [[mean_s * 4 * (n / 100) ** 3, n / 100] for n in range(1, 101)],
        "over_time": {
            "bucket_s": bucket_s,
            "at_s": [step * bucket_s for step in steps],
            "cached_ratio": [None, *(0.9 + part / 40 for part in wave[1:])],
            "cached_ratio_ceiling": [None, *(0.96 for _ in wave[1:])],
            "ttft_mean_s": [mean_s * part for part in wave],
            "ttft_p99_s": [mean_s * 9 * part for part in wave],
            "inflight_mean": [5 * part for part in wave],
            "inflight_min": [3 * part for part in wave],
            "inflight_max": [9 * part for part in wave],
            "requests": [100 + step for step in steps],
        },
        "inflight_spread": [0.05, 0.1, 0.15, 0.2, 0.2, 0.15, 0.1, 0.05],
        "replicas": {
            "bucket_s": bucket_s,
            "ids": [f"r{n:04}" for n in range(replicas)],
            "inflight": [
                [
                    None if n == 1 and step > buckets // 2 else (n * 7 + step * 5) % 11
                    for step in steps
                ]
                for n in range(replicas)
            ],
            "used_ratio": [[min(1.0, step / 10) for step in steps] for _ in range(replicas)],
            "hit_ratio": [[((n + step) % 20) / 20 for step in steps] for n in range(replicas)],
        },
    }


def figures(mean_s: float = 0.8, **changed: object) -> dict[str, Any]:
    """One policy's figures; the slower, the less throughput and cache."""
    worth = 1 / (1 + mean_s / 30)
    return {
        "policy": "named by its key",
        "scenario": "steady",
        "seed": 7,
        "requests": 12_345,
        "ttft_s": times(mean_s),
        "ttft_warm_s": times(mean_s / 2),
        "ttft_cold_s": times(mean_s * 5),
        "itl_s": times(0.004),
        "tok_per_s_per_user": 80 * worth,
        "tokens_per_min_per_gpu": 1_500_000 * worth,
        "cached_ratio": 0.95 * worth,
        "cached_ratio_ceiling": 0.964,
        "predicted_cached_ratio": 0.9,
        "host_ratio": 0.4,
        "inflight_mean": 4.2,
        "inflight_var_to_mean": 1.7,
        "moves": 21,
        "errors": 0,
        "unfinished": 3,
        "retries": 1,
        "repeats": 2,
        "reasons": {"home": 11_000, "new": 1_000, "move": 345},
        "curves": curves(mean_s),
        "events": [],
        "window_s": [600.0, 1800.0],
        "gpus_mean": 64.0,
        "requests_total": 18_000,
        "rule": None,
        "wall_s": 6.4,
        "requests_per_wall_s": 2_812.5,
        "load_s": 1.5,
        **changed,
    }


def scenario(**changed: object) -> dict[str, Any]:
    return {
        "name": "steady",
        "about": "Agents at a load that the fleet carries.",
        "seed": 7,
        "duration_s": 1_800.0,
        "warmup_s": 600.0,
        "policies": ["home", "sticky"],
        "workload": {
            "pace": "closed",
            "sessions_per_replica": 24.0,
            "gap_s_max": 300.0,
            "once": False,
        },
        "fleet": [{"profile": "b200-tp4-fp8", "replicas": 4, "host_tokens": 7_000_000}],
        "engine": {"order": "fcfs"},
        "routers": {"count": 1, "probe_s": 1.0},
        "slo": {"ttft_p99_s": 5.0, "errors_ratio": 0.0},
        **changed,
    }


def compared(means_s: dict[str, float] | None = None, **changed: object) -> dict[str, Any]:
    means_s = means_s or {"home": 0.8, "sticky": 1.9, "round_robin": 40.0}
    return {
        "homeport": "0.1.0",
        "scenario": scenario(),
        "seed": 7,
        "command": "compare",
        "policies": {name: figures(mean_s) for name, mean_s in means_s.items()},
        "reference": figures(0.45, rule="shortest-backlog"),
        **changed,
    }


def swept() -> dict[str, Any]:
    """Three loads by two orders of service."""
    points = [
        {
            "at": {"workload.sessions_per_replica": load, "engine.order": order},
            "policies": {
                name: figures(mean_s * load / 24, curves=None)
                for name, mean_s in (("home", 0.8), ("sticky", 1.2))
            },
            "reference": figures(0.4 * load / 24, curves=None),
        }
        for order in ("fcfs", "lof")
        for load in (48, 24, 32)
    ]
    return compared(command="sweep", policies={}, reference=None, points=points)


def sized() -> dict[str, Any]:
    """``home`` needs 6 replicas, ``sticky`` more than 8."""
    points = [
        {
            "at": {"replicas": replicas},
            "policies": {name: figures(8 / replicas, curves=None)},
            "reference": None,
            "failures": [] if name == "home" and replicas >= 6 else ["TTFT p99 6.10 s is over 5 s"],
        }
        for name in ("home", "sticky")
        for replicas in (4, 8, 6, 5)
    ]
    return compared(command="size", policies={}, reference=None, points=points)


LADDER = {"bf16": (5, 1.0), "fp8-kv": (10, 2.5), "host-tier": (22, 5.0)}
"""At how many users each variant peaks, and how many times the first one's throughput."""
USERS = (2, 5, 10, 16, 22)


def laddered(*, has_reference: bool = False, **changed: object) -> dict[str, Any]:
    """One policy over variants and users: beyond the peak half of the throughput and the cache is lost."""
    points = [
        {
            "at": {"variant": variant, "sessions": users},
            "policies": {
                "home": figures(
                    users / 10,
                    curves=None,
                    tok_per_s_per_user=100.0 * worth - users,
                    tokens_per_min_per_gpu=worth
                    * 100_000
                    * (users / peak if users <= peak else 0.5),
                    cached_ratio=0.95 if users <= peak else 0.25,
                )
            },
            "reference": figures(users / 20, curves=None) if has_reference else None,
        }
        for variant, (peak, worth) in LADDER.items()
        for users in USERS
    ]
    return compared(command="sweep", policies={}, reference=None, points=points, **changed)


def contested() -> dict[str, Any]:
    """Fourteen policies over five loads and two orders, each slower than the one before it."""
    points = [
        {
            "at": {"workload.sessions_per_replica": load, "engine.order": order},
            "policies": {
                name: figures((1.0 + rank) * load / 16, curves=None)
                for rank, name in enumerate(reversed(POLICIES))
            },
            "reference": figures(0.3 * load / 16, curves=None),
        }
        for order in ("lof", "fcfs")
        for load in (16, 24, 32, 40, 48)
    ]
    return compared(command="sweep", policies={}, reference=None, points=points)
