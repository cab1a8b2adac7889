"""The tree of settings, and how its sources are resolved.

Order: defaults, then the TOML file, then ``HOMEPORT_*``, then flags. Unknown keys and impossible
values are refused, naming the key, the value and where it came from.
"""

from __future__ import annotations

import os
import re
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
    ValidationError,
    model_validator,
)

from router.errors import ConfigError
from router.policy.registry import POLICIES
from router.settings.admin import OTHERS
from router.settings.discovery import DiscoverySettings
from router.settings.groups import ForwardingSettings, HoldSettings, LimitSettings, RetrySettings
from router.settings.kinds import (
    HeaderSecret,
    Number,
    PlainSecret,
    Port,
    Seconds,
    Secret,
    as_list,
    as_table,
    secret_keys,
)
from router.settings.kinds import Path as FileName
from router.settings.security import (
    SECRET_FILES,
    ReplicaTlsSettings,
    TlsSettings,
    demand_admin_key,
    read_secret,
)
from router.settings.sharing import RedisUrl, SharingSettings
from router.state.fleet.addresses import parse_url

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = "HOMEPORT_"
_NESTED: Final = "__"
_PASSWORD: Final = re.compile(r"//[^/@\s]*@")
"""What stands before the host in a URL."""


def _known_policy(name: str) -> str:
    if name not in POLICIES:
        raise ValueError(f"is not a policy; choose one of {', '.join(sorted(POLICIES))}")
    return name


def _replica_url(url: str) -> str:
    if parse_url(url) is None:
        shown = url if "@" not in url else f"...@{url.rpartition('@')[2]}"
        raise ValueError(f"{shown!r} is not of the form http://HOST:PORT or https://HOST:PORT")
    return url.rstrip("/")


def _alias(text: str) -> str:
    name, sign, model = (part.strip() for part in text.partition("="))
    if not (name and sign and model) or "*" in name[:-1] or "*" in model:
        raise ValueError(f"{text!r} is not of the form NAME=MODEL; NAME may end with *")
    return f"{name}={model}"


def _path(path: str) -> str:
    if not path.startswith("/") or "*" in path[:-1] or not path.isprintable() or " " in path:
        raise ValueError(f"{path!r} is not a path such as /v1/x, or /v1/* for all that begin so")
    return path


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
    # One carries a large fleet; more are for what one core cannot, up to the cores there are.
    workers: Annotated[int, Number] = Field(
        default=1, ge=1, le=32, description="processes that serve, each on a core of its own"
    )
    replica: Annotated[
        tuple[Annotated[str, AfterValidator(_replica_url)], ...], BeforeValidator(as_list)
    ] = Field(default=(), description="replicas by URL; others may register themselves")
    aliases: Annotated[
        tuple[Annotated[str, AfterValidator(_alias)], ...], BeforeValidator(as_table)
    ] = Field(
        default=(), description="other names for models, NAME=MODEL; NAME* for all beginning so"
    )
    default_model: str | None = Field(
        default=None, min_length=1, description="the model of requests that name none"
    )
    engine_paths: Annotated[
        tuple[Annotated[str, AfterValidator(_path)], ...], BeforeValidator(as_list)
    ] = Field(default=(), description="further paths of the engine to let through; PATH* for all")
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
    # An idle engine makes a token for it, and takes a second.
    health_s: Seconds = Field(
        default=15.0, description="between two health checks of a replica, which make a token"
    )
    kv_events: Literal["auto", "off"] = Field(
        default="auto", description="follow the KV events of replicas that publish them"
    )
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
    record_salt: Secret = Field(
        default=None,
        description="secret that makes names in a recording unreadable; made anew at each start",
    )
    tenants_file: FileName = Field(
        default=None, description="a TOML file of tenants and their keys; open to all if not set"
    )
    # The engine's prefix cache is one for all who use it, unless it is told otherwise.
    tenant_prefixes: Literal["shared", "isolated"] = Field(
        default="shared", description="whether tenants profit from each other's cached prefixes"
    )
    forward_client_key: bool = Field(
        default=False, description="pass the client's own key on to the replicas"
    )
    replica_api_key: HeaderSecret = Field(
        default=None, description="secret: the replicas' --api-key, sent to them with each request"
    )
    replica_api_key_file: FileName = Field(
        default=None, description="a file that holds replica_api_key"
    )
    admin_key: Secret = Field(
        default=None, description="secret: the control API's key; needed beyond loopback"
    )
    admin_key_file: FileName = Field(default=None, description="a file that holds admin_key")
    metrics_open: bool = Field(
        default=True, description="serve /metrics without the control API's key"
    )
    redis_url: RedisUrl | None = Field(
        default=None,
        description="share sessions and load with other routers: redis://HOST:PORT, rediss:// for TLS",
    )
    redis_username: str | None = Field(
        default=None, min_length=1, description="the user that Redis knows this router as"
    )
    redis_password: PlainSecret = Field(default=None, description="secret: that user's password")
    redis_password_file: FileName = Field(
        default=None, description="a file that holds redis_password"
    )
    routers_apart: bool = Field(
        default=False,
        description="without Redis: other routers serve the same sessions, so place them as all would",
    )
    redis_tls: ReplicaTlsSettings = Field(default_factory=ReplicaTlsSettings)
    sharing: SharingSettings = Field(default_factory=SharingSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    tls: TlsSettings = Field(default_factory=TlsSettings)
    replica_tls: ReplicaTlsSettings = Field(default_factory=ReplicaTlsSettings)
    forwarding: ForwardingSettings = Field(default_factory=ForwardingSettings)
    retry: RetrySettings = Field(default_factory=RetrySettings)
    hold: HoldSettings = Field(default_factory=HoldSettings)
    discovery: DiscoverySettings = Field(default_factory=DiscoverySettings)

    @model_validator(mode="after")
    def _has_two_ports(self) -> Self:
        if self.port == self.admin_port != 0:
            raise ValueError(f"port and admin_port are both {self.port}; they must differ")
        return self


_SECRETS: Final = secret_keys(Settings)


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
            rows.append((key, text, self.sources.get(key) or self._source_below(key)))
        return rows

    def _source_below(self, key: str) -> str:
        """Where a table came from of which every entry has a source."""
        below = (source for name, source in self.sources.items() if name.startswith(f"{key}."))
        return next(below, "default")


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
    settings = _with_secrets(settings, sources)
    demand_admin_key(settings.admin_host, settings.admin_key, sources)
    return Resolved(settings, sources)


def _with_secrets(settings: Settings, sources: dict[str, str]) -> Settings:
    """The settings with the secrets that they name files of."""
    tree = {name: getattr(settings, name) for name in settings.model_fields_set}
    found: dict[str, Any] = {}
    for file_key, key in SECRET_FILES.items():
        path = getattr(settings, file_key)
        if path is None:
            continue
        if getattr(settings, key) is not None:
            raise ConfigError(f"{key} and {file_key} are both set: choose one")
        found[key] = read_secret(file_key, path, sources[file_key])
        sources[key] = f"file {path}"
    if not found:
        return settings
    try:
        return Settings.model_validate(tree | found)
    except ValidationError as failure:
        raise ConfigError(_explain(failure, sources)) from None


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
        if not name.startswith(PREFIX) or name in OTHERS:
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
    if isinstance(first["input"], dict):  # a group whose members do not fit together
        return f"{key}: {message}"
    value = "(secret)" if key in _SECRETS else _PASSWORD.sub("//...@", repr(first["input"]))
    return f"{key} = {value} (from {source}): {message}"
