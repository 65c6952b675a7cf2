"""Jobs to change in bulk, and a runner whose every step a test takes itself."""

from __future__ import annotations

from uuid import UUID

from holdfast import Filter, Holdfast, Job, Retry, State
from holdfast.domain.bulk import BulkChange
from holdfast.operations.bulk_run import BulkLease
from tests.support.running import execute


async def waiting_jobs(hf: Holdfast, count: int, tenant: str = "default") -> list[Job]:
    function = hf._functions.get("wait") or hf.job(name="wait")(_wait)
    calls = [function.options(delay_seconds=3600).call(number) for number in range(count)]
    return await hf.for_tenant(tenant).enqueue_many(calls)


async def canceled_jobs(hf: Holdfast, count: int, tenant: str = "default") -> list[Job]:
    jobs = await waiting_jobs(hf, count, tenant)
    await (await hf._store()).cancel([job.id for job in jobs])
    return jobs


async def dead_jobs(hf: Holdfast, count: int, tenant: str = "default") -> list[Job]:
    function = hf._functions.get("fail") or hf.job(name="fail", retry=Retry.none())(_fail)
    jobs = await hf.for_tenant(tenant).enqueue_many([function.call(n) for n in range(count)])
    await hf.run_due()
    return [await hf.get(job.id) for job in jobs]


async def _wait(number: int) -> int:
    return number


async def _fail(number: int) -> None:
    raise RuntimeError("the mail server is down")


async def copies(hf: Holdfast) -> list[UUID]:
    """The ids of all jobs that were requeued, one for each copy."""
    page = await hf.jobs.list(Filter(states=tuple(State)), 1000)
    return sorted(job.requeued_from for job in page.jobs if job.requeued_from is not None)


async def claim(hf: Holdfast, owner: str = "runner") -> BulkLease:
    (lease,) = await hf._bulk_runs.claim(owner, 1)
    return lease


async def run_all(hf: Holdfast, change: BulkChange, owner: str = "runner") -> BulkChange:
    """Run the change, as fast as it goes."""
    lease = await claim(hf, owner)
    while (await hf._bulk_runs.step(lease)).wait_seconds is not None:
        pass
    return await hf.bulk.get(change.id)


async def let_leases_expire(store_url: str) -> None:
    past = "'2020-01-01T00:00:00Z'"
    await execute(
        store_url, f"UPDATE bulk_changes SET lease_expires_at = {past} WHERE owner IS NOT NULL"
    )


async def make_due(store_url: str) -> None:
    """Let the next step of each change be due, whatever its rate."""
    await execute(
        store_url,
        "UPDATE bulk_changes SET next_step_at = created_at WHERE next_step_at IS NOT NULL",
    )
