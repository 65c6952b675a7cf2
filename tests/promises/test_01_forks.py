"""1. An acknowledged enqueue is never lost: also in copies of a process, made by os.fork."""

from __future__ import annotations

import signal

import pytest

from holdfast import State
from tests.promises.clients import ids
from tests.promises.forking import fork
from tests.promises.stage import Stage, both_stores
from tests.promises.test_01_acknowledged_enqueue_is_never_lost import recorded

pytestmark = [pytest.mark.heavy, pytest.mark.long]


@both_stores
@pytest.mark.parametrize("color", ["sync", "async"])
async def test_copies_made_while_others_write_enqueue_too(stage: Stage, color: str) -> None:
    client = stage.client("copy_while_writing", color, module="forking")
    assert await client.ended() == 0, client.text
    acknowledged = ids(client.output)
    assert len(acknowledged) == len(set(acknowledged))
    assert set(acknowledged) == await recorded(stage)


@both_stores
async def test_a_copy_continues_when_its_parent_closes(stage: Stage) -> None:
    client = stage.client("copy_then_close", module="forking")
    assert await client.ended() == 0, client.text
    acknowledged = ids(client.output)
    assert len(acknowledged) == 3
    assert set(acknowledged) == await recorded(stage)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_copy_made_within_a_transaction_gets_an_error_when_it_uses_the_file(
    stage: Stage,
) -> None:
    client = stage.client("copy_within_a_transaction", module="forking")
    assert await client.ended() == 0, client.text
    refusal, *acknowledged = client.output
    assert "this process can't use" in refusal
    assert "it was forked during a transaction" in refusal
    assert set(ids(acknowledged)) == await recorded(stage)
    assert len(acknowledged) == 2


@both_stores
async def test_a_handler_starts_processes_and_ends_one_without_ending_its_worker(
    stage: Stage,
) -> None:
    job = await stage.hf.job(fork).enqueue()
    worker = stage.worker("--until-empty", app="forking:hf", lease_seconds=1)
    assert await worker.ended() == 0, worker.text
    assert worker.events("shutdown") == []
    assert [entry["what"] for entry in stage.ledger(job=job.id)] == [
        f"its processes ended with 0 and {-signal.SIGTERM}"
    ]
    (enqueued,) = ids(worker.output)
    assert (await stage.hf.get(enqueued)).state is State.SUCCEEDED
