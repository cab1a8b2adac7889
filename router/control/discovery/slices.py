"""EndpointSlices as the Kubernetes API shows them, and the replicas that they name.

Pure: no I/O. The fields are those of ``discovery.k8s.io/v1``; others are not looked at.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

import msgspec

from router.state.fleet.replica import ReplicaSpec
from router.state.members.roster import Offer, Source

if TYPE_CHECKING:
    from collections.abc import Iterable

_FAMILIES: Final = ("IPv4", "IPv6")


class Conditions(msgspec.Struct):
    """How an endpoint is; None is not known, which is to be read as yes for ``serving``."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Target(msgspec.Struct):
    """What an endpoint is an address of."""

    kind: str = ""
    name: str = ""


class Endpoint(msgspec.Struct):
    """One endpoint; all its ``addresses`` are the same one's."""

    addresses: list[str]
    conditions: Conditions | None = None
    targetRef: Target | None = None  # noqa: N815  (the API's name)


class Port(msgspec.Struct):
    """A port of all endpoints of a slice."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class Meta(msgspec.Struct):
    """An object's metadata, or a list's (``continue`` is where it goes on)."""

    name: str = ""
    resourceVersion: str = ""  # noqa: N815  (the API's name)
    next: str = msgspec.field(default="", name="continue")


class EndpointSlice(msgspec.Struct):
    """Some of a Service's endpoints."""

    metadata: Meta
    addressType: str = ""  # noqa: N815  (the API's name)
    endpoints: list[Endpoint] | None = None
    ports: list[Port] | None = None


class SliceList(msgspec.Struct):
    """The answer to a list."""

    metadata: Meta
    items: list[EndpointSlice] | None = None


class Event(msgspec.Struct):
    """A line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and its object."""

    type: str
    object: msgspec.Raw


class Status(msgspec.Struct):
    """The object of an ERROR, and the body of an answer that is one."""

    code: int = 0
    message: str = ""
    reason: str = ""


def offers_of(
    slices: Iterable[EndpointSlice], *, port: str | None, scheme: str
) -> tuple[list[Offer], str]:
    """The replicas in these slices, and what is wrong with some of them ("" if nothing is).

    ``port`` is the name or number of the replicas' port, None where each slice has one. An endpoint
    that does not serve is not named; one that serves and terminates drains. The same endpoint in
    several slices is one replica: its IPv4 address counts, and it drains if any of them says so.
    """
    found: dict[str, Offer] = {}
    fault = ""
    is_known = {family: rank for rank, family in enumerate(_FAMILIES)}
    ordered = sorted(
        (each for each in slices if each.addressType in is_known and each.endpoints),
        key=lambda each: (is_known[each.addressType], each.metadata.name),
    )
    for each in ordered:
        number = _number(each.ports or [], port)
        if number is None:
            wanted = "which of its ports (discovery.kubernetes_port)" if port is None else port
            fault = f"slice {each.metadata.name} does not say {wanted}"
            continue
        for endpoint in each.endpoints or []:
            offer = _offer(endpoint, number, scheme)
            if offer is None:
                continue
            key = offer.spec.replica_id
            had = found.get(key)
            if had is None:
                found[key] = offer
            elif offer.drains and not had.drains:
                found[key] = Offer(had.spec, drains=True)
    return list(found.values()), fault


def _number(ports: list[Port], wanted: str | None) -> int | None:
    """The number of the wanted port; None if the slice does not say it."""
    if wanted is not None and wanted.isdecimal():
        return int(wanted)
    tcp = [port for port in ports if port.port and port.protocol in (None, "TCP")]
    if wanted is not None:
        tcp = [port for port in tcp if port.name == wanted]
    return tcp[0].port if len(tcp) == 1 else None


def _offer(endpoint: Endpoint, port: int, scheme: str) -> Offer | None:
    state = endpoint.conditions or Conditions()
    if state.serving is False or not endpoint.addresses:
        return None
    if state.serving is None and state.ready is False and not state.terminating:
        return None  # an API server before 1.22 tells readiness only
    try:
        host = ipaddress.ip_address(endpoint.addresses[0]).compressed
    except ValueError:
        return None
    target = endpoint.targetRef
    is_pod = target is not None and target.kind == "Pod" and bool(target.name)
    name = target.name if target is not None and is_pod else f"{host}:{port}"
    spec = ReplicaSpec(name, host, port, source=Source.KUBERNETES.value, is_tls=scheme == "https")
    return Offer(spec, drains=bool(state.terminating))
