"""A worker that dies between the end of a handler and the end of its job."""

from __future__ import annotations

import pytest

from holdfast import ConfigurationError, Context, Holdfast, Retry, State
from holdfast.testing import Sandbox, sandbox

CREATE = "CREATE TABLE payments (number integer)"
PAY = "INSERT INTO payments VALUES (1)"


async def payments(hf: Holdfast) -> int:
    async with hf.transaction(read_only=True) as connection:
        count: int = await connection.fetchval("SELECT count(*) FROM payments")
        return count


async def make_payments(hf: Holdfast) -> None:
    async with hf.transaction() as connection:
        await connection.execute(CREATE)


async def test_the_handler_runs_again_and_its_effects_happen_twice(
    hf: Holdfast, server: str | None
) -> None:
    attempts: list[int] = []

    @hf.job
    async def charge(ctx: Context) -> int:
        attempts.append(ctx.attempt)
        return len(attempts)

    async with sandbox(hf, server) as jobs:
        job = await charge.enqueue()
        jobs.crash_before_commit(charge)
        report = await jobs.drain()
        assert (report.lost, report.succeeded) == (1, 1)
        assert attempts == [1, 2]
        ended = await hf.get(job.id)
        assert (ended.state, ended.result, ended.crashes) == (State.SUCCEEDED, 2, 1)
        first = (await hf.jobs.attempts(job.id))[0]
        assert (first.outcome, first.error_code) == ("lost", "LEASE_LOST")


async def test_rows_of_completing_are_rolled_back_and_written_once(
    hf: Holdfast, server: str | None
) -> None:
    runs: list[str] = []

    @hf.job
    async def pay(ctx: Context) -> None:
        async with ctx.completing() as connection:
            await connection.execute(PAY)
            runs.append("async")

    @hf.job
    def pay_plainly(ctx: Context) -> None:
        with ctx.completing_sync() as connection:
            connection.execute(PAY)
            runs.append("plain")

    async with sandbox(hf, server) as jobs:
        await make_payments(hf)
        for job_function in (pay, pay_plainly):
            await job_function.enqueue()
            jobs.crash_before_commit(job_function, times=2)
        report = await jobs.drain()
        assert (report.lost, report.succeeded) == (4, 2)
        assert sorted(runs) == ["async"] * 3 + ["plain"] * 3
        assert await payments(hf) == 2


async def test_no_code_of_the_handler_runs_after_a_crash_in_its_block(hf: Holdfast) -> None:
    ran: list[str] = []

    @hf.job
    async def pay(ctx: Context) -> None:
        try:
            async with ctx.completing() as connection:
                await connection.execute(PAY)
        except Exception as error:
            ran.append(repr(error))
        ran.append("after")

    async with sandbox(hf) as jobs:
        await make_payments(hf)
        await pay.enqueue()
        jobs.crash_before_commit(pay)
        await jobs.drain()
        assert ran == ["after"]  # of the second run


async def test_a_job_with_one_attempt_survives_a_crash(hf: Holdfast, server: str | None) -> None:
    @hf.job(retry=Retry.none)
    async def once(ctx: Context) -> int:
        return ctx.attempt

    async with sandbox(hf, server) as jobs:
        job = await once.enqueue()
        jobs.crash_before_commit(once)
        await jobs.drain()
        assert (await hf.get(job.id)).state is State.SUCCEEDED


async def test_other_jobs_and_other_sandboxes_do_not_crash(hf: Holdfast) -> None:
    @hf.job(aliases=["old"])
    async def doomed() -> None: ...

    @hf.job
    async def neighbor() -> None: ...

    async def crashes(jobs: Sandbox) -> list[int]:
        await hf.enqueue_many([doomed.call(), neighbor.call()])
        await jobs.drain(raise_errors=True)
        return [job.crashes for job in reversed(await jobs.jobs())]

    async with sandbox(hf) as jobs:
        jobs.crash_before_commit(doomed)
        assert await crashes(jobs) == [1, 0]
        jobs.crash_before_commit(doomed)  # never happens
    async with sandbox(hf) as jobs:
        assert await crashes(jobs) == [0, 0]


async def test_a_job_of_another_object_is_refused(hf: Holdfast, local_url: str) -> None:
    @Holdfast(local_url).job
    async def stranger() -> None: ...

    async with sandbox(hf) as jobs:
        with pytest.raises(ConfigurationError, match="stranger is not a job of"):
            jobs.crash_before_commit(stranger)
