"""13. No silent death: a worker survives when its file is replaced."""

from __future__ import annotations

import os

import pytest

from tests.promises.stage import Stage

pytestmark = [
    pytest.mark.parametrize("store_url", ["sqlite"], indirect=True),
    pytest.mark.heavy,
    pytest.mark.long,
]


def unlink(stage: Stage, *ends: str) -> None:
    for end in ends:
        os.unlink(stage.url.removeprefix("sqlite:///") + end)


async def test_a_worker_continues_with_the_file_that_is_at_its_path(stage: Stage) -> None:
    worker = stage.worker(poll_seconds=0.1)
    await stage.ended(await stage.jobs.quick.enqueue(1))
    await stage.hf.close()
    unlink(stage, "", "-wal", "-shm")
    job = await stage.jobs.quick.enqueue(2)
    await stage.ended(job)
    assert worker.code is None
    assert "was deleted, moved or replaced while it was in use" in worker.text


async def test_a_worker_whose_log_was_deleted_ends_and_says_so(stage: Stage) -> None:
    worker = stage.worker(poll_seconds=0.1)
    job = await stage.jobs.quick.enqueue(1)
    await stage.ended(job)
    await stage.hf.close()
    unlink(stage, "-wal")
    assert await worker.ended() not in (0, None)
    assert "-wal was deleted while" in worker.text
    assert (await stage.hf.get(job.id)).state.ended
