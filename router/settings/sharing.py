"""Settings of what several routers share through Redis; ``docs/routers.md`` describes them."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from router.settings.kinds import Number, Seconds

_PLACE: Final = r"[A-Za-z0-9._-]+(?::\d{1,5})?|\[[0-9A-Fa-f:.]+\](?::\d{1,5})?"
_URL: Final = re.compile(
    rf"(?:(?P<tls>rediss?)(?P<kind>\+sentinel|\+cluster)?)://(?P<places>(?:{_PLACE})(?:,(?:{_PLACE}))*)"
    r"(?:/(?P<path>[A-Za-z0-9._-]*))?"
)
_UNIX: Final = re.compile(r"unix:///[^?#\s]+")


def redis_url(url: str) -> str:
    """A URL of Redis as it is.

    Raises:
        ValueError: it is of no known form, or holds a password; the text does not show it.
    """
    if "@" in url:
        raise ValueError(
            "holds a user or a password: give them as redis_username and redis_password_file"
        )
    found = _URL.fullmatch(url)
    if found is None and _UNIX.fullmatch(url) is None:
        raise ValueError(
            "is not of the form redis://HOST:PORT/DB, rediss://... for TLS, unix:///PATH, "
            "redis+sentinel://HOST:PORT,HOST:PORT/NAME or redis+cluster://HOST:PORT,HOST:PORT"
        )
    if found is not None and found["kind"] == "+sentinel" and not found["path"]:
        raise ValueError("names no master: redis+sentinel://HOST:PORT,HOST:PORT/NAME")
    if found is not None and found["kind"] is None and "," in found["places"]:
        raise ValueError("names several servers: say redis+sentinel:// or redis+cluster://")
    return url


class SharingSettings(BaseModel):
    """How much of Redis is used, and how long anybody waits for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prefix: str = Field(
        default="homeport",
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        description="what all keys begin with; routers with the same one share sessions",
    )
    # As long as a router itself remembers a session.
    session_ttl_s: Annotated[float, Number] = Field(
        default=14_400, ge=1, le=2_592_000, allow_inf_nan=False, description="a session is kept"
    )
    # A round trip in one data centre takes under one; a new session's prefill takes thousands.
    read_ms_max: Annotated[float, Number] = Field(
        default=3, gt=0, le=1_000, allow_inf_nan=False, description="a request waits for a session"
    )
    publish_ms: Annotated[float, Number] = Field(
        default=200,
        ge=100,
        le=250,
        allow_inf_nan=False,
        description="between two words to the other routers",
    )
    command_s: Seconds = Field(default=1.0, description="for any command in the background")


RedisUrl = Annotated[str, AfterValidator(redis_url)]
