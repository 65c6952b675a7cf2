"""Processes that start quickly: copies of one that has already imported what they need.

The tests start hundreds of Python processes, which would spend most of their time importing the
same modules. A copy is a normal process: it has its own ID, reacts to signals, and exits like any
other.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple

ROOT = Path(__file__).parent.parent.parent
CAN_COPY = hasattr(os, "pidfd_open")
NURSERY = "HOLDFAST_TEST_NURSERY"  # the socket of a nursery that belongs to this process
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def fit_for_a_copy(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Would a new interpreter with these arguments and variables do the same as a copy?"""
    ours = command[0] == "-m" and command[1].startswith(("holdfast", "tests."))
    early = any(key.startswith(("LD_", "PYTHON")) for key in environment)
    return ours and not early


def start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], out: Path, log: Path
) -> subprocess.Popen[bytes]:
    """Start a new interpreter that writes to these files."""
    with out.open("wb") as printed, log.open("wb") as told:
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=told,
            preexec_fn=end_with_parent if sys.platform == "linux" else None,
        )


class Line(NamedTuple):
    """Questions to a nursery, and its answers."""

    questions: IO[str]
    answers: IO[str]


class Nursery:
    """A process that has imported these modules and waits to be copied."""

    def __init__(self, path: Sequence[str], modules: Sequence[str]) -> None:
        self._path = os.pathsep.join(path)
        self._modules = modules
        self._line: Line | None = None
        self._talking = threading.Lock()

    def run_module(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        out: Path,
        log: Path,
        *,
        nursery: Sequence[str] = (),
    ) -> Copy | subprocess.Popen[bytes]:
        """Start a copy that continues as `python -m` with these arguments and writes to files.
        With `nursery`, it gets its own nursery, after both have imported these modules."""
        if not CAN_COPY:
            return start(["-m", *arguments], folder, environment, out, log)
        for path in (out, log):
            path.write_bytes(b"")
        wish = {
            "arguments": list(arguments),
            "folder": str(folder),
            "environment": dict(environment),
            "out": str(out),
            "log": str(log),
        }
        return Copy(self, self.ask(start=wish, nursery=list(nursery)))

    def ask(self, **question: Any) -> int:
        with self._talking:
            if self._line is None:
                self._line = self._adopt() or self._start()
                self._ask(modules=self._modules)
            return self._ask(**question)

    def _ask(self, **question: Any) -> int:
        assert self._line is not None
        self._line.questions.write(json.dumps(question) + "\n")
        self._line.questions.flush()
        return int(self._line.answers.readline())

    def _adopt(self) -> Line | None:
        left = os.environ.pop(NURSERY, None)
        if left is None:
            return None
        line = socket.socket(fileno=int(left)).makefile("rw")
        return Line(line, line)

    def _start(self) -> Line:
        server = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": self._path, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C must not end it before the cleanup
        )
        atexit.register(server.communicate)  # with nothing more to ask, it ends
        assert server.stdin is not None
        assert server.stdout is not None
        return Line(server.stdin, server.stdout)


class Copy:
    """A process that a nursery started, used like one of `subprocess`."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            watch = select.poll()
            watch.register(self._descriptor, select.POLLIN)
            if watch.poll(None if seconds is None else seconds * 1000):
                self.returncode = self._nursery.ask(bury=self.pid)
                os.close(self._descriptor)
        return self.returncode


def serve() -> list[str] | None:
    """Make copies until nobody asks for more. In a copy, return the arguments to run."""
    for line in sys.stdin:
        question = json.loads(line)
        if "modules" in question:
            _import_all(question["modules"])
            answer = 0
        elif "bury" in question:
            _, status = os.waitpid(question["bury"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                arguments = _settle_in(**question["start"])
                _import_all(question["nursery"])
                if question["nursery"] and _leaves_a_nursery():
                    continue
                return arguments
        print(answer)  # noqa: T201
    return None


def _import_all(modules: Sequence[str]) -> None:
    for name in modules:
        import_module(name)
    gc.freeze()  # imported modules stay: the garbage collector of a copy can skip them


def _leaves_a_nursery() -> bool:
    """Fork: one process runs what it was started for, the other (true) makes copies for it."""
    ours, theirs = socket.socketpair()
    nursery = os.fork() == 0
    if nursery:
        end_with_parent()
        for number in (0, 1):
            os.dup2(theirs.fileno(), number)
        ours.close()
    else:
        os.environ[NURSERY] = str(ours.detach())
    theirs.close()
    return nursery


def _settle_in(
    arguments: list[str], folder: str, environment: dict[str, str], out: str, log: str
) -> list[str]:
    """Set up the process as a new interpreter would be."""
    end_with_parent()
    for number, path in enumerate((os.devnull, out, log)):
        opened = os.open(path, os.O_WRONLY if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    others = sys.path[1 + len(_python_path(before)) :]
    sys.path = [os.getcwd(), *_python_path(environment), *others]
    return arguments


def _python_path(environment: Mapping[str, str]) -> list[str]:
    return environment.get("PYTHONPATH", "").split(os.pathsep)


def main() -> None:
    arguments = serve()
    if arguments:
        sys.argv = arguments
        sys.modules.pop(arguments[0], None)  # it runs again as the main program
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
