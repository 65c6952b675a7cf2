"""A process that cleans up after a demo that was killed.

The demo reports every process that it starts through a pipe, which closes when the demo ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_DONE = "done"
# A process that was killed may still be writing.
_TRIES = 20
_PAUSE_SECONDS = 0.1


class Guard:
    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # so that Ctrl-C in the terminal doesn't end it
        )

    def watch(self, pid: int) -> None:
        """Add a process that leads its own group."""
        self._send(str(pid))

    def close(self) -> None:
        """End the guard: everything is cleaned up."""
        self._send(_DONE)
        self._process.communicate()

    def _send(self, line: str) -> None:
        pipe = self._process.stdin
        # The demo continues if the guard was killed.
        with suppress(BrokenPipeError):
            if pipe is not None and not pipe.closed:
                pipe.write(f"{line}\n")
                pipe.flush()


def main() -> None:
    lines = sys.stdin.read().split()
    if _DONE in lines:
        return
    for pid in lines:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(int(pid), signal.SIGKILL)
    folder = Path(sys.argv[1])
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main()
