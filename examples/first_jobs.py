"""A few jobs, end to end, on an SQLite file: what `make run` shows.

One succeeds, one fails on its first attempt and is tried again, one can never succeed, one is
enqueued twice with the same idempotency key and runs once.
"""

from __future__ import annotations

import asyncio
import getpass
import sys
import tempfile
import zlib
from datetime import date
from decimal import Decimal
from pathlib import Path

from rich.console import Console
from rich.table import Table

from holdfast import Context, Holdfast, Job, Permanent, Retry, State

DATABASE = Path(tempfile.gettempdir()) / f"holdfast-first-jobs-{getpass.getuser()}.db"
hf = Holdfast(f"sqlite:///{DATABASE}")


@hf.job
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}!"


@hf.job(queue="numbers")
def count_primes(ctx: Context, below: int) -> int:
    """A plain function runs in a thread; it reports how far it is, and can be told to stop."""
    sieve = bytearray([1]) * below
    sieve[:2] = b"\0\0"
    for number in range(2, int(below**0.5) + 1):
        if ctx.cancelled:
            raise RuntimeError("told to stop")
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, below, number)))
    ctx.progress_sync({"sieved": below})
    return sum(sieve)


@hf.job(retry=Retry.schedule([0.2, 0.5]))
async def unsteady(ctx: Context) -> str:
    if ctx.attempt == 1:
        raise ConnectionError("the other side hung up")
    return f"worked on attempt {ctx.attempt}"


@hf.job
async def charge(ctx: Context, amount: Decimal, due: date) -> dict[str, str]:
    if amount <= 0:
        raise Permanent(f"can't charge {amount}", code="VALIDATION_ERROR")
    return {"charged": str(amount), "due": due.isoformat()}


@hf.job
async def checksum(ctx: Context, text: str) -> int:
    return zlib.crc32(text.encode())


async def enqueue_all() -> list[tuple[Job, State]]:
    """Enqueue the jobs; the answer names the state in which each should end."""
    keyed = checksum.options(idempotency_key="only-once")
    first = await keyed.enqueue("the same text")
    second = await keyed.enqueue("the same text")
    if first.id != second.id:
        raise RuntimeError("one key made two jobs")
    return [
        (await greet.enqueue("world"), State.SUCCEEDED),
        (await count_primes.enqueue(below=1_000_000), State.SUCCEEDED),
        (await unsteady.enqueue(), State.SUCCEEDED),
        (await charge.enqueue(Decimal("19.90"), due=date(2027, 1, 31)), State.SUCCEEDED),
        (await charge.enqueue(Decimal("-5"), due=date(2027, 1, 31)), State.FAILED),
        (first, State.SUCCEEDED),
    ]


async def main() -> int:
    console = Console()
    async with hf:
        expected = await enqueue_all()
        with console.status("running the jobs"):
            await hf.run_worker(until_empty=True)
        jobs = [await hf.get(job.id) for job, _ in expected]
    console.print(make_table(jobs))
    console.print(f"Look closer: [bold]HOLDFAST_DATABASE_URL={hf.url_shown} holdfast jobs list[/]")
    as_expected = [job.state is state for job, (_, state) in zip(jobs, expected, strict=True)]
    return 0 if all(as_expected) else 1


def make_table(jobs: list[Job]) -> Table:
    table = Table(title="First jobs")
    for column in ("job", "queue", "state", "attempts", "result or error"):
        table.add_column(column)
    for job in jobs:
        colour = "green" if job.state is State.SUCCEEDED else "red"
        outcome = str(job.result) if job.error_code is None else f"{job.error_code}"
        attempts = f"{job.attempts} of {job.max_attempts}"
        table.add_row(job.name, job.queue, f"[{colour}]{job.state}[/]", attempts, outcome)
    return table


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
