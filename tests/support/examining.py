"""Examine a database, with the function or the command, and follow the advice."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from holdfast import Check, Examination, Finding, Holdfast, Severity
from holdfast.runtime.seam import Seam
from tests.support.command import run_command
from tests.support.processes import wait_until
from tests.support.running import execute

SHELL = [sys.executable, "-m", "holdfast.cli.main"]


class Command(NamedTuple):
    code: int
    text: str

    @property
    def findings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.text)["findings"]
        return found


def surroundings(url: str | None = None, **others: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    return {**kept, **({"HOLDFAST_DATABASE_URL": url} if url else {}), **others}


async def doctor(url: str, *words: str, environment: Mapping[str, str] | None = None) -> Command:
    done = await asyncio.to_thread(
        run_command, "doctor", *words, folder=Path.cwd(), url=url, environment=environment
    )
    return Command(done.returncode, done.stdout)


def of(found: Examination, code: Check) -> list[Finding]:
    return [each for each in found.findings if each.code is code]


def the(found: Examination, code: Check) -> Finding:
    (finding,) = of(found, code)
    return finding


async def look(hf: Holdfast, code: Check, **options: float) -> Finding:
    return the(await hf.examine(**options), code)


async def paste(url: str, sql: str | None) -> None:
    """Follow the advice on a new connection, outside a transaction."""
    assert sql is not None
    if url.startswith("sqlite"):
        await execute(url, sql)
        return
    connection = await asyncpg.connect(url)
    try:
        for statement in filter(None, sql.split(";")):
            await connection.execute(statement)
    finally:
        await connection.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


class Hurried(Seam):
    """A machine on whose clock everything takes long."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds = count(0.0, 4.0)

    def monotonic(self) -> float:
        return next(self._seconds)


async def all_fine(hf: Holdfast) -> Examination:
    """Wait until every finding is OK: a busy machine may be slow for a moment."""
    found = await hf.examine()

    async def fine() -> bool:
        nonlocal found
        found = await hf.examine()
        return all(each.severity is Severity.OK for each in found.findings)

    await wait_until(fine, lambda: f"fine: {found}")
    return found


async def in_shell(command: str | None) -> None:
    """Follow the advice in a shell."""
    assert command is not None
    await asyncio.to_thread(
        subprocess.run, command, shell=True, check=True, stdout=subprocess.DEVNULL
    )
