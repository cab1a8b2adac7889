"""Who may ask what: SGLang's two keys (``utils/auth.py`` there)."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiohttp import web

    from sim.live.serving.options import EmulatorOptions

_OPEN_PATHS: Final = ("/health", "/ready", "/metrics", "/emulator/")
_CONTROL: Final = {"/flush_cache": ("GET", "POST"), "/abort_request": ("POST",)}


def is_allowed(request: web.Request, options: EmulatorOptions) -> bool:
    """Whether a request carries the key that its endpoint demands.

    Control endpoints demand the admin key where there is one, and the api key is then no good; all
    others but the open ones demand the api key where there is one, and the admin key is no good.
    """
    if request.method == "OPTIONS" or request.path.startswith(_OPEN_PATHS):
        return True
    key = options.api_key
    if request.method in _CONTROL.get(request.path, ()):
        key = options.admin_api_key or key
    if key is None:
        return True
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), key.encode())
