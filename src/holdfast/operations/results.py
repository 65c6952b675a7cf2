"""Wait for a job's end, and give its result the type that the handler returns."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from holdfast.domain.encrypted_jobs import EncryptedValue
from holdfast.domain.errors import BadArguments, CannotDecrypt, JobFailed, ResultTimeout
from holdfast.domain.job import Job
from holdfast.domain.states import State
from holdfast.operations.desk import Desk
from holdfast.runtime.backoff import Backoff


async def wait_for_result(
    desk: Desk,
    get: Callable[[UUID], Awaitable[Job]],
    job: Job | UUID,
    timeout_seconds: float | None,
) -> Any:
    if timeout_seconds is not None and math.isnan(timeout_seconds):
        raise BadArguments("timeout_seconds must be a number, not NaN")
    ended = await _wait(desk, get, job.id if isinstance(job, Job) else job, timeout_seconds)
    if ended.state is not State.SUCCEEDED:
        raise JobFailed(ended)
    if isinstance(ended.result, EncryptedValue):
        raise CannotDecrypt(f"the result of job {ended.id} ({ended.name}) is {ended.result}")
    definition = desk.definitions.get(ended.name)
    return ended.result if definition is None else definition.signature.load_result(ended)


async def _wait(
    desk: Desk,
    get: Callable[[UUID], Awaitable[Job]],
    job_id: UUID,
    timeout_seconds: float | None,
) -> Job:
    polling = Backoff(desk.seam(), 0.01, 0.5)
    job = await get(job_id)
    try:
        async with asyncio.timeout(timeout_seconds):
            while not job.state.ended:
                await polling.wait()
                job = await get(job_id)
    except TimeoutError:
        raise ResultTimeout(f"job {job_id} did not end within {timeout_seconds:g} s") from None
    return job
