"""Which GPUs and ports each replica of a machine gets."""

from __future__ import annotations

import pytest

from replica.engines.base import Launch
from replica.errors import ReplicaError
from replica.machine.gpus import gpu_indexes
from replica.supervise.ports import gpu_groups, launches


def engine(port: int, *, gpus: tuple[int, ...], count: int) -> Launch:
    if port + 1000 > 65_535:
        raise ReplicaError("port-range", f"port {port}")
    ports = (*range(port, port + count), port + 1000)
    return Launch("sglang", ("x",), {}, "127.0.0.1", port, "m", ports=ports, gpus=gpus, count=count)


@pytest.mark.parametrize(
    ("text", "indexes"),
    [("0", (0,)), ("0-3", (0, 1, 2, 3)), ("4-5, 0,2", (4, 5, 0, 2))],
)
def test_gpus_are_lists_and_ranges(text: str, indexes: tuple[int, ...]) -> None:
    assert gpu_indexes(text) == indexes


@pytest.mark.parametrize("text", ["", "a", "3-1", "0-", "-1", "0,0", "0-1,1-2", "0-99999999"])
def test_other_words_are_refused_with_the_value(text: str) -> None:
    with pytest.raises(ReplicaError, match="--gpus") as caught:
        gpu_indexes(text)
    assert caught.value.code == "bad-value"


def test_eight_gpus_are_two_replicas_of_four() -> None:
    groups = gpu_groups(tuple(range(8)), 4, None)
    assert groups == ((0, 1, 2, 3), (4, 5, 6, 7))
    made = launches(groups, 30_000, engine)
    assert [(each.port, each.gpus) for each in made] == [
        (30_000, (0, 1, 2, 3)),
        (30_001, (4, 5, 6, 7)),
    ]


def test_gpus_that_do_not_come_out_even_are_refused() -> None:
    with pytest.raises(ReplicaError, match="6 GPUs do not divide"):
        gpu_groups(tuple(range(6)), 4, None)
    with pytest.raises(ReplicaError, match="2 replicas of 4, and --replicas says 3"):
        gpu_groups(tuple(range(8)), 4, 3)


def test_without_gpus_there_are_as_many_as_are_asked_for() -> None:
    assert gpu_groups((), 1, None) == ((),)
    assert gpu_groups((), 1, 3) == ((), (), ())


def test_free_ports_are_free_and_nobodys_twice() -> None:
    made = launches(((),) * 20, 0, engine)
    ports = [port for each in made for port in each.ports]
    assert len(set(ports)) == 40


def test_replicas_that_share_a_process_have_neighbouring_ports() -> None:
    made = launches(((),) * 5, 30_000, engine, a_process=3)
    assert [(each.port, each.count) for each in made] == [(30_000, 3), (30_003, 2)]


def test_ports_that_would_meet_are_refused() -> None:
    with pytest.raises(ReplicaError, match="port 31000") as caught:
        launches(((),) * 1_001, 30_000, engine)
    assert caught.value.code == "port-taken"
