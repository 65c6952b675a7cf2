"""The processes of a demo: servers on free ports, and workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0


class ProcessFailed(Exception):
    """A process of a demo did not start."""


class Running:
    """A process and its descendants, with its log."""

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    async def stop(self) -> None:
        """Send SIGTERM, then SIGKILL if the process does not end."""
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS_MAX)
        except TimeoutError:
            self.kill()
            await self._process.wait()

    def _signal(self, which: signal.Signals) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(self.pid, which)


class Service(Running):
    """A server that prints its address when it starts."""

    address: str = ""

    async def read_address(self) -> None:
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), START_SECONDS_MAX)
            self.address = json.loads(line)["address"]
        except (TimeoutError, ValueError, KeyError) as error:
            await self.stop()
            lines = self.log.read_text("utf-8", "replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
            raise ProcessFailed(f"{self.name} did not start: {last}") from error


async def spawn(command: Sequence[str], env: Mapping[str, str], log: Path, output: int) -> Process:
    """Run a Python module in its own process group; its stderr goes to the log."""
    with log.open("ab") as errors:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *command,
            env={**os.environ, **env},
            stdin=DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
