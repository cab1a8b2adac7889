"""The other routers and relays: whether they are installed, and how each is set up and started."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

Address = tuple[str, int]

# http-no-delay: without it HAProxy marks parts of a chunked answer as "more to come", and the
# kernel may hold an event back; a load balancer for streams is set up with it.
_HAPROXY: Final = """\
global
  nbthread 1
  maxconn 9900
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option http-no-delay
  http-reuse safe
frontend door
  bind {host}:{port}
  default_backend fleet
backend fleet
{servers}
"""

# Bodies stay in memory and answers are not buffered: a load balancer for streams is set up so.
_NGINX: Final = """\
daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 19000; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 0;
  client_body_buffer_size 1m;
  keepalive_timeout 75s;
  keepalive_requests 1000000000;
  upstream fleet {{
{servers}
    keepalive 4096;
    keepalive_requests 1000000000;
  }}
  server {{
    listen {host}:{port} backlog=1024;
    location / {{
      proxy_pass http://fleet;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


@dataclass(slots=True, frozen=True)
class Place:
    """Where one peer runs: the address it is to listen on, its replicas, a folder of its own."""

    address: Address
    replicas: Sequence[Address]
    folder: Path
    spare_port: int

    @property
    def urls(self) -> list[str]:
        """The replicas' URLs."""
        return [f"http://{host}:{port}" for host, port in self.replicas]


@dataclass(slots=True, frozen=True)
class Tools:
    """What is installed: programs by the peer's name, and versions; why others are left out."""

    programs: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def find_tools(pythons: Sequence[str]) -> Tools:
    """Look for the peers; one line for each that is not there.

    ``pythons`` are interpreters that may have ``sglang-router`` or ``smg`` installed.
    """
    tools = Tools()
    for name, flag in (("haproxy", "-v"), ("nginx", "-v")):
        program = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
        if program is None:
            reason = "; there will be no ratios" if name == "haproxy" else ""
            tools.skipped.append(f"{name} is left out: no such program{reason}")
        else:
            tools.programs[name] = program
            tools.versions[name] = _version(program, flag)
    for name in ("sglang-router", "smg"):
        found = next(((python, v) for python in pythons if (v := _package(python, name))), None)
        if found is None:
            tools.skipped.append(
                f"{name} is left out: not installed for {', '.join(pythons)} "
                f"(pip install {name} in an environment, then --peer-python ITS_PYTHON)"
            )
        else:
            tools.programs[name], tools.versions[name] = found
    return tools


def command(name: str, tools: Tools, place: Place) -> list[str]:
    """What starts a peer at its place; writes its configuration where it takes one."""
    return COMMANDS[name](tools.programs[name], place)


def _haproxy(program: str, place: Place) -> list[str]:
    rows = [f"  server r{n} {host}:{port}" for n, (host, port) in enumerate(place.replicas)]
    config = place.folder / "haproxy.cfg"
    host, port = place.address
    config.write_text(_HAPROXY.format(host=host, port=port, servers="\n".join(rows)))
    return [program, "-db", "-f", str(config)]


def _nginx(program: str, place: Place) -> list[str]:
    rows = [f"    server {host}:{port};" for host, port in place.replicas]
    config = place.folder / "nginx.conf"
    host, port = place.address
    config.write_text(
        _NGINX.format(folder=place.folder, host=host, port=port, servers="\n".join(rows))
    )
    return [program, "-p", str(place.folder), "-e", "stderr", "-c", str(config)]


def _sglang_router(python: str, place: Place) -> list[str]:
    return [python, "-m", "sglang_router.launch_router", *_gateway(place), "--log-level", "error"]


def _smg(python: str, place: Place) -> list[str]:
    return [python, "-m", "smg.launch_router", *_gateway(place), "--log-level", "error"]


def _gateway(place: Place) -> list[str]:
    """Flags that sglang-router and SMG have in common: their cache-aware default."""
    host, port = place.address
    return [
        *("--worker-urls", *place.urls, "--policy", "cache_aware", "--host", host),
        *("--port", str(port), "--prometheus-port", str(place.spare_port)),
    ]


COMMANDS: Final[Mapping[str, Callable[[str, Place], list[str]]]] = {
    "haproxy": _haproxy,
    "nginx": _nginx,
    "sglang-router": _sglang_router,
    "smg": _smg,
}
"""Peer -> how it is started; a new peer is a row here and a line in :func:`find_tools`."""


def _version(program: str, flag: str) -> str:
    """The version number that a program prints first."""
    done = subprocess.run([program, flag], capture_output=True, text=True, check=False)
    words = (done.stdout + done.stderr).replace("/", " ").split()
    return next((word for word in words if word[:1].isdigit()), "unknown")


def _package(python: str, name: str) -> str:
    """The version of a package that an interpreter has; "" if it has none."""
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    try:
        asked = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""
