"""Run jobs in child processes, and check on the processes."""

from __future__ import annotations

import subprocess
from typing import Any

from holdfast import Holdfast, Job
from tests.support.processes import wait_until


async def run_all(hf: Holdfast, *jobs: Job, concurrency: int = 2) -> list[Job]:
    await hf.run_worker(until_empty=True, concurrency=concurrency)
    return [await hf.get(job.id) for job in jobs]


def is_alive(process_id: int) -> bool:
    """A zombie is not alive."""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(process_id)], capture_output=True)
    return shown.stdout.strip() not in (b"", b"Z", b"Zs")


async def all_gone(process_ids: list[int]) -> None:
    await wait_until(lambda: not any(map(is_alive, process_ids)), f"ended: {process_ids}")


async def progress_of(hf: Holdfast, job: Job) -> Any:
    async def reported() -> bool:
        return (await hf.get(job.id)).progress is not None

    await wait_until(reported, "reported")
    return (await hf.get(job.id)).progress
