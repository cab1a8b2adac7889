"""What each figure means, in plain words."""

from __future__ import annotations

from typing import Final

from sim.page.drawing.markup import Markup, element

TERMS: Final = (
    (
        "measured",
        (
            "Requests that clients send first after the warm-up and before the run's end. All "
            "figures are of these."
        ),
    ),
    (
        "TTFT",
        (
            "Time to first token: from the client's first try to the first token with the client, "
            "waits and further tries included."
        ),
    ),
    ("p50, p90, p99", "The time that 50, 90, 99 of 100 requests stay within (nearest rank)."),
    (
        "warm, cold",
        (
            "Warm: a cache that never forgets would have held at least half of the prompt. Cold: "
            "the rest. They are alike for all policies, so a warm request that waits like a cold "
            "one was sent where its cache was not, or queued."
        ),
    ),
    ("ITL", "Inter-token latency: a request's mean time between two tokens of its answer."),
    (
        "tok/s/user",
        ("Tokens a second that one user sees while an answer streams: the interactivity."),
    ),
    (
        "tok/min/GPU",
        ("Prompt and output tokens of answered requests, a minute and GPU: the throughput."),
    ),
    (
        "hit ratio",
        (
            "Share of prompt tokens that engines took from their caches, in the GPU or in host "
            "memory."
        ),
    ),
    ("ceiling", "The hit ratio of one cache that never forgets. No policy can exceed it."),
    (
        "predicted",
        (
            "The hit ratio that the router expected when it chose. Near the real one, its beliefs "
            "hold."
        ),
    ),
    ("from host", "Share of prompt tokens that came from host memory rather than the GPU's."),
    (
        "in flight",
        ("Requests sent to a replica and not finished, averaged over replicas and time."),
    ),
    (
        "var/mean",
        (
            "Variance of requests in flight across the replicas, over their mean. Poisson is 1; "
            "less is more even."
        ),
    ),
    ("moves", "Sessions given another home though the old one could be used."),
    ("retries", "How often a router sent a request to another replica."),
    ("repeats", "How often a client tried again."),
    ("errors", "Measured requests that were given up."),
    ("unfinished", "Measured requests neither answered nor given up when the run stopped."),
    (
        "GPUs",
        (
            "GPUs in service, averaged over the run; a replica counts from its start until it "
            "leaves."
        ),
    ),
    (
        "reference",
        (
            "A clairvoyant router: every replica holds every cache and each request joins the "
            "best queue. Nobody can build it; it shows what is left to win."
        ),
    ),
    (
        "collapse",
        (
            "Called so here: a mean TTFT over 4 times the best policy's, with under 85 % of the "
            "most throughput; of one policy along a sweep, under 85 % of its peak, beyond it."
        ),
    ),
    (
        "KV pool in use",
        ("Share of a replica's GPU cache that holds something, running or cached."),
    ),
)


def glossary() -> Markup:
    """All terms with their meanings."""
    told = [element("div", element("dt", term), element("dd", meaning)) for term, meaning in TERMS]
    return element("dl", *told, class_="glossary")
