"""The settler: how much may wait to be written."""

from __future__ import annotations

import asyncio

from holdfast import Context, Holdfast, State
from holdfast.context import Surroundings
from holdfast.domain.codec import Results
from holdfast.domain.job import Settlement
from holdfast.domain.limits import SETTLE_BACKLOG_BYTES_MAX
from holdfast.runtime.seam import Seam
from holdfast.worker.run import Run
from holdfast.worker.settler import Settler
from tests.support.jobs import claimed
from tests.support.processes import turn
from tests.support.running import WAIT_SECONDS_MAX

MIB = 1024 * 1024
LARGE = b'"' + b"x" * MIB + b'"'


async def test_nothing_more_is_claimed_while_large_results_wait_to_be_written(
    local_hf: Holdfast,
) -> None:
    seam, store = Seam(), await local_hf._store()
    around = Surroundings(store, {}, Results(1000), seam, asyncio.get_running_loop())
    written = 0

    def settled(endings: object, lost: object) -> None:
        nonlocal written
        written += len(endings)  # type: ignore[arg-type]

    settler = Settler(store, seam, settled, lambda keys, found_open: None)
    count = SETTLE_BACKLOG_BYTES_MAX // MIB + 10
    for _ in range(count):
        job = claimed()
        settler.put(
            Run(job, Context(job, around), 0.0),
            Settlement(job_id=job.id, fence=1, state=State.SUCCEEDED, result=LARGE),
        )
    running = asyncio.create_task(settler.run())
    for _ in range(5):
        await turn()
    room = asyncio.create_task(settler.wait_room())
    await turn()
    assert not room.done()
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await room
        assert 0 < written < count
        await settler.wait_idle()
        await settler.wait_room()
    assert written == count
    running.cancel()
