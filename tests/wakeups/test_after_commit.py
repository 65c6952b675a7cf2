"""Messages follow the commit that enqueued their job, and a rollback sends none."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

import pytest

from holdfast import Context, Holdfast
from holdfast.job_function import JobFunction
from holdfast.messengers import Heard, Hint, Listener, MessengerStatus
from tests.support.running import QUICK


class Notebook:
    """A messenger that notes what it is given."""

    name = "notebook"

    def __init__(self) -> None:
        self.posted: list[UUID] = []

    def connect(self) -> None: ...

    def post(self, hints: Sequence[Hint]) -> None:
        self.posted += [hint.job_id for hint in hints]

    async def listen(self, heard: Heard) -> Listener:
        return self

    def status(self) -> MessengerStatus:
        return MessengerStatus(name=self.name, live=True)

    async def close(self) -> None: ...


@pytest.fixture
def notebook() -> Notebook:
    return Notebook()


class App(NamedTuple):
    hf: Holdfast
    greet: JobFunction[[str], None]
    complete: JobFunction[[bool], None]


@pytest.fixture
def noting(store_url: str, notebook: Notebook) -> App:
    hf = Holdfast(store_url, messengers=[notebook], **QUICK)

    @hf.job
    async def greet(name: str) -> None: ...

    @hf.job
    async def complete(ctx: Context, fails: bool) -> None:
        async with ctx.completing() as connection:
            job = await greet.options(connection=connection).enqueue("inside")
            assert job.id not in notebook.posted
            if fails:
                raise ZeroDivisionError

    return App(hf, greet, complete)


async def test_an_enqueue_posts_its_job_once_per_key(noting: App, notebook: Notebook) -> None:
    async with noting.hf:
        greet = noting.greet
        job = await greet.options(idempotency_key="k").enqueue("a")
        assert (await greet.options(idempotency_key="k").enqueue("a")).id == job.id
        assert notebook.posted == [job.id]


async def test_a_transaction_posts_after_its_commit(noting: App, notebook: Notebook) -> None:
    async with noting.hf:
        greet = noting.greet
        async with noting.hf.transaction() as connection:
            job = await greet.options(connection=connection).enqueue("a")
            assert notebook.posted == []
        assert notebook.posted == [job.id]
        with suppress(ZeroDivisionError):
            async with noting.hf.transaction() as connection:
                await greet.options(connection=connection).enqueue("b")
                raise ZeroDivisionError
        assert notebook.posted == [job.id]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_completion_posts_after_its_commit(
    noting: App, notebook: Notebook, fails: bool
) -> None:
    async with noting.hf:
        first = await noting.complete.options(max_attempts=1).enqueue(fails)
        await noting.hf.run_due()
        assert notebook.posted[0] == first.id
        assert len(notebook.posted) == (1 if fails else 2)
