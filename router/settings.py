"""The router's settings: one frozen tree, the only reader of environment and files.

Order: defaults, then the TOML file, then ``HOMEPORT_*``, then flags. Unknown keys and impossible
values are refused, naming the key, the value and where it came from.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from router.errors import ConfigError
from router.policy.registry import POLICIES
from router.state.fleet import parse_url

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = "HOMEPORT_"
_NESTED: Final = "__"
_SECRET_LENGTH_MIN: Final = 16
_SECRETS: Final = frozenset({"record_salt"})


def _known_policy(name: str) -> str:
    if name not in POLICIES:
        raise ValueError(f"is not a policy; choose one of {', '.join(sorted(POLICIES))}")
    return name


def _replica_url(url: str) -> str:
    if parse_url(url) is None:
        raise ValueError(f"{url!r} is not of the form http://HOST:PORT")
    return url.rstrip("/")


def _list(value: object) -> object:
    """A list in the environment is separated by commas or blanks."""
    return value.replace(",", " ").split() if isinstance(value, str) else value


def _long_enough(secret: SecretStr | None) -> SecretStr | None:
    if secret is not None and len(secret.get_secret_value()) < _SECRET_LENGTH_MIN:
        raise ValueError(f"must have at least {_SECRET_LENGTH_MIN} characters")
    return secret


def _number(value: object) -> object:
    """TOML's true is no number, though Python takes it for one."""
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004  (pydantic wants a ValueError)
    return value


Number = BeforeValidator(_number)
Seconds = Annotated[float, Number, Field(gt=0, le=86_400, allow_inf_nan=False)]
Port = Annotated[int, Number, Field(ge=0, le=65_535)]


class LimitSettings(BaseModel):
    """Bounds of the data plane; each is one field of the edge's limits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    body_mib_max: Annotated[float, Number] = Field(
        default=64, gt=0, le=1024, allow_inf_nan=False, description="largest request body, MiB"
    )
    connections_max: Annotated[int, Number] = Field(
        default=10_000, ge=1, description="client connections at once"
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
    client_idle_s: Seconds = Field(default=75.0, description="keeping an idle client connection")
    # SGLang closes idle connections after 5 s.
    upstream_reuse_s: Seconds = Field(default=3.0, description="reusing an idle replica connection")
    drain_s: Seconds = Field(default=300.0, description="for running requests to end at shutdown")


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
    # Codex ends its turn on 429 and soon after a 503; its streams may be silent for 300 s.
    unretried_s: Wait = Field(
        default=120, description="at least, for agents that would end their turn (Codex)"
    )
    requests_max: Annotated[int, Number] = Field(default=256, ge=0, description="that wait at once")
    mib_max: Annotated[float, Number] = Field(
        default=256, ge=0, le=65_536, allow_inf_nan=False, description="of their bodies, MiB"
    )


class Settings(BaseModel):
    """All settings of ``homeport serve``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(default="127.0.0.1", min_length=1, description="address of the data port")
    port: Port = Field(default=30_000, description="data port; 0 takes a free one")
    # The control plane can drain and remove replicas: loopback unless told otherwise.
    admin_host: str = Field(
        default="127.0.0.1", min_length=1, description="address of the control port"
    )
    admin_port: Port = Field(default=30_080, description="control port; 0 takes a free one")
    replica: Annotated[
        tuple[Annotated[str, AfterValidator(_replica_url)], ...], BeforeValidator(_list)
    ] = Field(default=(), description="replicas by URL; others may register themselves")
    policy: Annotated[str, AfterValidator(_known_policy)] = Field(
        default="home", description=f"how a replica is chosen: {', '.join(sorted(POLICIES))}"
    )
    max_inflight_per_replica: Annotated[int | None, Number] = Field(
        default=None, ge=1, description="requests in flight at one replica; no limit if not set"
    )
    session_header: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9-]{1,64}$", description="a header that names the session"
    )
    strip_billing_line: bool = Field(
        default=True,
        description="remove Claude Code's changing billing line from what is forwarded",
    )
    ask_usage: bool = Field(
        default=True, description="ask for token counts where the client did not, and strip them"
    )
    # Kimi's template renders an inline system message where it stands.
    inline_system: Literal["in-place", "hoisted"] = Field(
        default="in-place",
        description="how the model's template renders system messages after the head",
    )
    # Kimi K2.6 empties reasoning before the last answer unless preserve_thinking is set.
    old_reasoning: Literal["stripped", "kept"] = Field(
        default="stripped",
        description="what the model's template does with reasoning of earlier turns",
    )
    # Kimi's template shows it where the answer begins; a text in the system message is a head.
    thinking: Literal["behind", "head"] = Field(
        default="behind",
        description="where the model's template shows how hard to think: behind the messages, or in the head",
    )
    # Generations have no side effects: repeating one costs only the engine's work.
    repeat_started: bool = Field(
        default=True, description="repeat a request that may have started before its first event"
    )
    probe_s: Seconds = Field(default=1.0, description="between two probes of a replica")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="least level that is logged"
    )
    access_log: bool = Field(default=True, description="one line a request")
    record: str | None = Field(
        default=None,
        min_length=1,
        description="a new file to record what is decided to, for `homeport replay`",
    )
    record_mib_max: Annotated[float, Number] = Field(
        default=1024,
        ge=1,
        le=1_048_576,
        allow_inf_nan=False,
        description="where a recording ends, MiB",
    )
    record_salt: Annotated[SecretStr | None, AfterValidator(_long_enough)] = Field(
        default=None,
        description="secret that makes names in a recording unreadable; made anew at each start",
    )
    limits: LimitSettings = Field(default_factory=LimitSettings)
    retry: RetrySettings = Field(default_factory=RetrySettings)
    hold: HoldSettings = Field(default_factory=HoldSettings)

    @model_validator(mode="after")
    def _has_two_ports(self) -> Self:
        if self.port == self.admin_port != 0:
            raise ValueError(f"port and admin_port are both {self.port}; they must differ")
        return self


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings and, for each key (``limits.connect_s``), where its value came from."""

    settings: Settings
    sources: dict[str, str]

    def rows(self) -> list[tuple[str, str, str]]:
        """Key, value as JSON (of a secret only that it is set), source: in order of declaration."""
        rows: list[tuple[str, str, str]] = []
        for key, value in _flat(self.settings.model_dump(mode="json")).items():
            text = msgspec.json.encode(value).decode()
            if key in _SECRETS:
                text = "not set" if value is None else "set"
            rows.append((key, text, self.sources.get(key, "default")))
        return rows


def load(flags: Mapping[str, Any], config: Path | None = None) -> Resolved:
    """Resolve all sources; flags that are None were not given.

    Raises:
        ConfigError: the file can't be read, a key is unknown, or a value is impossible.
    """
    environment = _from_environment()
    config_name = environment.pop("config", None)
    path = config or (Path(config_name) if isinstance(config_name, str) else None)
    layers: list[tuple[str, dict[str, Any]]] = []
    if path is not None:
        layers.append((f"file {path}", _from_file(path)))
    layers.append(("environment", environment))
    given = {key: value for key, value in flags.items() if value not in (None, ())}
    layers.append(("flag", given))
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, layer in layers:
        _merge(merged, layer)
        sources.update(dict.fromkeys(_flat(layer), name))
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as failure:
        raise ConfigError(_explain(failure, sources)) from None
    return Resolved(settings, sources)


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise ConfigError(f"config file {path}: {failure.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise ConfigError(f"config file {path}: not TOML: {failure}") from None


def _from_environment() -> dict[str, Any]:
    """``HOMEPORT_*`` as a tree of texts; every name must be a setting's."""
    known = {f"{PREFIX}{key.replace('.', _NESTED).upper()}": key for key in _flat(_defaults())}
    known[f"{PREFIX}CONFIG"] = "config"
    found: dict[str, Any] = {}
    for name, text in os.environ.items():
        if not name.startswith(PREFIX):
            continue
        if name not in known:
            raise ConfigError(
                f"environment: {name} is not a setting; `homeport check` lists those there are"
            )
        *groups, key = known[name].split(".")
        tree = found
        for group in groups:
            tree = tree.setdefault(group, {})
        tree[key] = text
    return found


def _defaults() -> dict[str, Any]:
    return Settings().model_dump()


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        below = into.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            _merge(below, value)
        else:
            into[key] = dict(value) if isinstance(value, dict) else value


def _explain(failure: ValidationError, sources: Mapping[str, str]) -> str:
    """The first fault as one line: key, value, source, what is wrong."""
    first = failure.errors()[0]
    key = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
    source = sources.get(key, "default")
    if first["type"] == "extra_forbidden":
        return f"{key}: is not a setting (from {source}); `homeport check` lists those there are"
    message = first["msg"].removeprefix("Value error, ")
    if not key:
        return message
    message = message[:1].lower() + message[1:]
    value = "(secret)" if key in _SECRETS else repr(first["input"])
    return f"{key} = {value} (from {source}): {message}"
