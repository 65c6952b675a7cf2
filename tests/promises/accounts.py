"""After a failure of the database: is every job accounted for, once and as a whole?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from holdfast import State
from tests.promises.clients import BATCH_JOBS, ids
from tests.promises.stage import Entry, Stage
from tests.support.processes import Process, wait_until

ROWS = """
SELECT id, state, fence, attempt, correlation_id FROM jobs
UNION ALL
SELECT id, state, fence, attempt, correlation_id FROM history
"""


async def all_end(stage: Stage, clients: Sequence[Process], others: Collection[UUID] = ()) -> None:
    """Wait until the clients' jobs have ended; then check that nothing was lost or done twice. What
    became of `others` is the test's own affair."""
    acknowledged = {job_id for client in clients for job_id in ids(client.output)}
    assert acknowledged
    await wait_until(lambda: nothing_waits(stage), lambda: f"all ended: {stage.logs()}")
    rows = [row for row in await stage.fetch(ROWS) if UUID(str(row[0])) not in others]
    found = {UUID(str(row[0])): row for row in rows}
    assert len(found) == len(rows), "a job stands in two places"
    assert acknowledged <= set(found)
    starts, finishes = stage.by_job("start"), stage.by_job("finish")
    for job_id, row in found.items():
        check_ended_once(row, starts[str(job_id)], finishes[str(job_id)])
    batches = Counter(row[4] for row in rows)
    assert set(batches.values()) == {BATCH_JOBS}, "an enqueue was half done"
    await check_counts(stage, len(rows) + len(others))


async def nothing_waits(stage: Stage) -> bool:
    return await stage.fetch("SELECT 1 FROM jobs WHERE finished_at IS NULL LIMIT 1") == []


def check_ended_once(
    row: tuple[Any, ...], starts: Sequence[Entry], finishes: Sequence[Entry]
) -> None:
    """Each claim and each end of a lease raised the fence by one: nothing was settled twice. A
    claim whose answer was lost is no attempt."""
    _, state, fence, attempts, _ = row
    assert state == State.SUCCEEDED
    assert fence % 2 == 0
    assert fence >= 2 * attempts
    fences = [entry["fence"] for entry in starts]
    assert fences == sorted(set(fences))
    assert len(fences) <= attempts
    assert [entry["fence"] for entry in finishes].count(fence - 1) == 1


async def check_counts(stage: Stage, jobs: int) -> None:
    counted = Counter[State]()
    for count in await stage.hf.jobs.counts():
        counted[count.state] += count.jobs
    assert counted == {State.SUCCEEDED: jobs}
