"""What a job costs at each step, and what a worker costs that has nothing to do: the numbers from
which `docs/guides/scale.md` calculates."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import asyncpg

from bench.cases import Measuring
from bench.driver import Driver, Subject
from bench.machine import cpu_seconds

ONE_BY_ONE_JOBS = 3000
BULK_JOBS = 50_000
PROCESSES = 16
IDLE_WORKERS = 4
IDLE_SECONDS = 30.0
SETTLE_SECONDS = 3.0  # for a worker to find that there is nothing to do
COUNTERS = """
SELECT
    (pg_current_wal_lsn() - '0/0')::bigint AS wal_bytes,
    (SELECT wal_sync FROM pg_stat_wal) AS syncs
"""
KEPT = """
SELECT sum(pg_total_relation_size(relid))::bigint
FROM pg_partition_tree('holdfast.history') WHERE isleaf
"""
CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@dataclass
class Spent:
    """Between two moments."""

    client_cpu_seconds: float = 0.0
    server_cpu_seconds: float = 0.0
    wal_bytes: int = 0
    syncs: int = 0


def costs(measuring: Measuring, subject: Subject) -> None:
    with measuring.driving(subject, "costs of a job") as driver:
        start_up = _client_cpu_seconds(driver, "bulk", 1)
        for step, verb, jobs in (
            ("enqueue", "enqueue", ONE_BY_ONE_JOBS),
            ("bulk", "bulk", BULK_JOBS),
        ):
            with _spending(measuring, driver) as spent:
                spent.client_cpu_seconds = _client_cpu_seconds(driver, verb, jobs) - start_up
            _add(measuring, subject, step, spent, jobs)
        side_by_side = PROCESSES * ONE_BY_ONE_JOBS
        with _spending(measuring, driver) as spent:
            spent.client_cpu_seconds = _enqueue_side_by_side(driver) - PROCESSES * start_up
        _add(measuring, subject, f"enqueue by {PROCESSES}", spent, side_by_side)
        jobs = 1 + ONE_BY_ONE_JOBS + BULK_JOBS + side_by_side
        with _spending(measuring, driver) as spent:
            spent.client_cpu_seconds = driver.drain(jobs).worker_cpu_seconds
        _add(measuring, subject, "drain", spent, jobs)
        kept = asyncio.run(_value(driver.url, KEPT))
        measuring.add(subject, "kept in the history", kept / jobs, "bytes/job")
        _idle(measuring, driver)


def _client_cpu_seconds(driver: Driver, verb: str, jobs: int) -> float:
    before = _children_cpu_seconds()
    driver.ask(verb, jobs)
    return _children_cpu_seconds() - before


def _children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _enqueue_side_by_side(driver: Driver) -> float:
    """In several processes, whose commits share syncs."""
    before = _children_cpu_seconds()
    with ThreadPoolExecutor(PROCESSES) as threads:
        list(threads.map(lambda _: driver.ask("enqueue", ONE_BY_ONE_JOBS), range(PROCESSES)))
    return _children_cpu_seconds() - before


@contextmanager
def _spending(measuring: Measuring, driver: Driver) -> Iterator[Spent]:
    spent = Spent()
    asyncio.run(_checkpoint(driver.url))
    server = measuring.place.server_pid
    before = asyncio.run(_row(driver.url, COUNTERS))
    cpu = cpu_seconds(server)
    yield spent
    spent.server_cpu_seconds = cpu_seconds(server) - cpu
    after = asyncio.run(_row(driver.url, COUNTERS))
    spent.wal_bytes = after["wal_bytes"] - before["wal_bytes"]
    spent.syncs = after["syncs"] - before["syncs"]


def _add(measuring: Measuring, subject: Subject, step: str, spent: Spent, jobs: int) -> None:
    for what, value, unit in (
        ("client CPU", spent.client_cpu_seconds / jobs * 1e6, "µs/job"),
        ("server CPU", spent.server_cpu_seconds / jobs * 1e6, "µs/job"),
        ("WAL", spent.wal_bytes / jobs, "bytes/job"),
        ("syncs", spent.syncs / jobs * 1000, "per 1,000 jobs"),
    ):
        measuring.add(subject, f"{step}, {what}", value, unit)


def _idle(measuring: Measuring, driver: Driver) -> None:
    with driver.working(IDLE_WORKERS) as workers:
        time.sleep(SETTLE_SECONDS)
        connections = asyncio.run(_value(driver.url, CONNECTIONS))
        pids = [measuring.place.server_pid, *(worker.pid for worker in workers)]
        before = [cpu_seconds(pid) for pid in pids]
        wal = asyncio.run(_row(driver.url, COUNTERS))["wal_bytes"]
        time.sleep(IDLE_SECONDS)
        server, *own = (cpu_seconds(pid) - began for pid, began in zip(pids, before, strict=True))
        wal = asyncio.run(_row(driver.url, COUNTERS))["wal_bytes"] - wal
    for what, value, unit in (
        ("connections", connections, "per worker"),
        ("server CPU", server / IDLE_SECONDS * 1000, "ms/s per worker"),
        ("worker CPU", sum(own) / IDLE_SECONDS * 1000, "ms/s per worker"),
        ("WAL", wal / IDLE_SECONDS, "bytes/s per worker"),
    ):
        measuring.add(driver.subject, f"idle, {what}", value / IDLE_WORKERS, unit)


async def _checkpoint(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def _row(url: str, sql: str) -> dict[str, int]:
    connection = await asyncpg.connect(url)
    try:
        return dict(await connection.fetchrow(sql))
    finally:
        await connection.close()


async def _value(url: str, sql: str) -> int:
    (value,) = (await _row(url, sql)).values()
    return value
