"""Jobs that have crashed before, and processes that workers have started."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

from holdfast import Holdfast, Job
from holdfast.domain.limits import CRASHES_IN_COMPANY_MAX
from holdfast.stores.protocol import Claim, Store
from tests.support.processes import Process, wait_until


async def make_suspects(
    hf: Holdfast, jobs: Iterable[Job], crashes: int = CRASHES_IN_COMPANY_MAX
) -> None:
    """Crash these jobs together. No other job may be due."""
    ids = {job.id for job in jobs}
    store = await hf._store()
    for _ in range(crashes):
        await _claim(store, ids, Claim("dead", 1000, lease_seconds=3600, names=hf.names))
        reclaimed = await store.reclaim(1000, "dead", "was killed by the test")
        assert ids == {job.job_id for job in reclaimed}
    assert all(job.suspect for job in reclaimed)


async def _claim(store: Store, ids: set[UUID], claim: Claim) -> None:
    """Claim all of them; where the machine is slow a claim may leave some to the next."""
    claimed: set[UUID] = set()

    async def has_all() -> bool:
        claimed.update(job.id for job in await store.claim(claim))
        return len(claimed) >= len(ids)

    await wait_until(has_all, lambda: f"claimed: {ids - claimed}")
    assert claimed == ids


def started(worker: Process) -> list[int]:
    """The IDs of the processes that it has started."""
    return [event["process_id"] for event in worker.events("child_started")]


def is_alive(process_id: int) -> bool:
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
