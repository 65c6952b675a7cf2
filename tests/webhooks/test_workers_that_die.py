"""A delivery job whose worker dies is taken up by another; one that nobody survives is reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from holdfast import Filter, Retry, State
from holdfast.webhooks import Message, Preset, Request
from holdfast.webhooks.limits import LEASES_MAX
from tests.support.processes import WAIT_SECONDS, Process, wait_until
from tests.support.running import let_leases_run_out, signal, working
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import Shop, both_stores, on_postgres, on_sqlite

pytestmark = pytest.mark.heavy


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
        variables = {"HOLDFAST_DATABASE_URL": self._url}
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
    await shop.run_guard(saga.id)
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
    saga = await shop.saga(event)
    async with working(shop.hf):
        await signal(receiver.came)
        (guard,) = await shop.waiting("webhooks.orchestrate")
        await shop.hf.jobs.retry(guard.id)
        await shop.hf.result(guard.id, timeout_seconds=WAIT_SECONDS)
        (attempt,) = await shop.webhooks.attempts(saga.id)
        (next_guard,) = await shop.waiting("webhooks.orchestrate")
        assert attempt.status == "Leased"
        assert next_guard.id != guard.id
        assert (await shop.saga(event)).status == "InFlight"
        receiver.gate.set()
        await shop.hf.result(next_guard.id, timeout_seconds=WAIT_SECONDS)
    assert (await shop.saga(event)).status == "Delivered"
    assert await shop.waiting("webhooks.orchestrate") == []


@both_stores
async def test_a_report_makes_the_guard_due_and_nothing_is_left_waiting(
    shop: Shop, receiver: Receiver
) -> None:
    await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    await shop.hf.run_due()
    assert (await shop.saga(event)).status == "Delivered"
    assert await shop.waiting("webhooks.orchestrate") == []
    names = [job.name for job in (await shop.hf.jobs.list()).jobs]
    assert sorted(names) == ["webhooks.deliver", *["webhooks.orchestrate"] * 2]


@both_stores
async def test_a_report_whose_guard_is_gone_is_judged(shop: Shop, receiver: Receiver) -> None:
    """An operator canceled and deleted it, or the attempt is older than the column."""
    receiver.gate.clear()
    await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    async with working(shop.hf):
        await signal(receiver.came)
        (guard,) = await shop.waiting("webhooks.orchestrate")
        await shop.hf.jobs.cancel(guard.id)
        await shop.fetch("UPDATE holdfast.webhook_attempts SET guard_id = NULL")
        receiver.gate.set()

        async def is_delivered() -> bool:
            return (await shop.saga(event)).status == "Delivered"

        await wait_until(is_delivered, "delivered")


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
        assert await shop.waiting("webhooks.orchestrate") == []
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
    await shop.run_guard(saga.id)
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
    orchestrated = await shop.hf.jobs.list(Filter(name="webhooks.orchestrate"))
    assert len(orchestrated.jobs) == 2


@on_sqlite
async def test_a_trigger_said_twice_changes_nothing(shop: Shop, receiver: Receiver) -> None:
    await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    (trigger,) = await shop.waiting("webhooks.orchestrate")
    await shop.hf.run_due()
    saga = await shop.saga(event)
    await shop.hf.jobs.requeue(trigger.id)
    await shop.run_guard(saga.id)
    assert await shop.saga(event) == saga
    assert len(receiver.requests) == 1


@on_sqlite
async def test_a_guard_of_an_earlier_attempt_changes_nothing(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.answers = [503, 200]
    await shop.webhooks.subscribe(receiver.url, preset="acme")
    event = await shop.publish()
    await shop.hf.run_due()
    (retry,) = await shop.waiting("webhooks.orchestrate")
    assert retry.arguments["attempt_no"] == 2
    assert retry.parent_id is not None
    waiting = await shop.saga(event)
    guard = await shop.hf.jobs.requeue(retry.parent_id)
    await shop.hf.run_due()
    assert (await shop.hf.get(guard.id)).state is State.SUCCEEDED
    assert await shop.saga(event) == waiting
    assert await shop.waiting("webhooks.orchestrate") == [retry]

    receiver.gate.clear()
    receiver.came.clear()
    async with working(shop.hf):
        await shop.hf.jobs.retry(retry.id)
        await signal(receiver.came)
        late = await shop.hf.jobs.requeue(guard.id)
        await shop.hf.result(late.id, timeout_seconds=WAIT_SECONDS)
        (its_guard,) = await shop.waiting("webhooks.orchestrate")
        assert its_guard.arguments["attempt_no"] == 2
