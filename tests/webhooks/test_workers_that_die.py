"""A delivery job whose worker dies is taken up by another; one that nobody survives is reported."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Retry, State
from holdfast.webhooks import Message, Preset, Request
from holdfast.webhooks.delivery_job import DELIVERY, ORCHESTRATION
from holdfast.webhooks.limits import LEASES_MAX
from tests.support.processes import WAIT_SECONDS, Process, wait_until
from tests.support.running import let_leases_run_out, seen_events, signal, working
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import Shop, both_stores, on_postgres, on_sqlite

pytestmark = pytest.mark.heavy

LONG_AGO = "2026-01-01T00:00:00Z"


def make_no_request(message: Message, keys: Sequence[bytes]) -> Request:
    raise ZeroDivisionError


class Workers:
    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._started: list[Process] = []

    def start(self) -> Process:
        name = f"worker-{len(self._started)}"
        target = "tests.webhooks.app:hf"
        command = ["-m", "holdfast.cli.main", "worker", target, "--concurrency=1"]
        variables = {
            "HOLDFAST_DATABASE_URL": self._url,
            "HOLDFAST_SECRET_KEYS": os.environ["HOLDFAST_SECRET_KEYS"],
        }
        process = Process(name, [*command, "--log-format=json"], self._folder, variables)
        self._started.append(process)
        return process

    def kill(self) -> None:
        for process in self._started:
            process.kill()


@pytest.fixture
def workers(store_url: str, tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(store_url, tmp_path)
    yield workers
    workers.kill()


@on_postgres
async def test_a_job_whose_worker_was_killed_in_the_request_is_delivered_by_another(
    shop: Shop, receiver: Receiver, workers: Workers, store_url: str
) -> None:
    receiver.gate.clear()
    await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    first = workers.start()
    await signal(receiver.came)
    saga = await shop.saga(event)
    (leased,) = await shop.webhooks.attempts(saga.id)
    assert (saga.status, leased.status) == ("InFlight", "Leased")
    assert leased.lease_until is not None
    first.kill()
    await let_leases_run_out(store_url)
    receiver.gate.set()
    second = workers.start()

    async def is_delivered() -> bool:
        return (await shop.saga(event)).status == "Delivered"

    await wait_until(is_delivered, lambda: f"delivered: {second.text}")
    (attempt,) = await shop.webhooks.attempts(saga.id)
    assert (attempt.id, attempt.status) == (leased.id, "Completed")
    assert len(receiver.requests) == 2
    assert receiver.requests[0].body == receiver.requests[1].body


@pytest.mark.slow
@on_sqlite
async def test_a_job_that_lost_four_leases_has_failed_and_the_orchestrator_decides(
    shop: Shop, receiver: Receiver, workers: Workers, store_url: str
) -> None:
    receiver.gate.clear()
    await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    for _ in range(4):
        receiver.came.clear()
        worker = workers.start()
        await signal(receiver.came)
        worker.kill()
        await let_leases_run_out(store_url)
    saga = await shop.saga(event)
    (attempt,) = await shop.webhooks.attempts(saga.id)

    async def is_dead() -> bool:
        return (await shop.hf.get(attempt.id)).state is State.DEAD

    async with working(shop.hf):
        await wait_until(is_dead, "the job is dead")
    assert (await shop.saga(event)).status == "InFlight"
    receiver.gate.set()
    await shop.run_guard()
    lost, last = await shop.webhooks.attempts(saga.id)
    assert (lost.id, lost.status, lost.error_code) == (attempt.id, "Failed", "LEASE_LOST")
    assert (last.attempt_no, last.status) == (2, "Completed")
    assert (await shop.saga(event)).status == "Delivered"


@both_stores
async def test_a_guard_that_finds_its_job_alive_comes_back_later(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.gate.clear()
    await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    async with working(shop.hf):
        await signal(receiver.came)
        await shop.let_guards_run_out()
        await shop.hf.queues.wake(ORCHESTRATION)

        async def is_checked() -> bool:
            (row,) = await shop.fetch("SELECT attempt_at, check_at FROM holdfast.webhook_attempts")
            return bool(row["check_at"] > row["attempt_at"])

        await wait_until(is_checked, "checked")
        saga = await shop.saga(event)
        (attempt,) = await shop.webhooks.attempts(saga.id)
        assert (saga.status, attempt.status) == ("InFlight", "Leased")
        receiver.gate.set()
        await shop.hf.result(attempt.id, timeout_seconds=WAIT_SECONDS)

        async def is_delivered() -> bool:
            return (await shop.saga(event)).status == "Delivered"

        await wait_until(is_delivered, "delivered")
    assert len(await shop.jobs()) == 1


@both_stores
async def test_a_delivered_event_costs_one_job(shop: Shop, receiver: Receiver) -> None:
    await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    await shop.hf.run_due()
    assert (await shop.saga(event)).status == "Delivered"
    (job,) = await shop.jobs()
    assert (job.name, job.queue) == ("webhooks.deliver", "webhooks.delivery")


@both_stores
async def test_two_orchestrators_at_once_make_one_attempt_for_each_saga(
    store_url: str, receiver: Receiver
) -> None:
    async with Shop.open(store_url) as shop, Shop.open(store_url) as other:
        await shop.webhooks.subscribe(receiver.url)
        for number in range(150):
            await shop.webhooks.publish("order.paid", {"order": number})
        orchestration: dict[str, Any] = {"queues": [ORCHESTRATION], "until_empty": True}
        async with seen_events() as seen:
            await asyncio.gather(
                *(each.hf.run_worker(**orchestration) for each in (shop, other, shop, other))
            )
        assert seen.named("sweep_failed") == []
        (row,) = await shop.fetch(
            "SELECT count(*) AS attempts, count(DISTINCT saga_id) AS sagas"
            " FROM holdfast.webhook_attempts"
        )
        assert (row["attempts"], row["sagas"]) == (150, 150)
        (count,) = await shop.hf.jobs.counts()
        assert (count.queue, count.state, count.jobs) == (DELIVERY, State.QUEUED, 150)
        assert receiver.requests == []


@both_stores
async def test_a_delivery_that_fails_by_itself_is_judged_without_its_guard(
    store_url: str, receiver: Receiver
) -> None:
    """Its last failure and the report of the attempt are one commit."""
    odd = Preset(name="odd", make_request=make_no_request, retry=Retry.none())
    async with Shop.open(store_url, [odd]) as shop:
        await shop.webhooks.subscribe(receiver.url, preset="odd")
        event = await shop.publish()
        await shop.hf.run_due()
        (attempt,) = await shop.webhooks.attempts((await shop.saga(event)).id)
        assert attempt.status == "Pending"
        for _ in range(LEASES_MAX - 1):
            await shop.hf.jobs.retry(attempt.id)
            await shop.hf.run_due()
        assert (await shop.hf.get(attempt.id)).state is State.DEAD
        (letter,) = await shop.webhooks.dead_letters()
        assert (letter.event_id, letter.final_error_code) == (event.id, "ZeroDivisionError")
        assert receiver.requests == []


@both_stores
async def test_a_canceled_delivery_job_is_a_failed_attempt(shop: Shop, receiver: Receiver) -> None:
    receiver.gate.clear()
    await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    saga = await shop.saga(event)
    async with working(shop.hf):
        await signal(receiver.came)
        (attempt,) = await shop.webhooks.attempts(saga.id)
        await shop.hf.jobs.cancel(attempt.id)
    receiver.gate.set()
    await shop.run_guard()
    first, second = await shop.webhooks.attempts(saga.id)
    assert (first.status, first.error_code) == ("Failed", "CANCELED")
    assert (second.attempt_no, second.status) == (2, "Completed")


@on_sqlite
async def test_a_delivery_job_that_was_requeued_by_hand_sends_nothing(
    shop: Shop, receiver: Receiver
) -> None:
    await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    await shop.hf.run_due()
    (attempt,) = await shop.webhooks.attempts((await shop.saga(event)).id)
    again = await shop.hf.jobs.requeue(attempt.id)
    await shop.hf.run_due()
    ended = await shop.hf.get(again.id)
    assert (ended.state, ended.error_code) == (State.FAILED, "NO_ATTEMPT")
    assert len(receiver.requests) == 1
    assert len(await shop.jobs()) == 2


@both_stores
async def test_a_report_that_comes_after_the_saga_has_ended_changes_nothing(
    shop: Shop, receiver: Receiver
) -> None:
    await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    await shop.hf.run_due()
    saga = await shop.saga(event)
    late, again = await shop.publish(), await shop.publish()
    await shop.hf.run_worker(queues=[ORCHESTRATION], until_empty=True)
    end = "UPDATE holdfast.webhook_sagas SET status = 'Canceled', ended_at = created_at"
    await shop.fetch(f"{end} WHERE event_id = '{late.id}'")
    await shop.hf.run_due()
    assert [(await shop.saga(each)).status for each in (event, late, again)] == [
        "Delivered",
        "Canceled",
        "Delivered",
    ]
    assert await shop.saga(event) == saga
    assert len(receiver.requests) == 2  # nothing was sent for the saga that had ended
    assert await shop.fetch("SELECT * FROM holdfast.webhook_attempts WHERE NOT judged") == []


@both_stores
async def test_an_attempt_that_somebody_added_is_lost_and_holds_up_nobody(
    shop: Shop, receiver: Receiver
) -> None:
    await shop.webhooks.subscribe(receiver.url)
    odd, event = await shop.publish(), await shop.publish()
    saga = await shop.saga(odd)
    await shop.fetch(
        "INSERT INTO holdfast.webhook_attempts"
        " (id, tenant, saga_id, attempt_no, attempt_at, check_at)"
        f" VALUES ('{uuid4()}', 'default', '{saga.id}', 1, '{LONG_AGO}', '{LONG_AGO}')"
    )
    await shop.hf.run_due()
    assert (await shop.saga(event)).status == "Delivered"
    assert (await shop.saga(odd)).status == "Delivered"
    attempts = await shop.webhooks.attempts(saga.id)
    assert [attempt.error_code for attempt in attempts] == ["LEASE_LOST", None]


@both_stores
async def test_settings_that_can_not_be_read_hold_up_nobody(shop: Shop, receiver: Receiver) -> None:
    odd = await shop.webhooks.subscribe(receiver.url, tenant="odd")
    await shop.webhooks.subscribe(receiver.url)
    await shop.fetch(
        f"UPDATE holdfast.webhook_subscriptions SET policy = '7' WHERE id = '{odd.id}'"
    )
    stuck, event = await shop.publish(tenant="odd"), await shop.publish()
    await shop.hf.run_due()
    assert (await shop.saga(event)).status == "Delivered"
    assert (await shop.saga(stuck)).status == "InFlight"
    assert len(receiver.requests) == 1
