"""A process beside a demonstration, which clears up after it if it is killed.

It is told every process that the demonstration starts, through a pipe. The pipe ends with the
demonstration, however that ends.
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
# Whoever is killed may still be writing.
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
            start_new_session=True,  # the terminal's Ctrl-C is not meant for it
        )

    def watch(self, pid: int) -> None:
        """Note a process that leads a group of its own."""
        self._tell(str(pid))

    def close(self) -> None:
        """All is cleared up."""
        self._tell(_DONE)
        self._process.communicate()

    def _tell(self, line: str) -> None:
        pipe = self._process.stdin
        # Somebody may have killed the guard; the demonstration does not need it.
        with suppress(BrokenPipeError):
            if pipe is not None and not pipe.closed:
                pipe.write(f"{line}\n")
                pipe.flush()


def _clear_up(pids: list[int], folder: Path) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(_PAUSE_SECONDS)


def main() -> None:
    told = [line.strip() for line in sys.stdin]
    if _DONE not in told:
        _clear_up([int(pid) for pid in told], Path(sys.argv[1]))


if __name__ == "__main__":
    main()
