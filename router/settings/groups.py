"""Groups of settings: bounds, retries, waiting at the door, what replicas are told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from router.settings.kinds import Network, Number, Seconds, as_list


class LimitSettings(BaseModel):
    """Bounds of the data plane; each is one field of the edge's limits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    body_mib_max: Annotated[float, Number] = Field(
        default=64, gt=0, le=1024, allow_inf_nan=False, description="largest request body, MiB"
    )
    header_kib_max: Annotated[int, Number] = Field(
        default=64, ge=1, le=1024, description="largest head of a request or an answer, KiB"
    )
    headers_max: Annotated[int, Number] = Field(
        default=256, ge=16, le=10_000, description="header lines of a request"
    )
    decoded_ratio_max: Annotated[float, Number] = Field(
        default=100,
        ge=1,
        le=100_000,
        allow_inf_nan=False,
        description="growth of a compressed body beyond its first MiB, times its size",
    )
    connections_max: Annotated[int, Number] = Field(
        default=10_000, ge=1, description="client connections at once"
    )
    connections_per_client_max: Annotated[int, Number] = Field(
        default=0, ge=0, description="connections of one address at once; 0 does not limit them"
    )
    connect_s: Seconds = Field(default=2.0, description="to connect to a replica")
    first_event_s: Seconds = Field(default=600.0, description="until a stream's first event")
    answer_s: Seconds = Field(
        default=3_600.0, description="until a whole answer that is not streamed"
    )
    head_hold_s: Seconds = Field(
        default=60.0, description="holding a stream's head for its first event"
    )
    heartbeat_s: Seconds = Field(default=15.0, description="between comments once the head is out")
    stream_idle_s: Seconds = Field(default=300.0, description="between two reads of a stream")
    request_read_s: Seconds = Field(default=60.0, description="for a request to arrive")
    request_kib_per_s_min: Annotated[float, Number] = Field(
        default=16,
        gt=0,
        le=1_048_576,
        allow_inf_nan=False,
        description="body that must arrive for a second more, KiB",
    )
    client_idle_s: Seconds = Field(default=75.0, description="keeping an idle client connection")
    # SGLang closes idle connections after 5 s.
    upstream_reuse_s: Seconds = Field(default=3.0, description="reusing an idle replica connection")
    drain_s: Seconds = Field(default=300.0, description="for running requests to end at shutdown")


class ForwardingSettings(BaseModel):
    """What replicas are told of where a request comes from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    origin: Literal["append", "set", "strip"] = Field(
        default="append",
        description="X-Forwarded-* and Forwarded: append to a trusted proxy's, set always, or strip",
    )
    trusted_proxies: Annotated[tuple[Network, ...], BeforeValidator(as_list)] = Field(
        default=(), description="addresses and networks whose word on the client is believed"
    )
    begin_trace: bool = Field(
        default=False, description="begin a W3C trace where a request brings no sound traceparent"
    )


Wait = Annotated[float, Number, Field(ge=0, le=3_600, allow_inf_nan=False)]


class RetrySettings(BaseModel):
    """What may be tried again, of all requests of the last minute."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    share: Annotated[float, Number] = Field(
        default=0.2, ge=0, le=1, allow_inf_nan=False, description="retries, as a share of requests"
    )
    floor: Annotated[int, Number] = Field(
        default=20, ge=0, le=100_000, description="retries a minute beyond that share"
    )
    backoff_s: Wait = Field(
        default=0.25, description="before sending again to the only replica there is"
    )


class HoldSettings(BaseModel):
    """How long a refused request waits at the door for room; 0 refuses it at once."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    saturated_s: Wait = Field(default=0, description="where every replica is full")
    no_replica_ready_s: Wait = Field(default=0, description="where none may take a request")
    tenant_limit_s: Wait = Field(default=0, description="where a tenant is over its limit")
    turn_s: Wait = Field(
        default=180,
        description="where a streamed request's replica computes another long prompt first; then it is sent all the same",
    )
    turn_short_first_s: Wait = Field(
        default=10,
        description="the same, if less, at engines that let short prompts pass (shortest-prefill-first); more where more lives than fits",
    )
    # Codex ends its turn on 429 and soon after a 503; its streams may be silent for 300 s.
    unretried_s: Wait = Field(
        default=120, description="at least, for agents that would end their turn (Codex)"
    )
    requests_max: Annotated[int, Number] = Field(default=256, ge=0, description="that wait at once")
    mib_max: Annotated[float, Number] = Field(
        default=256, ge=0, le=65_536, allow_inf_nan=False, description="of their bodies, MiB"
    )
