"""Jobs of concurrent requests, recorded together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.api.intake import Intake
from holdfast.domain.errors import DuplicateJob, IdempotencyConflict, StoreUnavailable
from holdfast.domain.job import NewJob, Receipt
from holdfast.stores.protocol import Store
from tests.support.api import served
from tests.support.around import Around
from tests.support.processes import turn
from tests.support.running import QUICK

CLIENTS = 50


class Noting(Around):
    """Notes how many jobs each transaction records, and can be made to wait or fail."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.sizes: list[int] = []
        self.goes_on = asyncio.Event()
        self.error: Exception | None = None

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        self.sizes.append(len(jobs))
        await self.goes_on.wait()
        if self.error is not None:
            raise self.error
        receipts: Sequence[Receipt] = await self.store.enqueue(jobs)
        return receipts


@asynccontextmanager
async def noted(hf: Holdfast) -> AsyncIterator[tuple[Intake, Noting]]:
    store = Noting(await hf._store())

    async def find() -> Store:
        return store

    yield Intake(find), store


def new_job(hf: Holdfast, **options: Any) -> NewJob:
    return NewJob(id=hf.new_id(), name="job", arguments=b"{}", **options)


async def recording(intake: Intake, jobs: Sequence[NewJob]) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.create_task(intake.record([job])) for job in jobs]
    await turn()
    await turn()
    return tasks


async def test_what_comes_in_meanwhile_is_recorded_in_one_transaction(hf: Holdfast) -> None:
    async with noted(hf) as (intake, store):
        jobs = [new_job(hf) for _ in range(CLIENTS)]
        tasks = await recording(intake, jobs[:1])
        tasks += await recording(intake, jobs[1:])
        store.goes_on.set()
        for job, task in zip(jobs, tasks, strict=True):
            assert await task == [Receipt(job.id, created=True)]
            assert await store.get(job.id) is not None
        assert store.sizes == [1, CLIENTS - 1]
        assert await intake.record([new_job(hf)])
        assert store.sizes == [1, CLIENTS - 1, 1]


async def test_only_the_job_that_is_refused_suffers_for_it(hf: Holdfast) -> None:
    async with noted(hf) as (intake, store):
        taken = new_job(hf, id_is_chosen=True)
        keyed = {"idempotency_key": "k", "key_kept_seconds": 60.0}
        store.goes_on.set()
        await intake.record([taken])
        good = [new_job(hf) for _ in range(3)]
        tasks = await recording(
            intake,
            [
                good[0],
                taken,
                new_job(hf, **keyed, body_hash=b"a"),
                good[1],
                new_job(hf, **keyed, body_hash=b"b"),
                good[2],
            ],
        )
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in found] == [
            list, DuplicateJob, list, list, IdempotencyConflict, list,
        ]  # fmt: skip
        for job in good:
            assert await store.get(job.id) is not None


async def test_if_the_database_is_down_nothing_is_tried_twice(local_hf: Holdfast) -> None:
    async with noted(local_hf) as (intake, store):
        store.error = StoreUnavailable("the answer to the commit was lost")
        tasks = await recording(intake, [new_job(local_hf)])
        tasks += await recording(intake, [new_job(local_hf) for _ in range(5)])
        store.goes_on.set()
        for task in tasks:
            with pytest.raises(StoreUnavailable):
                await task
        assert store.sizes == [1, 5]


async def test_a_client_that_goes_away_takes_no_other_job_with_it(local_hf: Holdfast) -> None:
    async with noted(local_hf) as (intake, store):
        jobs = [new_job(local_hf) for _ in range(3)]
        tasks = await recording(intake, jobs)
        tasks[0].cancel()
        tasks[1].cancel()
        await turn()
        store.goes_on.set()
        assert await tasks[2] == [Receipt(jobs[2].id, created=True)]


async def test_concurrent_requests_are_all_answered_with_their_own_job(store_url: str) -> None:
    hf = Holdfast(store_url, **QUICK)

    @hf.job
    async def add(a: int) -> None: ...

    async with served(hf) as client:
        answers = await asyncio.gather(
            *(
                client.post("/v1/jobs", json={"name": "add", "arguments": {"a": a}})
                for a in range(20)
            )
        )
        for a, answer in enumerate(answers):
            assert (answer.status_code, answer.json()["arguments"]) == (201, {"a": a})
            found = await client.get(answer.headers["location"])
            assert found.json()["arguments"] == {"a": a}
