"""One database, and real processes that use it."""

from __future__ import annotations

import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast import Holdfast, Job, State
from tests.promises.handlers import FOLDER, Jobs
from tests.support.processes import WAIT_SECONDS, Process, wait_until

# For tests that wait for leases to expire: the other PostgreSQL behaves the same there.
both_stores = pytest.mark.parametrize("store_url", ["sqlite", "pg15"], indirect=True)
# Also through a pooler in transaction mode: only for a few tests, because all would take minutes.
every_way = pytest.mark.parametrize(
    "store_url",
    ["sqlite", "pg15", pytest.param("bouncer", marks=pytest.mark.slow)],
    indirect=True,
)
# No lease expires on its own, however busy the machine is: see `let_run_out`.
LEASE_SECONDS = 120.0
RENEW_SECONDS = 0.5
RECLAIM_SECONDS = 0.3
LEASE = {"lease_seconds": LEASE_SECONDS, "renew_seconds": RENEW_SECONDS}
Entry = dict[str, Any]


class Stage:
    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.is_sqlite = url.startswith("sqlite")
        self.hf = Holdfast(url)
        self.jobs = Jobs(self.hf)
        self.processes: list[Process] = []
        self._entries: list[Entry] = []
        self._bytes_read = 0

    def worker(
        self,
        *arguments: str,
        concurrency: int = 10,
        app: str = "app:hf",
        environment: Mapping[str, str] | None = None,
        inside: Sequence[str] = (),
        **settings: float,
    ) -> Process:
        """Start `holdfast worker`, `inside` another command if there is one. With `lease_seconds`,
        leases are renewed every third of their length."""
        lease = {} if "lease_seconds" in settings else LEASE
        chosen = {**lease, "reclaim_seconds": RECLAIM_SECONDS, **settings}
        variables = {f"HOLDFAST_{name.upper()}": str(value) for name, value in chosen.items()}
        command = [*inside, "-m", "holdfast.cli.main", "worker", f"tests.promises.{app}"]
        options = ["--log-format=json", "--log-level=debug", f"--concurrency={concurrency}"]
        return self._start(
            f"worker-{len(self.processes)}",
            [*command, *options, *arguments],
            variables | dict(environment or {}),
        )

    def client(self, function: str, *arguments: object, module: str = "clients") -> Process:
        """Start a process that runs a function of a module of these tests."""
        words = [json.dumps(argument) for argument in arguments]
        name = f"client-{len(self.processes)}"
        return self._start(name, ["-m", f"tests.promises.{module}", function, *words], {})

    def _start(self, name: str, command: list[str], environment: dict[str, str]) -> Process:
        basics = {"HOLDFAST_DATABASE_URL": self.url, FOLDER: str(self.folder)}
        process = Process(name, command, self.folder, basics | environment)
        self.processes.append(process)
        return process

    def open_gate(self, name: str) -> None:
        (self.folder / name).touch()

    def close_gate(self, name: str) -> None:
        (self.folder / name).unlink()

    def ledger(self, what: str | None = None, job: UUID | None = None) -> list[Entry]:
        """What the handlers recorded, in order."""
        path = self.folder / "ledger"
        if path.exists():
            with path.open("rb") as ledger:
                ledger.seek(self._bytes_read)
                data = ledger.read()
            whole = data[: data.rfind(b"\n") + 1]  # a reader may see half of a line
            self._entries += [json.loads(line) for line in whole.splitlines()]
            self._bytes_read += len(whole)
        return [
            entry
            for entry in self._entries
            if what in (None, entry["what"]) and (job is None or entry["job"] == str(job))
        ]

    def by_job(self, what: str) -> dict[str, list[Entry]]:
        grouped: defaultdict[str, list[Entry]] = defaultdict(list)
        for entry in self.ledger(what):
            grouped[entry["job"]].append(entry)
        return grouped

    async def noted(
        self, what: str, job: UUID | None = None, times: int = 1, seconds: float = WAIT_SECONDS
    ) -> Entry:
        """Wait until the handlers have recorded this entry this many times; return the last one."""
        await wait_until(
            lambda: len(self.ledger(what, job)) >= times,
            lambda: f"{what} {times} times: {self.logs()}",
            seconds,
        )
        return self.ledger(what, job)[times - 1]

    async def ended(self, *jobs: Job, seconds: float = WAIT_SECONDS) -> list[Job]:
        """Wait until these jobs have ended; answer them as they are then."""
        found = []
        for job in jobs:
            await wait_until(
                partial(self._has_ended, job.id), lambda: f"ended: {self.logs()}", seconds
            )
            found.append(await self.hf.get(job.id))
        return found

    async def _has_ended(self, job_id: UUID) -> bool:
        return (await self.hf.get(job_id)).state.ended

    async def let_run_out(self, *jobs: Job) -> None:
        """Expire the leases of workers that are gone, and wait until others reclaim the jobs."""
        held = [await self.hf.get(job.id) for job in jobs]
        await wait_until(partial(self._are_taken_back, held), lambda: f"taken back: {self.logs()}")

    async def _are_taken_back(self, held: list[Job]) -> bool:
        found = [await self.hf.get(job.id) for job in held]
        left = [now for now, job in zip(found, held, strict=True) if now.fence == job.fence]
        # The last renewal of a worker that was killed may come after its death.
        leases = " OR ".join(
            f"id = '{job.id}' AND fence = {job.fence}"
            for job in left
            if job.lease_expires_at is not None and job.lease_expires_at > job.run_at
        )
        if leases:
            await self.fetch(f"UPDATE jobs SET lease_expires_at = run_at WHERE {leases}")
        return all(job.state is not State.RUNNING for job in left)

    def logs(self) -> str:
        return "\n".join(f"{each.name}: {each.text[-2000:]}" for each in self.processes)

    async def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement beside the engine, on tables that are named alike everywhere."""
        if self.is_sqlite:
            path = self.url.removeprefix("sqlite:///")
            with closing(sqlite3.connect(path, timeout=WAIT_SECONDS)) as connection, connection:
                return connection.execute(sql).fetchall()
        connection = await asyncpg.connect(self.url, statement_cache_size=0)
        try:
            async with connection.transaction():  # what a pooler keeps together
                await connection.execute("SET LOCAL search_path = holdfast")
                return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    async def record(self, job_id: UUID) -> list[tuple[Any, ...]]:
        """Everything in the database about a job: its row, live or ended, and its attempts."""
        rows = await self.fetch(f"SELECT * FROM jobs WHERE id = '{job_id}'")
        rows += await self.fetch(f"SELECT * FROM history WHERE id = '{job_id}'")
        return rows + await self.fetch(
            f"SELECT * FROM attempts WHERE job_id = '{job_id}' ORDER BY fence"
        )

    async def close(self) -> None:
        for process in self.processes:
            process.kill()
        await self.hf.close()


def in_time() -> timedelta:
    """How long after its lease a dead worker's job may start again: six seconds, on a machine that
    has no more to do than it can."""
    waiting_per_core = os.getloadavg()[0] / (os.cpu_count() or 1)
    return timedelta(seconds=6 * max(1.0, waiting_per_core))


def random_seed() -> int:
    """A new seed for each run. Pytest shows it when a test fails."""
    return int.from_bytes(os.urandom(4), "big")
