"""Which replicas EndpointSlices name: conditions, families, ports, ids, and slices that overlap."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from router.control.discovery.slices import EndpointSlice, offers_of
from tests.doubles.cluster import endpoint, slice_of


def named(*slices: dict[str, Any], port: str | None = None) -> dict[str, tuple[str, bool]]:
    read = [msgspec.convert(each, EndpointSlice) for each in slices]
    offers, fault = offers_of(read, port=port, scheme="http")
    assert not fault
    return {o.spec.replica_id: (f"{o.spec.host}:{o.spec.port}", o.drains) for o in offers}


@pytest.mark.parametrize(
    ("conditions", "drains"),
    [
        ({"ready": True, "serving": True, "terminating": False}, False),
        ({}, False),
        ({"ready": None, "serving": None, "terminating": None}, False),
        ({"ready": False, "serving": True, "terminating": True}, True),
        ({"ready": False, "serving": True, "terminating": False}, False),
        ({"ready": False, "serving": False, "terminating": True}, None),
        ({"ready": False, "serving": False, "terminating": False}, None),
        ({"ready": False}, None),
        (None, False),
    ],
)
def test_who_serves_is_named_and_drains_where_it_terminates(
    conditions: dict[str, bool | None] | None,
    drains: bool | None,  # noqa: FBT001  (a cell of the table)
) -> None:
    each = {"addresses": ["10.0.0.1"], "conditions": conditions}
    found = named(slice_of("s", each))
    assert found == ({} if drains is None else {"10.0.0.1:30000": ("10.0.0.1:30000", drains)})


def test_a_replica_is_its_pod_else_its_address() -> None:
    node = endpoint("10.0.0.3") | {"targetRef": {"kind": "Node", "name": "n"}}
    found = named(slice_of("s", endpoint("10.0.0.1", "p-1"), endpoint("10.0.0.2"), node))
    assert set(found) == {"p-1", "10.0.0.2:30000", "10.0.0.3:30000"}


def test_of_two_families_the_pods_ipv4_address_counts_in_any_order() -> None:
    four = slice_of("z", endpoint("10.0.0.1", "p-1"))
    six = slice_of("a", endpoint("fd00::1", "p-1"), endpoint("fd00::2", "p-2"), family="IPv6")
    expected = {"p-1": ("10.0.0.1:30000", False), "p-2": ("fd00::2:30000", False)}
    assert named(four, six) == named(six, four) == expected
    assert named(slice_of("f", endpoint("example.com"), family="FQDN")) == {}


def test_an_endpoint_in_two_slices_is_one_and_drains_if_either_says_so() -> None:
    ends = endpoint("10.0.0.1", "p-1", ready=False, terminating=True)
    old, new = slice_of("a", endpoint("10.0.0.1", "p-1")), slice_of("b", ends)
    assert named(old, new) == named(new, old) == {"p-1": ("10.0.0.1:30000", True)}


def test_the_port_is_named_numbered_or_the_only_one() -> None:
    both = slice_of("s", endpoint("10.0.0.1", "p"), ports=(("http", 30_000), ("metrics", 9_000)))
    assert named(both, port="http") == {"p": ("10.0.0.1:30000", False)}
    assert named(both, port="8000") == {"p": ("10.0.0.1:8000", False)}
    read = [msgspec.convert(both, EndpointSlice)]
    for port, said in ((None, "discovery.kubernetes_port"), ("grpc", "grpc")):
        offers, fault = offers_of(read, port=port, scheme="http")
        assert offers == []
        assert said in fault


def test_what_is_missing_or_odd_is_left_out() -> None:
    odd = endpoint("not-an-address")
    none = {"addresses": []}
    assert named(slice_of("s", odd, none)) == {}
    assert named({"metadata": {"name": "s"}, "addressType": "IPv4"}) == {}
    assert named(slice_of("s") | {"endpoints": None, "ports": None}) == {}
