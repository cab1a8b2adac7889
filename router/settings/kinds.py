"""Kinds of values that several groups of settings use."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr

_SECRET_LENGTH_MIN: Final = 16


def _number(value: object) -> object:
    """TOML's true is no number, though Python takes it for one."""
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004  (pydantic wants a ValueError)
    return value


def _long_enough(secret: SecretStr | None) -> SecretStr | None:
    if secret is not None and len(secret.get_secret_value()) < _SECRET_LENGTH_MIN:
        raise ValueError(f"must have at least {_SECRET_LENGTH_MIN} characters")
    return secret


def _fits_a_header(secret: SecretStr | None) -> SecretStr | None:
    text = "" if secret is None else secret.get_secret_value()
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be visible ASCII without blanks: it is sent in a header")
    return secret


def as_list(value: object) -> object:
    """A list in the environment is separated by commas or blanks."""
    return value.replace(",", " ").split() if isinstance(value, str) else value


def as_table(value: object) -> object:
    """A table of names is a list of ``NAME=MODEL`` everywhere but in TOML."""
    if isinstance(value, dict):
        return [f"{name}={model}" for name, model in value.items()]
    return as_list(value)


def _network(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return ip_network(value)
    except ValueError:
        what = f"{value!r} is not an address or a network such as 10.0.0.0/8"
        raise ValueError(what) from None


Number = BeforeValidator(_number)
Seconds = Annotated[float, Number, Field(gt=0, le=86_400, allow_inf_nan=False)]
Network = Annotated[IPv4Network | IPv6Network, BeforeValidator(_network)]
Port = Annotated[int, Number, Field(ge=0, le=65_535)]
Secret = Annotated[SecretStr | None, AfterValidator(_long_enough)]
"""A secret of at least 16 characters."""
HeaderSecret = Annotated[SecretStr | None, AfterValidator(_fits_a_header)]
"""A key that somebody else made, as it goes into a header."""
PlainSecret = Annotated[SecretStr | None, Field(min_length=1)]
"""A secret that somebody else made."""
Path = Annotated[str | None, Field(min_length=1)]


def secret_keys(model: type[BaseModel], prefix: str = "") -> frozenset[str]:
    """The keys (``group.name``) of a tree of settings whose values are never shown."""
    found: set[str] = set()
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= secret_keys(kind, f"{prefix}{name}.")
        elif kind is SecretStr or SecretStr in getattr(kind, "__args__", ()):
            found.add(f"{prefix}{name}")
    return frozenset(found)
