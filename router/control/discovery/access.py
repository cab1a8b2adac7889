"""How to reach a cluster's API server: the pod's own account, or a kubeconfig.

The files are read by kubernetes-asyncio, each time anew, for tokens and CAs are rotated.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from router.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Coroutine

ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""The folder in which a pod finds its own account."""
EXEC_S: Final = 15.0
_KILLED_S: Final = 2.0
_LOOK_S: Final = 0.01


class NoAccess(Exception):  # noqa: N818  (it says what happened, as the project's errors do)
    """There is no way to the API server now; the text says why."""


@dataclass(slots=True, frozen=True)
class Access:
    """Where the API server is and how to speak to it; ``namespace`` is the account's own."""

    host: str
    namespace: str
    tls: ssl.SSLContext | None
    server_name: str | None = None
    headers: dict[str, str] = field(default_factory=dict, repr=False)


def demand_extra() -> None:
    """See that the extra is installed.

    Raises:
        ConfigError: it is not; the text says how it gets there.
    """
    try:
        importlib.import_module("kubernetes_asyncio.config")
    except ImportError:
        raise ConfigError(
            "discovery.kubernetes_services: needs an extra that is not installed;"
            " run `pip install homeport[kubernetes]`"
        ) from None


async def access(
    kubeconfig: str | None, account: str = ACCOUNT, *, exec_s: float = EXEC_S
) -> Access:
    """Read how to reach the API server. ``account`` is the folder of the pod's own account.

    A program that the kubeconfig names is ended after ``exec_s``.

    Raises:
        NoAccess: the files are not there, or do not say it.
    """
    config: Any = importlib.import_module("kubernetes_asyncio.config")
    client: Any = importlib.import_module("kubernetes_asyncio.client.configuration")
    found = client.Configuration()
    try:
        if kubeconfig is None:
            namespace = await asyncio.to_thread(_of_pod, config, found, account)
        else:
            # A coroutine that reads files, and may run a program that makes a token: not on this loop.
            loading = config.load_kube_config(kubeconfig, client_configuration=found)
            await asyncio.to_thread(_run, loading, exec_s)
            _, chosen = await asyncio.to_thread(config.list_kube_config_contexts, kubeconfig)
            namespace = chosen["context"].get("namespace", "default")
        return await asyncio.to_thread(_access, found, namespace)
    except NoAccess:
        raise
    except Exception as failure:  # noqa: BLE001  (the libraries raise whatever a file makes them)
        raise NoAccess(f"{type(failure).__name__}: {failure}"[:300]) from None


class _Loop(asyncio.SelectorEventLoop):
    """A loop that knows the programs it started; each has a process group of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.programs: list[asyncio.SubprocessTransport] = []

    @override
    async def subprocess_exec(self, *words: Any, **options: Any) -> Any:
        """Start a program."""
        made = await super().subprocess_exec(*words, start_new_session=True, **options)
        self.programs.append(made[0])
        return made

    async def end_programs(self) -> None:
        """Kill what still runs, and wait a moment until it is gone."""
        for program in self.programs:
            if program.get_returncode() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program.get_pid(), signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KILLED_S):
                    while program.get_returncode() is None:  # noqa: ASYNC110  (it tells nobody else)
                        await asyncio.sleep(_LOOK_S)
            program.close()


def _run(loading: Coroutine[Any, Any, None], exec_s: float) -> None:
    """Run what loads a kubeconfig to its end, on a loop of this thread.

    Raises:
        NoAccess: the program that it runs did not end in time.
    """

    async def bounded() -> None:
        try:
            async with asyncio.timeout(exec_s):
                await loading
        except TimeoutError:
            raise NoAccess(
                f"the exec program did not end within {exec_s:g} s and was killed; run it by hand with the"
                " router's environment: it may wait for a person or for the network"
            ) from None
        finally:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, _Loop)
            await loop.end_programs()

    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(bounded())


def _of_pod(config: Any, found: Any, account: str) -> str:  # noqa: ANN401  (the extra may be missing)
    """Read the pod's own account into a configuration; answers its namespace."""
    config.load_incluster_config(
        found,
        try_refresh_token=False,
        token_filename=f"{account}/token",
        cert_filename=f"{account}/ca.crt",
    )
    return Path(account, "namespace").read_text(encoding="utf-8").strip()


def _access(found: Any, namespace: str) -> Access:  # noqa: ANN401  (the extra may be missing)
    tls = None
    if found.host.startswith("https:"):
        tls = ssl.create_default_context(cafile=found.ssl_ca_cert)
        if found.cert_file:
            tls.load_cert_chain(found.cert_file, keyfile=found.key_file)
        if not found.verify_ssl:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
    headers = {"accept": "application/json"}
    token = found.api_key.get("BearerToken")
    if token:
        headers["authorization"] = token
    elif found.username:
        headers["authorization"] = found.get_basic_auth_token()
    return Access(found.host.rstrip("/"), namespace, tls, found.tls_server_name, headers)
