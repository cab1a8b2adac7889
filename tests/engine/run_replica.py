"""Become ``sglang serve`` that dies with the process that started it, whatever kills that one.

SGLang's own children follow it. Run by the engine's environment with the starter's process id:
``python run_replica.py STARTER FLAG ...``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h; kept across exec

if __name__ == "__main__":
    starter, *flags = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(starter):
        sys.exit("the starter ended before its replica had begun")
    serve = Path(sys.executable).with_name("sglang")
    os.execv(serve, [str(serve), "serve", *flags])
