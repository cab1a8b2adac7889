"""The command line in this process, for the many cases in which a process of its own would show nothing else.

That a process prints and exits so is shown once for each command; each one costs a third of a second.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
from unittest import mock

from router.cli import main


def called(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What ``homeport WORDS`` answers and prints, with more in its environment."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
