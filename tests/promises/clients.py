"""The client processes: `python -m tests.promises.clients FUNCTION [JSON ARGUMENT ...]`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterable
from itertools import count
from random import Random
from uuid import UUID

from holdfast import Job, StoreUnavailable
from tests.promises.app import hf, jobs
from tests.promises.handlers import folder
from tests.support.processes import LOOK_SECONDS, wait_until

BATCH_JOBS = 10


def say(line: str) -> None:
    """Write a line in one piece, without a buffer that a kill would lose."""
    os.write(1, f"{line}\n".encode())


def acknowledge(enqueued: Iterable[Job]) -> None:
    say("\n".join(str(job.id) for job in enqueued))


async def enqueue_one_by_one() -> None:
    while True:
        acknowledge([await jobs.quick.enqueue(1)])


async def enqueue_batches() -> None:
    while True:
        acknowledge(await hf.enqueue_many([jobs.quick.call(number) for number in range(20)]))


async def enqueue_with_keys() -> None:
    number = 0
    while True:
        number += 1
        key = f"{os.getpid()}-{number}"
        acknowledge([await jobs.quick.options(idempotency_key=key).enqueue(number)])


async def enqueue_at_once() -> None:
    await asyncio.gather(*[enqueue_one_by_one() for _ in range(20)])


async def enqueue_from_plain_code() -> None:
    while True:
        acknowledge([await asyncio.to_thread(jobs.quick.enqueue_sync, 1)])


async def enqueue_through_failures() -> None:
    """Enqueue batches, each with its own correlation ID, and continue after errors."""
    for number in count():
        batch = jobs.quick.options(correlation_id=f"{os.getpid()}-{number}")
        try:
            acknowledge(await hf.enqueue_many([batch.call(each) for each in range(BATCH_JOBS)]))
        except StoreUnavailable as error:
            os.write(2, f"{error}\n".encode())
        await asyncio.sleep(LOOK_SECONDS)


async def enqueue_and_die() -> None:
    """Get killed at the moment of the acknowledgment."""
    async with hf:
        acknowledge([await jobs.quick.enqueue(1)])
        os.kill(os.getpid(), signal.SIGKILL)


async def race_for_keys(keys: list[str], seed: int) -> None:
    """Enqueue a job for each key, at the same time as all others that wait for the gate."""
    async with hf:
        say("ready")
        await wait_until((folder() / "go").exists, "told to go")
        Random(seed).shuffle(keys)
        made = await asyncio.gather(
            *[jobs.quick.options(idempotency_key=key).enqueue(len(key)) for key in keys]
        )
        for key, job in zip(keys, made, strict=True):
            say(f"{key} {job.id}")


def ids(lines: Iterable[str]) -> list[UUID]:
    return [UUID(line) for line in lines]


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*map(json.loads, sys.argv[2:])))
