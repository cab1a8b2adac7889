"""``homeport serve --workers N``: the process that starts the workers and does nothing for a request."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from router.guards import check_files
from router.obs.logs import configure
from router.settings.workers import demand_workable, worker_environment
from router.workers.board import made
from router.workers.listening import bound
from router.workers.staff import Crew
from router.workers.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.settings import Settings

_SPARE_ROWS: Final = 2
"""One for a worker that takes another's place while that one ends, one for a crash meanwhile."""


def supervise(settings: Settings, announce: Callable[[int, int], None]) -> int:
    """Run as many workers as the settings say until a signal ends them; answers the exit code.

    ``announce`` is called once all serve, with the data and the control port.

    Raises:
        ConfigError: the settings, or a file that they name, cannot be used.
        OSError: one of the addresses cannot be listened on.
    """
    demand_workable(settings)
    check_files(settings)
    configure(settings.log_level)
    fronts = bound(settings.host, settings.port)
    controls = bound(settings.admin_host, settings.admin_port)
    crew = Crew(
        board=made(settings.workers + _SPARE_ROWS, settings.workers),
        fronts=fronts,
        controls=controls,
        # The same words once more, so that a renewed worker reads the same sources anew.
        command=[sys.executable, *sys.orig_argv[1:]],
        environment=worker_environment,
    )

    def ready() -> None:
        announce(fronts[0].getsockname()[1], controls[0].getsockname()[1])

    return Supervisor(crew, settings.workers, ready).run()
