"""Settings of the sources that name replicas: a file, DNS, Kubernetes; ``docs/fleet.md``."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from router.settings.kinds import Path, Seconds, as_list

_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?")
_PORT_NAME: Final = r"[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?"
_KUBERNETES: Final = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"


def _dns_target(text: str) -> str:
    form = f"{text!r} is neither dns://NAME:PORT nor srv://NAME"
    try:
        parts = urlsplit(text)
        name, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError(form) from None
    if text != f"{parts.scheme}://{parts.netloc}" or not _NAME.fullmatch(name):
        raise ValueError(form)
    if parts.username is not None or (parts.scheme, bool(port)) not in (
        ("dns", True),
        ("srv", False),
    ):
        raise ValueError(form)
    return text


def _nameserver(text: str | None) -> str | None:
    if text is not None:
        host, _, port = text.rpartition(":")
        try:
            ipaddress.ip_address(host.strip("[]"))
            is_port = port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16
        except ValueError:
            is_port = False
        if not is_port:
            raise ValueError(f"{text!r} is not of the form ADDRESS:PORT")
    return text


def _port(value: object) -> object:
    """A port's number may be written as one."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str):
        is_number = value.isascii() and value.isdecimal()
        if is_number and not 0 < int(value[:9]) < 1 << 16:
            raise ValueError(f"{value!r} is not a port: a number is from 1 to 65535")
        if not is_number and not re.fullmatch(_PORT_NAME, value):
            raise ValueError(f"{value!r} is neither a port's number nor its name in the Service")
    return value


Targets = Annotated[
    tuple[Annotated[str, AfterValidator(_dns_target)], ...],
    BeforeValidator(as_list),
    Field(max_length=32),
]
Services = Annotated[
    tuple[Annotated[str, Field(pattern=_KUBERNETES)], ...],
    BeforeValidator(as_list),
    Field(max_length=32),
]


class DiscoverySettings(BaseModel):
    """Who names replicas besides the settings and the control API."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: Path = Field(default=None, description="a TOML or JSON file of replicas, read on change")
    dns: Targets = Field(
        default=(), description="names of replicas: dns://NAME:PORT (A, AAAA) or srv://NAME"
    )
    nameserver: Annotated[str | None, AfterValidator(_nameserver)] = Field(
        default=None, description="the DNS server, ADDRESS:PORT; the system's if not set"
    )
    kubernetes_services: Services = Field(
        default=(), description="Services whose EndpointSlices name replicas"
    )
    kubernetes_namespace: str | None = Field(
        default=None,
        pattern=_KUBERNETES,
        description="their namespace; the router's own if not set",
    )
    kubernetes_port: Annotated[str | None, BeforeValidator(_port)] = Field(
        default=None,
        description="the replicas' port by name or number; may be left out where there is one",
    )
    kubeconfig: Path = Field(
        default=None, description="how to reach the cluster; the pod's own account if not set"
    )
    scheme: Literal["http", "https"] = Field(
        default="http", description="how replicas from DNS and Kubernetes are spoken to"
    )
    # What a drain at shutdown may take, too: a long answer of an agent ends within it.
    leave_drain_s: Seconds = Field(
        default=300.0, description="for running requests of a replica that nobody names any more"
    )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.nameserver is not None and not self.dns:
            raise ValueError("nameserver belongs to dns, which names nothing")
        of_kubernetes = (self.kubernetes_namespace, self.kubernetes_port, self.kubeconfig)
        if not self.kubernetes_services and any(value is not None for value in of_kubernetes):
            raise ValueError(
                "kubernetes_namespace, kubernetes_port and kubeconfig belong to"
                " kubernetes_services, which names nothing"
            )
        return self
