"""Broker-led mode: messages accompany jobs, and whatever happens to them costs latency only."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast import Filter, Holdfast, State
from holdfast.domain.limits import MESSAGE_PUT_OFF_MAX
from holdfast.testing.messengers.posting import Ear
from tests.promises.stage import Stage
from tests.support.convoys import QUEUE, Convoys
from tests.support.postgres import Server
from tests.support.processes import wait_until
from tests.support.running import seen_events, working
from tests.support.servicebus import StartBus, receive_one

pytestmark = pytest.mark.heavy


def is_only(value: object, find: Callable[[], list[object]]) -> bool:
    return find() == [value]


def states_of(convoys: Convoys) -> list[object]:
    return [each.state for each in convoys.messages]


async def is_renewed_for(hf: Holdfast, job_id: UUID, seconds: float) -> None:
    """Wait until the job's lease was renewed for so long."""
    begun = (await hf.get(job_id)).lease_expires_at
    assert begun is not None

    async def is_renewed() -> bool:
        until = (await hf.get(job_id)).lease_expires_at
        return until is not None and until > begun + timedelta(seconds=seconds)

    await wait_until(is_renewed, "renewed")


async def test_a_message_is_held_while_its_job_runs_and_completed_with_it(
    store_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(store_url, servicebus)
    app = convoys.app()
    async with app.hf, working(app.hf):
        await app.is_live()
        await app.slow.enqueue(1)
        await convoys.runs(1)
        await wait_until(lambda: [each.state for each in convoys.messages] == ["locked"], "held")
        convoys.gate.set()
        await convoys.does(1)
        await convoys.empties()
    assert convoys.bus.dead_letters(QUEUE) == []


async def test_a_message_says_what_the_database_says_and_its_properties_are_as_agreed(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus)
    app = convoys.app()
    async with app.hf:
        call = app.quick.options(tenant="acme", priority=7, correlation_id="order-1")
        job = await call.enqueue(1)
        await wait_until(lambda: convoys.messages, "sent")
        (message,) = convoys.messages
        assert json.loads(message.body) == {"job_id": str(job.id)}
        assert message.session_id == "acme"
        assert message.application_properties == {
            "attempt": 0,
            "priority": 7,
            "x-correlation-id": "order-1",
            "x-holdfast-queue": "default",
        }


async def test_a_lock_is_renewed_with_the_lease_of_its_job(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus, lock_seconds=1.0)
    app = convoys.app()
    async with app.hf, working(app.hf):
        await app.is_live()
        job = await app.slow.enqueue(1)
        await convoys.runs(1)
        await is_renewed_for(app.hf, job.id, seconds=4)
        (message,) = convoys.messages
        assert (message.state, message.delivery_count) == ("locked", 0)
        convoys.gate.set()
        await convoys.empties()
    assert convoys.done == [1]


async def test_a_retry_is_a_new_message_that_comes_when_the_row_is_due(
    store_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(store_url, servicebus)
    convoys.failures = 1
    app = convoys.app()
    async with app.hf, working(app.hf):
        await app.is_live()
        job = await app.quick.enqueue(1)
        await wait_until(
            lambda: [each.state for each in convoys.messages] == ["scheduled"],
            lambda: f"scheduled: {convoys.messages}",
        )
        (message,) = convoys.messages
        assert message.application_properties["attempt"] == 1
        assert (await app.hf.get(job.id)).state is State.QUEUED
        await convoys.does(1)  # nobody polls
        await convoys.empties()
        ended = await app.hf.get(job.id)
    assert (ended.state, ended.attempts) == (State.SUCCEEDED, 2)
    assert convoys.bus.dead_letters(QUEUE) == []


async def test_no_more_messages_are_received_than_jobs_can_start(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus)
    app = convoys.app(concurrency=2)
    async with app.hf, working(app.hf):
        await app.is_live()
        await app.hf.enqueue_many([app.slow.call(number) for number in range(10)])
        await wait_until(lambda: len(convoys.running) == 2, "full")
        (first, *_) = (await app.hf.jobs.list(Filter(states=(State.RUNNING,)))).jobs
        await is_renewed_for(app.hf, first.id, seconds=4)  # longer than it waits for a job to start
        states = Counter(each.state for each in convoys.messages)
        assert states == {"locked": 2, "active": 8}
        convoys.gate.set()
        await convoys.does(*range(10))
        await convoys.empties()
    assert convoys.bus.dead_letters(QUEUE) == []


async def test_a_worker_that_is_told_to_stop_sends_its_jobs_on_to_others(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus)
    first, second = convoys.app(), convoys.app()
    async with first.hf, second.hf:
        async with working(first.hf):
            await first.is_live()
            await first.slow.enqueue(1)
            await convoys.runs(1)
            async with working(second.hf):
                await second.is_live()
        async with working(second.hf):
            await second.is_live()
            convoys.gate.set()
            await convoys.does(1)
            await convoys.empties()
    assert convoys.bus.dead_letters(QUEUE) == []


async def test_a_worker_that_stops_gives_back_the_messages_whose_jobs_have_not_started(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus)
    app = convoys.app()
    async with app.hf:
        await app.hf.queues.pause("default")
        async with working(app.hf):
            await app.is_live()
            await app.hf.enqueue_many([app.quick.call(number) for number in range(5)])
            await wait_until(lambda: states_of(convoys) == ["locked"] * 5, "held")
        await wait_until(lambda: states_of(convoys) == ["active"] * 5, "given back")
    # It received none of them again, or another worker would have to wait for the lock.
    assert [each.delivery_count for each in convoys.messages] == [0] * 5


async def test_a_worker_that_is_killed_with_a_message_costs_latency_only(
    local_url: str, servicebus: StartBus, tmp_path: Path
) -> None:
    convoys = Convoys(local_url, servicebus, lock_seconds=2.0)
    stage = Stage(local_url, tmp_path)
    environment = {"HOLDFAST_MESSENGERS": convoys.address}
    try:
        job = await stage.jobs.gated.enqueue("gate")
        killed = stage.worker(lease_seconds=2, renew_seconds=0.2, environment=environment)
        await stage.noted("start", job.id)
        convoys.announce(job.id)
        await wait_until(lambda: [each.state for each in convoys.messages] == ["locked"], "held")
        killed.kill()
        stage.worker(environment=environment)
        await stage.noted("start", job.id, times=2)
        stage.open_gate("gate")
        (ended,) = await stage.ended(job)
        await convoys.empties()
    finally:
        await stage.close()
    assert (ended.state, ended.attempts) == (State.SUCCEEDED, 2)
    assert convoys.bus.dead_letters(QUEUE) == []


async def test_duplicates_run_nothing_twice_before_during_and_after_the_job(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus)
    silent, app = convoys.app(escorted=False), convoys.app()
    async with silent.hf, app.hf:
        job = await silent.slow.enqueue(1)
        convoys.announce(*[job.id] * 5)
        async with working(app.hf):
            await app.is_live()
            await convoys.runs(1)
            convoys.announce(*[job.id] * 5)
            await wait_until(lambda: len(convoys.messages) == 1, "only one is held")
            convoys.gate.set()
            await convoys.empties()
            convoys.announce(*[job.id] * 5)
            await convoys.empties()
            assert (await app.hf.get(job.id)).attempts == 1
    assert convoys.done == [1]
    assert convoys.bus.dead_letters(QUEUE) == []


STRANGE: list[bytes | dict[str, Any]] = [
    b"",
    b"\xff\x00",
    b"[" * 100_000,
    b"17",
    {"job_id": "a job"},
    {"job_id": None, "payload": "x" * 100_000},
]


async def test_what_names_no_job_becomes_a_dead_letter_and_stops_nothing(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus)
    app = convoys.app()
    async with app.hf, working(app.hf):
        await app.is_live()
        convoys.send(*STRANGE)
        convoys.announce(uuid4())
        await app.quick.enqueue(1)
        await convoys.does(1)
        await convoys.empties()
        letters = convoys.bus.dead_letters(QUEUE)
        reasons = [each.reason for each in letters]
        assert sorted(map(str, reasons)) == ["JobUnknown", *["NamesNoJob"] * len(STRANGE)]


async def test_what_a_message_says_of_its_job_counts_for_nothing(
    local_url: str, servicebus: StartBus
) -> None:
    """Another tenant, another queue, a payload of its own, properties out of range."""
    convoys = Convoys(local_url, servicebus)
    silent, app = convoys.app(escorted=False), convoys.app()
    async with silent.hf, app.hf, working(app.hf):
        await app.is_live()
        job = await silent.quick.options(tenant="acme").enqueue(1)
        told = {"job_id": str(job.id), "tenant_id": "mallory", "payload": {"number": 2}}
        convoys.send(
            told,
            session_id="mallory",
            application_properties={
                "attempt": 1e300,
                "priority": "first",
                "x-holdfast-again": -5,
                "x-correlation-id": 7,
            },
        )
        await convoys.does(1)
        await convoys.empties()
        ended = await app.hf.get(job.id)
    assert (ended.state, ended.tenant, ended.attempts) == (State.SUCCEEDED, "acme", 1)


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
async def test_a_broker_with_a_wrong_clock_costs_latency_only(
    local_url: str, servicebus: StartBus, seconds: float
) -> None:
    convoys = Convoys(local_url, servicebus)
    convoys.bus.advance(seconds)
    convoys.failures = 2
    app = convoys.app(poll_seconds=0.5)
    async with app.hf, working(app.hf):
        await app.is_live()
        job = await app.quick.enqueue(1)
        await convoys.does(1)
        assert (await app.hf.get(job.id)).attempts == 3
        if seconds > 0:  # a message that comes too early is put off only so often
            await convoys.empties()


async def test_a_lock_that_is_lost_while_its_job_runs_costs_nothing(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus, lock_seconds=30.0)
    app = convoys.app()
    async with app.hf, working(app.hf):
        await app.is_live()
        job = await app.slow.enqueue(1)
        await convoys.runs(1)
        await wait_until(lambda: [each.state for each in convoys.messages] == ["locked"], "held")
        convoys.bus.advance(31.0)
        await wait_until(lambda: convoys.messages[0].delivery_count == 1, "delivered again")
        convoys.gate.set()
        await convoys.does(1)
        await convoys.empties()
        assert (await app.hf.get(job.id)).attempts == 1


async def test_a_broker_that_is_away_when_a_job_ends_gets_no_job_run_again(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus, lock_seconds=1.0)
    app = convoys.app()
    async with seen_events() as seen, app.hf, working(app.hf):
        await app.is_live()
        job = await app.slow.enqueue(1)
        await convoys.runs(1)
        await wait_until(lambda: [each.state for each in convoys.messages] == ["locked"], "held")
        await asyncio.to_thread(convoys.bus.stop)
        convoys.gate.set()
        await convoys.does(1)
        await seen.first("messenger_lost")
        await asyncio.to_thread(convoys.bus.start)
        await convoys.empties()
        ended = await app.hf.get(job.id)
    assert (ended.state, ended.attempts) == (State.SUCCEEDED, 1)


async def test_the_message_of_a_job_that_is_canceled_is_let_go_and_then_completed(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus, lock_seconds=1.0)
    app = convoys.app()
    async with app.hf, working(app.hf):
        await app.is_live()
        job = await app.slow.enqueue(1)
        await convoys.runs(1)
        await app.hf.cancel(job.id)
        await convoys.empties()
        assert (await app.hf.get(job.id)).state is State.CANCELED
    assert convoys.done == []


async def test_a_message_whose_job_can_not_start_is_put_off_a_few_times(
    local_url: str, servicebus: StartBus
) -> None:
    """Its queue is paused. When it is resumed, the database says so."""
    convoys = Convoys(local_url, servicebus)
    app = convoys.app()
    async with app.hf, working(app.hf):
        await app.is_live()
        await app.hf.queues.pause("default")
        job = await app.quick.enqueue(1)

        def put_off() -> list[object]:
            return [
                each.application_properties.get("x-holdfast-again") for each in convoys.messages
            ]

        for again in range(1, MESSAGE_PUT_OFF_MAX + 1):
            await wait_until(partial(is_only, again, put_off), lambda: f"{convoys.messages}")
            convoys.bus.advance(60.0)
        await convoys.empties()
        assert (await app.hf.get(job.id)).state is State.QUEUED
        assert convoys.bus.dead_letters(QUEUE) == []


async def test_a_message_that_comes_too_early_is_sent_again_for_the_time_of_its_row(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus)
    silent, app = convoys.app(escorted=False), convoys.app()
    async with silent.hf, app.hf, working(app.hf):
        await app.is_live()
        job = await silent.quick.options(delay_seconds=3600).enqueue(1)
        convoys.announce(job.id)
        await wait_until(partial(is_only, "scheduled", lambda: states_of(convoys)), "put off")
        convoys.bus.advance(3500.0)
        assert states_of(convoys) == ["scheduled"]
        assert (await app.hf.get(job.id)).attempts == 0


async def test_a_dead_letter_makes_a_worker_look_and_stays(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus)
    messenger = convoys.messenger()
    ear = Ear()
    listener = await messenger.listen(ear)  # it has no worker, so it receives no message
    try:
        await wait_until(lambda: messenger.status().live, "live")
        job_id = uuid4()
        convoys.announce(job_id)
        convoys.receiving(
            lambda receiver: receiver.dead_letter_message(receive_one(receiver), reason="Poison")
        )
        await ear.hears(job_id)
        assert [each.reason for each in convoys.bus.dead_letters(QUEUE)] == ["Poison"]
    finally:
        await listener.close()
        await messenger.close()


async def test_a_dead_letter_is_told_of_once_however_often_the_connection_breaks(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus)
    app = convoys.app()

    def bury(receiver: Any) -> None:
        receiver.dead_letter_message(receive_one(receiver), reason="Poison")

    convoys.send(b"first")
    convoys.receiving(bury)
    async with seen_events() as seen, app.hf, working(app.hf):
        await seen.first("message_dead")
        await asyncio.to_thread(convoys.bus.cut)
        await seen.first("messenger_restored")
        convoys.send(b"second")  # which the worker makes a dead letter
        await seen.first("message_dead", 2)
    assert ["Poison" in str(each) for each in seen.named("message_dead")] == [True, False]


async def test_only_its_own_attempts_end_a_job_whose_message_is_dead(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus, deliveries_max=5)
    silent, app = convoys.app(escorted=False), convoys.app()
    async with silent.hf, app.hf:
        job = await silent.quick.enqueue(1)
        convoys.announce(job.id)

        def abandon_five_times(receiver: Any) -> None:
            for _ in range(5):
                receiver.abandon_message(receive_one(receiver))

        convoys.receiving(abandon_five_times)
        (letter,) = convoys.bus.dead_letters(QUEUE)
        assert letter.reason == "MaxDeliveryCountExceeded"
        assert (await app.hf.get(job.id)).state is State.QUEUED
        async with working(app.hf):
            await convoys.does(1)
        ended = await app.hf.get(job.id)
    assert (ended.state, ended.attempts) == (State.SUCCEEDED, 1)
    assert len(convoys.bus.dead_letters(QUEUE)) == 1


async def test_workers_of_one_process_share_a_messenger(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus)
    app = convoys.app()
    async with app.hf, working(app.hf), working(app.hf):
        await app.is_live()
        await app.hf.enqueue_many([app.quick.call(number) for number in range(30)])
        await convoys.does(*range(30))
        await convoys.empties()


async def test_a_messenger_that_listens_twice_and_again_hears_each_time(
    local_url: str, servicebus: StartBus
) -> None:
    convoys = Convoys(local_url, servicebus)
    app = convoys.app()
    async with app.hf:
        for number in range(2):
            async with working(app.hf):
                await app.is_live()
                await app.quick.enqueue(number)
                await convoys.does(*range(number + 1))
                await convoys.empties()


async def test_a_message_that_comes_while_the_database_is_away_is_placed_when_it_is_back(
    own_postgres: Server, servicebus: StartBus
) -> None:
    convoys = Convoys(own_postgres.url("postgres"), servicebus, lock_seconds=60.0)
    silent, app = convoys.app(escorted=False), convoys.app()
    await app.hf.migrate()
    async with silent.hf, app.hf, working(app.hf):
        await app.is_live()
        job = await silent.quick.enqueue(1)
        await asyncio.to_thread(own_postgres.stop)
        convoys.announce(job.id)
        await wait_until(lambda: [each.state for each in convoys.messages] == ["locked"], "held")
        await asyncio.to_thread(own_postgres.start)
        await convoys.does(1)
        await convoys.empties()
        assert (await app.hf.get(job.id)).attempts == 1
    assert convoys.bus.dead_letters(QUEUE) == []
