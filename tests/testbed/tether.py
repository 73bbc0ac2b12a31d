"""Becomes the command it is given, tied to the life of the process that asked for it.

Run as a file, not imported: `python -I -S tether.py PARENT_PID COMMAND…`. The kernel then ends the command
when its parent dies, even by SIGKILL. A preexec function would do the same, but forks a threaded process.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:  # it died before the tether was on
        sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
