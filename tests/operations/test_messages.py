"""`hf.messages`: what a broker keeps, beside what the database says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from holdfast import BadArguments, ConfigurationError, Holdfast, State
from tests.support.convoys import QUEUE, Convoys
from tests.support.servicebus import StartBus, receive, receive_one

pytestmark = pytest.mark.heavy


def bury(receiver: Any) -> None:
    receiver.dead_letter_message(receive_one(receiver), reason="Poison")


async def test_dead_letters_are_mended_as_the_rows_decide(
    store_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(store_url, servicebus)
    silent, hf = convoys.app(escorted=False), Holdfast(store_url, messengers=convoys.address)
    async with silent.hf, hf:
        done, waits = await silent.quick.enqueue(1), await silent.slow.enqueue(2)
        await silent.hf.cancel(done.id)
        for job in (done, waits):
            convoys.announce(job.id)
            convoys.receiving(bury)
        found = await hf.messages.peek(dead=True)
        assert [each.job_state for each in found] == [State.CANCELED, State.QUEUED]
        repaired = await hf.messages.repair()
        assert [each.number for each in repaired.removed] == [found[0].number]
        assert repaired.announced == (waits.id,)
        assert repaired.is_whole
        (replayed,) = await hf.messages.replay([found[1].number])
        assert (replayed.sent, replayed.message.job_id) == (True, waits.id)
        assert convoys.bus.dead_letters(QUEUE) == []
        bodies = [json.loads(each.body) for each in convoys.messages]
        assert bodies == [{"job_id": str(waits.id)}] * 2


async def test_many_letters_are_replayed_before_their_locks_expire(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus, lock_seconds=5.0)
    silent, hf = convoys.app(escorted=False), Holdfast(local_url, messengers=convoys.address)
    async with silent.hf, hf:
        jobs = await silent.hf.enqueue_many([silent.slow.call(each) for each in range(150)])
        convoys.announce(*(job.id for job in jobs))

        def bury_all(receiver: Any) -> None:
            for message in receive(receiver, len(jobs)):
                receiver.dead_letter_message(message, reason="Poison")

        convoys.receiving(bury_all)
        replayed = await hf.messages.replay()
        assert [each.message.job_id for each in replayed] == [job.id for job in jobs]
        assert all(each.sent for each in replayed)
    assert convoys.bus.dead_letters(QUEUE) == []
    assert len(convoys.messages) == len(jobs)


async def test_a_replayed_job_that_is_not_due_gets_a_message_for_its_time(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus)
    silent, hf = convoys.app(escorted=False), Holdfast(local_url, messengers=convoys.address)
    async with silent.hf, hf:
        job = await silent.slow.options(delay_seconds=3600).enqueue(1)
        convoys.announce(job.id)
        convoys.receiving(bury)
        await hf.messages.replay()
        assert [each.state for each in convoys.messages] == ["scheduled"]


async def test_code_without_an_event_loop_has_them_too(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus)
    convoys.send(b"garbage")
    app = Holdfast(local_url, messengers=convoys.address)
    (found,) = await asyncio.to_thread(app.messages.peek_sync)
    assert (found.job_id, found.box) == (None, "queue")
    assert (await asyncio.to_thread(app.messages.repair_sync)).removed == ()
    assert await asyncio.to_thread(app.messages.replay_sync) == []
    await asyncio.to_thread(app.close_sync)


async def test_limits_and_messengers_are_checked(local_hf: Holdfast) -> None:
    with pytest.raises(ConfigurationError, match="no messenger of this app keeps messages"):
        await local_hf.messages.peek()
    with pytest.raises(BadArguments, match="limit"):
        await local_hf.messages.peek(limit=0)
