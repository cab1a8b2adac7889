"""Become a program that dies with the process that started it, whatever kills that one.

``python tied.py STARTER PROGRAM ARGUMENT ...``, with the starter's process id. Only the standard library:
each environment's own interpreter runs it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h; kept across exec

if __name__ == "__main__":
    starter, program, *arguments = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(starter):
        sys.exit("the starter ended before its program had begun")
    os.execv(program, [program, *arguments])
