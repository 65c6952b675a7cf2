"""A client: `python -m chaos.client SEED` enqueues in all possible ways until it is killed.

It records each request before it sends it, and the answer afterwards.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from random import Random
from uuid import UUID

from chaos import app, ledger
from chaos.app import hf
from holdfast import (
    AlreadyRequeued,
    DuplicateJob,
    State,
    StoreError,
    WrongState,
)
from holdfast.domain.limits import PAYLOAD_BYTES_MAX
from holdfast.job_function import Call, JobFunction

WAITING_JOBS_MAX = 50
PAUSE_SECONDS_MAX = 0.12
BATCH_JOBS_MAX = 12
REMEMBERED = 200
DELAY_SECONDS_MAX = 2.0
LONG_SECONDS = 4.0  # longer than the lease
TASKS_AT_ONCE = 2


class Client:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._numbers = itertools.count(1)
        self._known: deque[UUID] = deque(maxlen=REMEMBERED)
        self._keys: deque[tuple[str, float]] = deque(maxlen=REMEMBERED)
        self._ways: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._enqueue_one, 6),
            (self._enqueue_many, 6),
            (self._enqueue_with_key, 4),
            (self._enqueue_with_id, 3),
            (self._enqueue_from_thread, 2),
            (self._enqueue_in_transaction, 2),
            (self._cancel, 2),
            (self._requeue, 1),
            (self._look, 4),
        ]

    async def run(self) -> None:
        async with hf:
            await asyncio.gather(*[self._go_on() for _ in range(TASKS_AT_ONCE)])

    async def _go_on(self) -> None:
        ways, weights = zip(*self._ways, strict=True)
        while True:
            await asyncio.sleep(self._random.uniform(0, PAUSE_SECONDS_MAX))
            try:
                if await self._is_wanted():
                    await self._random.choices(ways, weights)[0]()
            except (StoreError, OwnStatementFailed) as error:
                ledger.write("refused", how=str(error)[:200])
            except Exception as error:
                way = "/".join(frame.name for frame in traceback.extract_tb(error.__traceback__))
                ledger.write("surprise", how=f"{error!r} in {way}"[:500])

    async def _is_wanted(self) -> bool:
        """Keep some jobs waiting, and not more than the workers can do."""
        waiting = [each.jobs for each in await hf.jobs.counts() if each.state is State.QUEUED]
        return sum(waiting) < WAITING_JOBS_MAX

    def _ask(self, jobs: int, delay_seconds: float = 0.0, key: str = "") -> str:
        request = f"{os.getpid()}-{next(self._numbers)}"
        ledger.write("ask", request=request, jobs=jobs, delay_seconds=delay_seconds, key=key)
        return request

    def _told(self, request: str, ids: list[UUID]) -> None:
        ledger.write("told", request=request, ids=[str(each) for each in ids])
        self._known.extend(ids)

    async def _enqueue_one(self) -> None:
        delay_seconds = self._random.choice([0.0, 0.0, self._random.random() * DELAY_SECONDS_MAX])
        request = self._ask(1, delay_seconds)
        call = self._call(request, delay_seconds)
        self._told(request, [job.id for job in await hf.enqueue_many([call])])

    async def _enqueue_many(self) -> None:
        count = self._random.randint(2, BATCH_JOBS_MAX)
        request = self._ask(count)
        calls = [self._call(request) for _ in range(count)]
        self._told(request, [job.id for job in await hf.enqueue_many(calls)])

    async def _enqueue_with_key(self) -> None:
        """Use a new key, or one that was used before, twice at once."""
        if not self._keys or self._random.random() < 0.6:
            self._keys.append((f"{os.getpid()}-{next(self._numbers)}", self._random.random() / 5))
        key, seconds = self._random.choice(self._keys)

        async def enqueue() -> None:
            request = self._ask(1, key=key)
            keyed = app.work.options(correlation_id=request, idempotency_key=key)
            self._told(request, [(await keyed.enqueue(seconds)).id])

        await asyncio.gather(enqueue(), enqueue())

    async def _enqueue_with_id(self) -> None:
        """Choose the id, and ask again with the same one until there is an answer."""
        job_id = hf.new_id()
        request = self._ask(1)
        chosen = app.work.options(id=job_id, correlation_id=request)
        while True:
            try:
                await chosen.enqueue(self._random.random() / 5)
            except DuplicateJob:
                pass
            except StoreError as error:
                ledger.write("refused", how=str(error)[:200])
                await asyncio.sleep(PAUSE_SECONDS_MAX)
                continue
            self._told(request, [job_id])
            return

    async def _enqueue_from_thread(self) -> None:
        request = self._ask(1)
        job = await asyncio.to_thread(hf.enqueue_many_sync, [self._call(request)])
        self._told(request, [job[0].id])

    async def _enqueue_in_transaction(self) -> None:
        """Write an order and its job together, or take both back."""
        takes_back = self._random.random() < 0.3
        request = self._ask(1)
        try:
            async with hf.transaction() as connection:
                try:
                    await connection.execute("INSERT INTO orders VALUES ($1)", request)
                except Exception as error:  # an application's statement raises what its driver does
                    raise OwnStatementFailed(str(error)) from error
                chosen = app.work.options(connection=connection, correlation_id=request)
                job = await chosen.enqueue(0.05)
                if takes_back:
                    raise TookBack
            self._told(request, [job.id])
        except TookBack:
            ledger.write("undone", request=request)

    async def _cancel(self) -> None:
        if self._known:
            job_id = self._random.choice(self._known)
            ledger.write("cancel", job=str(job_id))
            try:
                await hf.jobs.cancel(job_id)
            except WrongState:
                return
            ledger.write("canceled", job=str(job_id))

    async def _requeue(self) -> None:
        if self._known:
            try:
                made = await hf.jobs.requeue(self._random.choice(self._known), again=False)
            except (WrongState, AlreadyRequeued):
                return
            ledger.write("requeued", ids=[str(made.id)])

    async def _look(self) -> None:
        """What was seen to have ended must stay as it was."""
        if self._known:
            job = await hf.get(self._random.choice(self._known))
            if job.state.ended:
                ledger.write("seen", job=str(job.id), how=job.state, fence=job.fence)

    def _call(self, request: str, delay_seconds: float = 0.0) -> Call:
        """A job of any kind."""
        random = self._random
        priority = random.choice([0, 0, 0, -5, 5])
        small = random.random() / 4
        long = random.choice([small, 1.0, 2.0, LONG_SECONDS])
        choices: list[tuple[JobFunction[..., object], tuple[object, ...], int]] = [
            (app.work, (small,), 20),
            (app.work, (long,), 10),
            (app.work_in_thread, (long,), 10),
            (app.work_in_child, (small,), 5),
            (app.work_under_a_cap, (small,), 3),
            (app.carry, ("x" * random.choice([10, 10_000, PAYLOAD_BYTES_MAX - 1000]),), 3),
            (app.fail, (random.randint(1, 3),), 5),
            (app.snooze, (time.monotonic() + 1,), 3),
            (app.depend, (), 10),
            (app.pay, (random.choice([small, 1.0]),), 15),
            (app.pay_in_thread, (), 10),
            (app.order, (), 10),
            (app.block, (1.0,), 1),
            (app.hold_the_interpreter, (small,), 1),
            (app.overrun, (), 1),
            (app.refuse, (), 2),
            (app.kill, (), 1),
            (app.kill_child, (), 1),
        ]
        job, arguments, _ = random.choices(choices, [weight for *_, weight in choices])[0]
        chosen = job.options(
            correlation_id=request, priority=priority, delay_seconds=delay_seconds or None
        )
        return chosen.call(*arguments)


class TookBack(Exception):
    pass


class OwnStatementFailed(Exception):
    pass


if __name__ == "__main__":
    asyncio.run(Client(Random(int(sys.argv[1]))).run())
