"""What the customer's specification says of a job, its worker, its lease and a requeue."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from holdfast.stores.protocol import Claim
from holdfast.webhooks.delivery_job import DELIVERY, ORCHESTRATION
from tests.support.running import let_leases_run_out, signal, working
from tests.support.stores import full_store
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import Shop, both_stores

pytestmark = pytest.mark.heavy

TABLES = ("events", "subscriptions", "sagas", "attempts", "attempt_log", "dead_letters")


async def delivery_jobs(shop: Shop) -> list[dict[str, Any]]:
    return await shop.fetch("SELECT * FROM holdfast.webhook_delivery_jobs ORDER BY id")


def uuid_of(value: UUID | str) -> UUID:
    return UUID(str(value))


async def orchestrate(shop: Shop) -> None:
    await shop.hf.run_worker(queues=[ORCHESTRATION], until_empty=True)


async def rows_of(shop: Shop, table: str) -> list[dict[str, Any]]:
    return await shop.fetch(f"SELECT * FROM holdfast.webhook_{table} ORDER BY 1")


@both_stores
async def test_job_status_pending_leased_completed(shop: Shop, receiver: Receiver) -> None:
    receiver.gate.clear()
    await shop.webhooks.subscribe(receiver.url)
    await shop.publish()
    await orchestrate(shop)
    (pending,) = await delivery_jobs(shop)
    assert (pending["status"], pending["lease_until"]) == ("Pending", None)
    async with working(shop.hf):
        await signal(receiver.came)
        (leased,) = await delivery_jobs(shop)
        assert (leased["status"], leased["response_status"]) == ("Leased", None)
        assert leased["lease_until"] > leased["attempt_at"]
        receiver.gate.set()
        await shop.hf.result(uuid_of(leased["id"]), timeout_seconds=30)
    (completed,) = await delivery_jobs(shop)
    assert completed["id"] == pending["id"]
    assert (completed["status"], completed["response_status"]) == ("Completed", 200)
    assert completed["error_code"] is None


@both_stores
async def test_worker_reports_failed_and_must_not_decide(shop: Shop, receiver: Receiver) -> None:
    """It changes no saga, counts no attempt, creates no job and writes no dead letter."""
    receiver.answers = [503]
    await shop.webhooks.subscribe(receiver.url)
    await shop.publish()
    await orchestrate(shop)
    before = {table: await rows_of(shop, table) for table in TABLES}
    await shop.hf.run_worker(queues=[DELIVERY], until_empty=True)
    (failed,) = await delivery_jobs(shop)
    assert (failed["status"], failed["error_code"]) == ("Failed", "HTTP_503")
    for table in ("events", "subscriptions", "sagas", "dead_letters"):
        assert await rows_of(shop, table) == before[table], table
    assert len(await shop.jobs()) == 1
    await orchestrate(shop)
    (saga,) = await rows_of(shop, "sagas")
    assert (saga["status"], saga["attempt_count"]) == ("InFlight", 2)


@both_stores
async def test_lease_reset_cleaner(shop: Shop, receiver: Receiver, store_url: str) -> None:
    """A stale job stays Leased until the cleaner resets it. A second reset changes nothing."""
    await shop.webhooks.subscribe(receiver.url)
    await shop.publish()
    await orchestrate(shop)
    store = await full_store(shop.hf)
    (claimed,) = await store.claim(Claim("lost", 1, 30.0, ["webhooks.deliver"]))
    assert await store.reclaim(100) == []  # its lease has not expired
    await let_leases_run_out(store_url)
    (stale,) = await delivery_jobs(shop)
    assert (uuid_of(stale["id"]), stale["status"]) == (claimed.id, "Leased")
    assert len(await store.reclaim(100)) == 1
    assert await store.reclaim(100) == []
    (reset,) = await delivery_jobs(shop)
    assert (reset["status"], reset["lease_until"]) == ("Pending", None)
    (saga,) = await rows_of(shop, "sagas")
    assert (saga["status"], saga["attempt_count"]) == ("InFlight", 1)


@both_stores
async def test_payload_snapshot_is_the_full_payload(shop: Shop, receiver: Receiver) -> None:
    receiver.answers = [500]
    await shop.webhooks.subscribe(receiver.url)
    payload: dict[str, Any] = {
        "text": "zażółć 投遞",
        "amount": "1e3",
        "list": [1, 2.5, None, {"a": []}],
    }
    await shop.webhooks.publish("order.paid", payload)
    await shop.hf.run_due()
    (event,) = await rows_of(shop, "events")
    (letter,) = await rows_of(shop, "dead_letters")
    assert letter["payload_snapshot"] == event["payload"]
    assert json.loads(letter["payload_snapshot"]) == payload


@both_stores
async def test_requeue_logic_and_what_requeue_must_not(shop: Shop, receiver: Receiver) -> None:
    """It adds one saga and nothing else: no job, and no change to any row that was there."""
    receiver.answers = [500]
    dead, letter = await shop.dead_letter(receiver.url)
    before = {table: await rows_of(shop, table) for table in TABLES}
    jobs = await shop.jobs()
    new = await shop.webhooks.requeue(letter.id)
    assert (new.event_id, new.subscription_id) == (dead.event_id, dead.subscription_id)
    assert (new.status, new.attempt_count) == ("Pending", 0)
    assert new.next_attempt_at is not None
    assert new.next_attempt_at <= new.created_at  # due now
    after = {table: await rows_of(shop, table) for table in TABLES}
    after["sagas"] = [row for row in after["sagas"] if uuid_of(row["id"]) != new.id]
    assert after == before
    assert await shop.jobs() == jobs
    receiver.answers = [200]
    await shop.hf.run_due()
    (first,) = await shop.webhooks.attempts(new.id)
    assert first.id not in {job.id for job in jobs}
    assert await shop.webhooks.saga(dead.id) == dead
