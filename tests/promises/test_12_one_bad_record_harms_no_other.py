"""12. One bad record never affects another."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from holdfast import Filter, State
from tests.promises.handlers import ERRORS, RESULTS, STORABLE
from tests.promises.stage import Stage, both_stores

pytestmark = [pytest.mark.heavy, pytest.mark.long]

ARGUMENTS = {
    "no object": "[1, 2]",
    "text": '"number"',
    "another type": '{"number": "many"}',
    "lone surrogate": '{"number": "\\ud800"}',
    "nul": '{"number": "\\u0000"}',
    "too large a number": '{"number": 1e400}',
    "4300 digits": '{"number": ' + "9" * 4301 + "}",
    "doubled key": '{"number": {}, "number": []}',
    "deep": '{"number": ' + "[" * 900 + "]" * 900 + "}",
    "null": "null",
}


async def insert(stage: Stage, name: str, arguments: str) -> UUID:
    """Write a job as another program might: past all checks but the database's."""
    job_id = uuid4()
    now = "0" if stage.is_sqlite else "now()"
    await stage.fetch(
        "INSERT INTO jobs (id, name, queue, priority, arguments, max_attempts, run_at, created_at)"
        f" VALUES ('{job_id}', '{name}', 'default', 0, '{arguments}', 5, {now}, {now})"
    )
    return job_id


@both_stores
@pytest.mark.parametrize("handler", ["odd", "odd_in_thread"])
async def test_odd_results_and_errors_end_their_own_job_only(stage: Stage, handler: str) -> None:
    kinds = [*RESULTS, "deep", *ERRORS]
    function = getattr(stage.jobs, handler)
    odd = await stage.hf.enqueue_many([function.call(kind) for kind in kinds])
    good = await stage.hf.enqueue_many([stage.jobs.quick.call(number) for number in range(20)])
    worker = stage.worker("--until-empty", concurrency=50)
    assert await worker.ended() == 0
    ended = dict(zip(kinds, await stage.ended(*odd), strict=True))
    for kind, job in ended.items():
        if kind in ERRORS:
            assert job.state in {State.DEAD, State.FAILED}, kind
            assert job.error_code not in {None, "UNJUDGED", "UNSTORABLE_RESULT"}, kind
        elif kind in STORABLE:
            assert (job.state, job.error_code) == (State.SUCCEEDED, None), kind
        else:
            assert (job.state, job.error_code) == (State.FAILED, "UNSTORABLE_RESULT"), kind
        assert job.attempts == 1
    assert ended["nul in an error"].error_code == "ValueError"
    assert ended["nul in an error"].error_text is not None
    assert "a\ufffdb" in ended["nul in an error"].error_text
    assert ended["nul in a result"].error_text is not None
    assert "$: a text with a NUL character" in ended["nul in a result"].error_text
    assert ended["exit"].error_code == "SystemExit"
    assert [job.result for job in await stage.ended(*good)] == list(range(20))
    assert {job.attempts for job in await stage.ended(*good)} == {1}


async def test_unreadable_payloads_and_names_harm_no_other_job(stage: Stage) -> None:
    await stage.hf.jobs.counts()
    bad = {kind: await insert(stage, "quick", text) for kind, text in ARGUMENTS.items()}
    unknown = await insert(stage, "nobody knows this", "{}")
    good = await stage.hf.enqueue_many([stage.jobs.quick.call(number) for number in range(10)])
    assert len((await stage.hf.jobs.list(Filter(states=(State.QUEUED,)))).jobs) == len(bad) + 11
    worker = stage.worker(concurrency=50)
    assert (await worker.logs("unknown_name"))["name"] == "nobody knows this"
    await stage.ended(*[await stage.hf.get(job_id) for job_id in bad.values()])
    for kind, job_id in bad.items():
        job = await stage.hf.get(job_id)
        assert (job.state, job.error_code) == (State.FAILED, "BAD_ARGUMENTS"), kind
    assert [job.result for job in await stage.ended(*good)] == list(range(10))
    left = await stage.hf.get(unknown)
    assert (left.state, left.attempts, left.fence) == (State.QUEUED, 0, 0)
    assert len(worker.events("unknown_name")) == 1


@both_stores
async def test_a_result_that_the_database_refuses_fails_its_own_job_only(stage: Stage) -> None:
    await stage.hf.jobs.counts()
    await stage.fetch(REFUSE_IN_SQLITE if stage.is_sqlite else REFUSE_IN_POSTGRES)
    jobs = await stage.hf.enqueue_many([stage.jobs.gated.call("gate") for _ in range(10)])
    worker = stage.worker(concurrency=20)
    await stage.noted("start", times=10)
    refused = jobs[4]
    await stage.fetch(f"UPDATE jobs SET correlation_id = 'refuse' WHERE id = '{refused.id}'")
    stage.open_gate("gate")
    ended = {job.id: job for job in await stage.ended(*jobs)}
    assert (ended[refused.id].state, ended[refused.id].error_code) == (State.FAILED, "UNSTORABLE")
    others = [job for job in ended.values() if job.id != refused.id]
    assert {(job.state, job.attempts, job.result) for job in others} == {
        (State.SUCCEEDED, 1, "attempt 1")
    }
    assert worker.code is None


REFUSE_IN_SQLITE = """
CREATE TRIGGER refuse BEFORE INSERT ON history
WHEN new.state = 'succeeded' AND new.correlation_id = 'refuse'
BEGIN SELECT RAISE(ABORT, 'refused'); END
"""
REFUSE_IN_POSTGRES = """
ALTER TABLE history ADD CONSTRAINT refuse
CHECK (state <> 'succeeded' OR correlation_id IS DISTINCT FROM 'refuse')
"""
