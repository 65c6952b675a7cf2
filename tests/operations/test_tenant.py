"""A tenant sees and changes its own jobs. Those of others do not exist for it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from operator import attrgetter
from typing import Any
from uuid import UUID

import pytest

from holdfast import (
    BadArguments,
    Context,
    Filter,
    Holdfast,
    HoldfastError,
    Job,
    JobNotFound,
    Permanent,
    State,
    Tenant,
)
from holdfast.operations.dead import Dead
from holdfast.operations.jobs import Jobs

NOBODYS = UUID(int=7)
JOBS = 4  # of `red`

# What each method takes after a job's id. In a method for many jobs, the id is in a list.
BY_ID: dict[str, tuple[Any, ...]] = {
    "get": (),
    "result": (0,),
    "cancel": (),
    "jobs.get": (),
    "jobs.attempts": (),
    "jobs.why": (),
    "jobs.requeued_as": (),
    "jobs.cancel": (),
    "jobs.cancel_many": (),
    "jobs.retry": (),
    "jobs.retry_many": (),
    "jobs.requeue": (),
    "jobs.requeue_many": (),
    "dead.requeue": (),
    "dead.requeue_many": (),
}
BY_FILTER = {
    "jobs.list",
    "jobs.counts",
    "jobs.counts_up_to",
    "jobs.choose",
    "jobs.cancel_many",
    "jobs.retry_many",
    "jobs.requeue_many",
    "dead.list",
    "dead.grouped",
    "dead.requeue_many",
}
BY_GROUP = {"dead.group", "dead.group_jobs", "dead.acknowledge", "dead.resolve", "dead.reopen"}
OF_GROUPS = {"dead.groups", "dead.group_counts"}
OF_ALL_TENANTS = {"dead.count_groups", "dead.groups_behind_since"}  # name no job
OF_JOBS = {"jobs.requeued"}
ENQUEUING = {"enqueue", "enqueue_many"}
TRANSACTIONS = {"transaction"}


def methods() -> Iterator[str]:
    for prefix, kind in (("", Tenant), ("jobs.", Jobs), ("dead.", Dead)):
        yield from (
            f"{prefix}{name}"
            for name, value in inspect.getmembers(kind, callable)
            if not name.startswith("_")
        )


def of_kind(kind: set[str]) -> list[str]:
    return [name for name in methods() if name.removesuffix("_sync") in kind]


def test_every_method_is_tested_below() -> None:
    tested = {*BY_ID, *BY_FILTER, *OF_JOBS, *ENQUEUING, *TRANSACTIONS}
    tested |= {*BY_GROUP, *OF_GROUPS, *OF_ALL_TENANTS}
    assert {name.removesuffix("_sync") for name in methods()} == tested


async def ask(tenant: Tenant, name: str, *arguments: Any) -> Any:
    """What a method returns or yields, or its error."""
    method = attrgetter(name)(tenant)
    try:
        if name.endswith("_sync"):
            return await asyncio.to_thread(lambda: _listed(method(*arguments)))
        asked = method(*arguments)
        return [one async for one in asked] if inspect.isasyncgen(asked) else await asked
    except HoldfastError as error:
        return error


def _listed(answer: Any) -> Any:
    return list(answer) if isinstance(answer, Iterator) else answer


async def ask_about(tenant: Tenant, name: str, job_id: UUID) -> str:
    """What a method says about a job, without its id."""
    base = name.removesuffix("_sync")
    jobs = [job_id] if base.endswith("_many") else job_id
    answer = await ask(tenant, name, jobs, *BY_ID[base])
    return repr(answer).replace(repr(job_id), "ID").replace(str(job_id), "ID")


class Shop:
    """`red` has a job that waits, one that succeeded, one that failed, and one requeued since."""

    def __init__(self, hf: Holdfast) -> None:
        @hf.job(name="work")
        async def work(text: str) -> str:
            if text == "fail":
                raise Permanent("boom", code="BOOM")
            return text

        self.hf = hf
        self.work = work
        self.red = hf.for_tenant("red")
        self.blue = hf.for_tenant("blue")

    async def fill(self) -> None:
        for text in ("work", "fail"):
            await self.red.enqueue(self.work, text)
        failed = await self.red.enqueue(self.work, "fail")
        await self.hf.run_due()
        await self.red.jobs.requeue(failed.id)

    async def all(self) -> dict[UUID, Job]:
        return {job.id: job for job in (await self.hf.jobs.list()).jobs}


@pytest.fixture
async def shop(hf: Holdfast) -> AsyncIterator[Shop]:
    shop = Shop(hf)
    await shop.fill()
    assert len(await shop.all()) == JOBS
    yield shop
    await asyncio.to_thread(hf.close_sync)


@pytest.mark.parametrize("name", of_kind({*BY_ID}))
async def test_a_job_of_another_tenant_is_as_one_that_does_not_exist(shop: Shop, name: str) -> None:
    before = await shop.all()
    unknown = await ask_about(shop.blue, name, NOBODYS)
    for job_id in before:
        assert await ask_about(shop.blue, name, job_id) == unknown
    assert await shop.all() == before
    # Its own tenant gets more than that.
    assert unknown == await ask_about(shop.red, name, NOBODYS)
    assert any([await ask_about(shop.red, name, job_id) != unknown for job_id in before])


THROUGH_CONNECTIONS = [
    name
    for name, method in inspect.getmembers(Jobs, inspect.iscoroutinefunction)
    if "connection" in inspect.signature(method).parameters and not name.startswith("_")
]


@pytest.mark.parametrize("name", THROUGH_CONNECTIONS)
async def test_a_transaction_of_the_caller_does_not_reach_jobs_of_another_tenant(
    shop: Shop, name: str
) -> None:
    before = await shop.all()
    async with shop.hf.transaction() as connection:
        for job_id in (NOBODYS, *before):
            with pytest.raises(JobNotFound, match=f"job {job_id} does not exist"):
                await getattr(shop.blue.jobs, name)(job_id, connection=connection)
    assert await shop.all() == before


@pytest.mark.parametrize("name", of_kind(OF_JOBS))
async def test_what_follows_a_job_of_another_tenant_is_not_told(shop: Shop, name: str) -> None:
    jobs = [*(await shop.all()).values()]
    assert await ask(shop.blue, name, jobs) == {}
    assert len(await ask(shop.red, name, jobs)) == 1


@pytest.mark.parametrize("name", of_kind(BY_FILTER))
async def test_a_tenant_finds_only_its_own_jobs_whatever_it_looks_for(
    shop: Shop, name: str
) -> None:
    async def finds(tenant: Tenant, wanted: str | None) -> bool:
        arguments: dict[str, tuple[Any, ...]] = {
            "jobs.counts": (wanted,),
            "jobs.counts_up_to": (100, wanted),
        }
        looked_for = arguments.get(name.removesuffix("_sync"), (Filter(tenant=wanted),))
        nothing = await ask(shop.hf.for_tenant("new"), name, *looked_for)
        return repr(await ask(tenant, name, *looked_for)) != repr(nothing)

    before = await shop.all()
    for wanted in ("red", "blue", None):
        assert not await finds(shop.blue, wanted)
    assert not await finds(shop.red, "blue")
    assert await shop.all() == before
    assert await finds(shop.red, "red")
    assert "many" in name or await finds(shop.red, None)  # the first time changed them all


@pytest.mark.parametrize("name", of_kind(BY_GROUP))
async def test_to_a_tenant_a_group_of_others_jobs_is_one_that_does_not_exist(
    shop: Shop, name: str
) -> None:
    await shop.hf.dead.count_groups()
    (group,) = (await shop.red.dead.groups()).groups
    before = await shop.hf.for_tenant("red").dead.groups()
    theirs = repr(await ask(shop.blue, name, group.fingerprint))
    nobodys = repr(await ask(shop.blue, name, "0123456789ab"))
    assert theirs.replace(group.fingerprint, "0123456789ab") == nobodys
    assert await shop.red.dead.groups() == before
    assert repr(await ask(shop.red, name, group.fingerprint)) != nobodys


@pytest.mark.parametrize("name", of_kind(OF_GROUPS))
async def test_a_tenant_finds_only_the_groups_of_its_own_jobs(shop: Shop, name: str) -> None:
    await shop.hf.dead.count_groups()
    nothing = repr(await ask(shop.hf.for_tenant("new"), name))
    assert repr(await ask(shop.blue, name)) == nothing
    assert repr(await ask(shop.red, name)) != nothing


@pytest.mark.parametrize("name", of_kind(ENQUEUING))
async def test_what_a_tenant_enqueues_is_its_own(shop: Shop, name: str) -> None:
    def arguments(**options: Any) -> tuple[Any, ...]:
        work = shop.work.options(**options)
        return ([work.call("own")],) if "many" in name else (work, "own")

    for options in ({}, {"tenant": "blue"}):
        answer = await ask(shop.blue, name, *arguments(**options))
        (job,) = answer if isinstance(answer, list) else [answer]
        assert (job.tenant, job.arguments) == ("blue", {"text": "own"})
        assert await shop.blue.get(job.id) == await shop.hf.get(job.id)
    before = await shop.all()
    refusal = await ask(shop.blue, name, *arguments(tenant="red"))
    assert isinstance(refusal, BadArguments)
    assert str(refusal) == "the options name tenant 'red', not 'blue'"
    assert await shop.all() == before


async def test_tenants_share_an_idempotency_key_without_noticing(shop: Shop) -> None:
    keyed = shop.work.options(idempotency_key="k")
    red, blue = await shop.red.enqueue(keyed, "red"), await shop.blue.enqueue(keyed, "blue")
    assert red.id != blue.id
    assert (await shop.blue.enqueue(keyed, "blue")).id == blue.id
    assert (await shop.blue.get(blue.id)).arguments == {"text": "blue"}


async def test_in_a_handler_the_tenant_wins_over_that_of_the_handlers_job(hf: Holdfast) -> None:
    @hf.job
    async def child() -> None: ...

    @hf.job
    async def parent(ctx: Context) -> list[UUID]:
        jobs = [await child.enqueue(), await hf.for_tenant("blue").enqueue(child)]
        jobs += await hf.for_tenant("blue").enqueue_many([child.call()])
        return [job.id for job in jobs]

    red = hf.for_tenant("red")
    job = await red.enqueue(parent.options(correlation_id="order-7"))
    await hf.run_due()
    inherited, *given = [await hf.get(each) for each in await red.result(job.id)]
    assert (inherited.tenant, inherited.parent_id) == ("red", job.id)
    # The id of a job of `red` is none of blue's business. The correlation id tells operators.
    assert {(each.tenant, each.parent_id) for each in given} == {("blue", None)}
    assert {each.correlation_id for each in given} == {"order-7"}


async def test_a_requeued_job_stays_with_its_tenant_and_so_do_its_relatives(shop: Shop) -> None:
    (failed,) = (await shop.red.dead.list(limit=1)).jobs
    new = await shop.red.dead.requeue(failed.id)
    assert (new.tenant, new.requeued_from) == ("red", failed.id)
    assert await shop.red.jobs.requeued_as(failed.id) == new.id


async def test_jobs_without_a_tenant_are_those_of_the_tenant_default(hf: Holdfast) -> None:
    shop = Shop(hf)
    job = await shop.work.enqueue("work")
    default = hf.for_tenant("default")
    assert (await default.get(job.id)).tenant == "default"
    assert [each.id for each in (await default.jobs.list()).jobs] == [job.id]
    assert [each.jobs for each in await default.jobs.counts()] == [1]


async def test_canceling_is_beside_get_and_result(hf: Holdfast) -> None:
    shop = Shop(hf)
    one, two = await shop.work.enqueue("work"), await shop.blue.enqueue(shop.work, "work")
    for canceled in (
        await hf.cancel(one.id, by="ann", because="wrong file"),
        await shop.blue.cancel(two.id, by="ann", because="wrong file"),
    ):
        assert canceled.state is State.CANCELED
        assert canceled.error_text == "canceled by ann: wrong file"


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201, None, 7])
def test_a_tenant_has_a_name_that_can_be_stored(local_url: str, name: Any) -> None:
    with pytest.raises(BadArguments, match="tenant"):
        Holdfast(local_url).for_tenant(name)
    assert repr(Holdfast(local_url).for_tenant("acme")) == "<tenant acme>"


@pytest.mark.parametrize("is_sync", [False, True])
async def test_a_transaction_commits_a_tenants_jobs_together(shop: Shop, is_sync: bool) -> None:
    def enqueue_sync() -> None:
        with shop.red.transaction_sync() as connection:
            work = shop.work.options(connection=connection, queue="together")
            shop.red.enqueue_sync(work, "a")

    if is_sync:
        await asyncio.to_thread(enqueue_sync)
    else:
        async with shop.red.transaction() as connection:
            work = shop.work.options(connection=connection, queue="together")
            await shop.red.enqueue(work, "a")
    (job,) = (await shop.red.jobs.list(Filter(queue="together"))).jobs
    assert job.tenant == "red"
