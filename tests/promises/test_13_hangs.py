"""13. A handler that hangs past its timeout and grace loses its lease."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import State
from tests.promises.hanging import SECOND, TIMEOUT_SECONDS, Hanging
from tests.promises.stage import Stage, both_stores
from tests.support.processes import Process

pytestmark = [pytest.mark.heavy, pytest.mark.long]


@pytest.mark.parametrize("where", ["in_loop", "in_thread", "in_child"])
@both_stores
async def test_a_handler_that_hangs_past_its_timeout_loses_its_lease(
    stage: Stage, where: str
) -> None:
    """The next attempt succeeds while the first still hangs, unless it could be killed."""
    job = await getattr(Hanging(stage.hf), where).enqueue()
    worker = stage.worker(app="hanging:hf", timeout_grace_seconds=0.3, grace_seconds=0)
    (ended,) = await stage.ended(job)
    assert (ended.state, ended.attempts, ended.crashes) == (State.SUCCEEDED, 2, 0)
    assert ended.result == SECOND
    attempt, succeeded = await stage.hf.jobs.attempts(job.id)
    assert succeeded.outcome == "succeeded"
    assert (attempt.outcome, attempt.error_code) == ("failed", "TIMEOUT")
    assert "did not stop within another 0.3 s" in (attempt.error_text or "")
    assert attempt.started_at is not None
    assert attempt.ended_at - attempt.started_at >= timedelta(seconds=TIMEOUT_SECONDS + 0.3)
    first, second = stage.ledger("start", job.id)
    assert second["fence"] > first["fence"]
    assert worker.code is None
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0


DEAF_SCRIPT = """
import asyncio
from holdfast import Holdfast

hf = Holdfast("sqlite:///deaf.db", grace_seconds=0, timeout_grace_seconds=0.1, poll_seconds=0.05)

@hf.job(timeout_seconds=0.1)
async def deaf() -> None:
    print("started", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def main() -> None:
    async with hf:
        await deaf.enqueue()
        await hf.run_worker(concurrency=CONCURRENCY)

asyncio.run(main())
"""


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_a_handler_that_swallows_its_cancellation_can_not_keep_a_program_from_ending(
    tmp_path: Path, concurrency: int
) -> None:
    """With one slot, the worker ends because it hangs; with two, because it is stopped."""
    (tmp_path / "deaf.py").write_text(DEAF_SCRIPT.replace("CONCURRENCY", str(concurrency)))
    program = Process("deaf", ["deaf.py"], tmp_path, {})
    await program.prints()
    if concurrency == 2:
        program.signal(signal.SIGTERM)
    assert await program.ended() == (1 if concurrency == 1 else 0), program.text
    assert ("WorkerHung" in program.text) == (concurrency == 1)
