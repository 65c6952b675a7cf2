"""Processes that a demonstration starts and stops: servers on free ports, and workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0


class ProcessFailed(Exception):
    """A process of a demonstration did not start."""


class Running:
    """A process, with all that it started in turn."""

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    def kill(self) -> None:
        """End it as a crash does."""
        self._signal(signal.SIGKILL)

    async def stop(self) -> None:
        """Ask it to end, and make it end if it does not."""
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS_MAX)
        except TimeoutError:
            self.kill()
            await self._process.wait()

    async def wait(self) -> int:
        return await self._process.wait()

    def _signal(self, which: signal.Signals) -> None:
        if not self.has_ended:
            # It may have ended just now, and been waited for by somebody else.
            with suppress(ProcessLookupError):
                os.killpg(self.pid, which)


class Service(Running):
    """A server that told its address."""

    address: str = ""

    async def read_address(self) -> None:
        if self._process.stdout is None:
            raise ProcessFailed(f"{self.name} has no output")
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), START_SECONDS_MAX)
            self.address = json.loads(line)["address"]
        except (TimeoutError, ValueError, KeyError) as error:
            await self.stop()
            lines = self.log.read_text("utf-8", "replace").split("\n")
            said = next((line.strip() for line in reversed(lines) if line.strip()), "no word")
            raise ProcessFailed(f"{self.name} did not start: {said}") from error


async def start_service(
    name: str, module: str, folder: Path, env: Mapping[str, str], arguments: Sequence[str]
) -> Service:
    log = folder / f"{name}.log"
    command = ["-m", module, *arguments]
    return Service(name, await _spawn(command, env, log, PIPE), log)


async def start_worker(
    name: str, target: str, folder: Path, env: Mapping[str, str], options: Sequence[str]
) -> Running:
    log = folder / f"{name}.log"
    command = ["-m", "holdfast.cli.main", "worker", target, "--log-format=json", *options]
    return Running(name, await _spawn(command, env, log, DEVNULL), log)


async def _spawn(command: Sequence[str], env: Mapping[str, str], log: Path, output: int) -> Process:
    with log.open("ab") as errors:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            env={**os.environ, **env},
            stdin=DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
