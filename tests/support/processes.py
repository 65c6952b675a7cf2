"""Real processes that can be signaled, and bounded waits for what they do.

Nothing here waits for a fixed time: a wait ends with its condition, or fails at its deadline.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import holdfast
from tests.support import forks
from tests.support.forks import Copy, Nursery, fit_for_a_copy, start

ROOT = forks.ROOT
LOOK_SECONDS = 0.01
LOOK_SECONDS_MAX = 0.05  # check less often what takes long: checks cost CPU time
PROGRAM_SECONDS_MAX = 200.0
# For whatever should happen. More costs nothing when it does, and a busy machine is slow.
WAIT_SECONDS = float(os.environ.get("HOLDFAST_TEST_WAIT_SECONDS", "240"))
SECRET_KEYS = "HOLDFAST_SECRET_KEYS"  # tests/conftest.py makes them
PATH = [str(Path(holdfast.__file__).parent.parent), str(ROOT)]
MODULES = [
    "asyncpg",
    "holdfast.cli.dead",
    "holdfast.cli.jobs",
    "holdfast.cli.main",
    "holdfast.cli.worker",
    "holdfast.stores.postgres",
    "holdfast.stores.sqlite",
    "rich.table",
    "uvloop",
]
NURSERY = Nursery(PATH, MODULES)


async def turn() -> None:
    """Let everything that is ready in this turn of the loop run."""
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    await turned.wait()


async def poll(condition: Callable[[], object]) -> None:
    """For handlers: check until the condition is true, however long that takes."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(LOOK_SECONDS_MAX)


def poll_blocking(condition: Callable[[], object]) -> None:
    """The same, blocking the event loop."""
    while not condition():
        threading.Event().wait(LOOK_SECONDS_MAX)  # time.sleep fails where the clock is faked


async def wait_until(
    condition: Callable[[], object],
    what: str | Callable[[], str],
    seconds: float = WAIT_SECONDS,
) -> None:
    """Wait until the condition, async or not, returns something true."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    look_seconds = LOOK_SECONDS
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        assert loop.time() < deadline, (
            f"after {seconds:g} s: not {what if isinstance(what, str) else what()}"
        )
        await asyncio.sleep(look_seconds)
        look_seconds = min(1.5 * look_seconds, LOOK_SECONDS_MAX)


class Process:
    """A process of this Python, with the code that the test itself runs on."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        written: Path | None = None,
    ) -> None:
        """Start it in this folder. Its output is written there, or to `written`."""
        self.name = name
        self._out = (written or folder) / f"{name}.out"
        self._log = (written or folder) / f"{name}.log"
        inherited = {
            key: value
            for key, value in os.environ.items()
            if "HOLDFAST_" not in key or key == SECRET_KEYS
        }
        basics = {"PYTHONPATH": os.pathsep.join(PATH), "PYTHONUNBUFFERED": "1"}
        variables = {**inherited, **basics, **environment}
        where = (folder, variables, self._out, self._log)
        self._process: Copy | subprocess.Popen[bytes]
        if fit_for_a_copy(command, environment):
            self._process = NURSERY.run_module(command[1:], *where)
        else:
            self._process = start(command, *where)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        """Block this thread until it has ended; return the exit code."""
        return self._process.wait(seconds)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def is_stopped(self) -> bool:
        return is_stopped(self.pid)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    async def ended(self, seconds: float = WAIT_SECONDS) -> int:
        await wait_until(
            lambda: self.code is not None, lambda: f"ended: {self.name}\n{self.text}", seconds
        )
        assert self.code is not None
        return self.code

    @property
    def output(self) -> list[str]:
        """Its output, whole lines only: a kill may cut off the last one."""
        text = self.printed
        return text[: text.rfind("\n") + 1].splitlines()

    @property
    def printed(self) -> str:
        return self._out.read_text(encoding="utf-8")

    @property
    def text(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def events(self, name: str) -> list[dict[str, Any]]:
        """The events of this name in its log."""
        found = []
        for line in self.text.splitlines():
            if name in line and line.startswith("{") and line.endswith("}"):
                event = json.loads(line)
                if event.get("event") == name:
                    found.append(event)
        return found

    async def logs(self, name: str, seconds: float = WAIT_SECONDS) -> dict[str, Any]:
        """Wait for an event with this name; return the first one."""
        await wait_until(
            lambda: self.events(name), lambda: f"{name} in the log:\n{self.text}", seconds
        )
        return self.events(name)[0]

    async def prints(self, lines: int = 1) -> None:
        """Wait until it has printed this many lines."""
        await wait_until(
            lambda: len(self.output) >= lines, lambda: f"printed by {self.name}: {self.text}"
        )


async def freeze(process_id: int, url: str) -> None:
    """Stop the process, but not while it has the SQLite file locked."""
    while True:
        os.kill(process_id, signal.SIGSTOP)
        # A thread in a system call finishes that first, and the call may take a lock.
        await wait_until(lambda: is_stopped(process_id), "stopped")
        if not url.startswith("sqlite:///") or _is_writable(url):
            return
        os.kill(process_id, signal.SIGCONT)


def is_stopped(process_id: int) -> bool:
    """Are all of its threads stopped?"""
    stats = Path(f"/proc/{process_id}/task").glob("*/stat")
    try:
        return all(stat.read_text().rpartition(") ")[2].startswith("T") for stat in stats)
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread has just ended


def _is_writable(url: str) -> bool:
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=0.3, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True
