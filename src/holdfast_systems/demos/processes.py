"""The processes of a demo: servers on free ports, and workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

LOOK_SECONDS = 0.05
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

    @property
    def last_line(self) -> str:
        """What it has logged last."""
        lines = self.log.read_text("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "no output")

    async def ended(self) -> None:
        await self._process.wait()

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


class Server(Running):
    """A server that says its address when it starts."""

    address: str = ""

    async def read_address(self) -> None:
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                self.address = await self._read_address()
        except (TimeoutError, EOFError, ValueError, KeyError) as error:
            await self.stop()
            raise ProcessFailed(f"{self.name} did not start: {self.last_line}") from error

    async def _read_address(self) -> str:
        raise NotImplementedError


class Service(Server):
    """A server of the systems: its address is the first line that it prints."""

    async def _read_address(self) -> str:
        assert self._process.stdout is not None
        address: str = json.loads(await self._process.stdout.readline())["address"]
        return address


class Api(Server):
    """`holdfast serve`: its address is in its log."""

    async def _read_address(self) -> str:
        while self._process.returncode is None:
            for line in self.log.read_text("utf-8").splitlines():
                if '"event": "serving"' in line and line.endswith("}"):
                    return str(json.loads(line)["message"])
            await asyncio.sleep(LOOK_SECONDS)
        raise EOFError


def free_port(first: int) -> int:
    """This port or, if it is taken, any other."""
    for port in (first, 0):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as listening:
            return int(listening.getsockname()[1])
    return 0


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
