"""What has ended stays as it is, whoever writes to the database."""

from __future__ import annotations

import sqlite3
from uuid import uuid4

import asyncpg
import pytest

from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import Shop, both_stores

pytestmark = pytest.mark.heavy

REFUSED = (sqlite3.IntegrityError, asyncpg.CheckViolationError, asyncpg.UniqueViolationError)


async def refused(shop: Shop, sql: str) -> None:
    with pytest.raises(REFUSED):
        await shop.fetch(sql)


@both_stores
async def test_a_dead_saga_never_changes_and_never_gets_another_job(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.answers = [500]
    saga, letter = await shop.dead_letter(receiver.url)
    this = f"WHERE id = '{saga.id}'"
    sagas = "holdfast.webhook_sagas"
    await refused(shop, f"UPDATE {sagas} SET status = 'InFlight', ended_at = NULL {this}")
    await refused(shop, f"UPDATE {sagas} SET attempt_count = attempt_count + 1 {this}")
    await refused(
        shop,
        f"INSERT INTO holdfast.webhook_attempts"
        f" (id, tenant, saga_id, attempt_no, attempt_at, check_at)"
        f" VALUES ('{uuid4()}', 'default', '{saga.id}', 9, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)",
    )
    await refused(
        shop,
        f"UPDATE holdfast.webhook_dead_letters SET payload_snapshot = '{{}}' "
        f"WHERE id = '{letter.id}'",
    )
    await refused(shop, "UPDATE holdfast.webhook_events SET payload = '{}'")
    await refused(shop, "UPDATE holdfast.webhook_attempts SET error_code = 'OTHER'")
    await refused(shop, "UPDATE holdfast.webhook_attempts SET judged = NOT judged")
    await refused(shop, "UPDATE holdfast.webhook_attempts SET tenant = 'other'")
    await refused(shop, "UPDATE holdfast.webhook_attempt_log SET error_text = 'other'")
    assert await shop.webhooks.sagas(event_id=saga.event_id) == [saga]
    assert await shop.webhooks.dead_letters() == [letter]


@both_stores
async def test_a_saga_keeps_the_rules_of_its_life(shop: Shop, receiver: Receiver) -> None:
    """An attempt has one job; nobody dies without a letter; what is delivered stays so."""
    await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    saga = await shop.saga(event)
    await refused(
        shop,
        "INSERT INTO holdfast.webhook_sagas (id, tenant, event_id, subscription_id, status,"
        f" requeued_from, created_at, ended_at)"
        f" SELECT '{uuid4()}', tenant, event_id, subscription_id, 'DeadLettered',"
        f" '{uuid4()}', created_at, created_at FROM holdfast.webhook_sagas",
    )
    await refused(
        shop,
        "UPDATE holdfast.webhook_sagas SET status = 'DeadLettered', next_attempt_at = NULL,"
        " ended_at = CURRENT_TIMESTAMP",
    )
    await shop.hf.run_due()
    await refused(
        shop,
        "UPDATE holdfast.webhook_sagas SET status = 'Pending', ended_at = NULL,"
        " next_attempt_at = CURRENT_TIMESTAMP",
    )
    assert (await shop.saga(event)).status == "Delivered"
    saga = await shop.saga(await shop.publish())
    insert = (
        "INSERT INTO holdfast.webhook_attempts"
        " (id, tenant, saga_id, attempt_no, attempt_at, check_at)"
        " VALUES ('{}', 'default', '{}', 1, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)"
    )
    await shop.fetch(insert.format(uuid4(), saga.id))
    await refused(shop, insert.format(uuid4(), saga.id))


@both_stores
async def test_a_preset_has_a_name(shop: Shop, receiver: Receiver) -> None:
    await shop.webhooks.subscribe(receiver.url)
    for name in ("", "a" * 201):
        await refused(shop, f"UPDATE holdfast.webhook_subscriptions SET preset = '{name}'")
    await shop.fetch(f"UPDATE holdfast.webhook_subscriptions SET preset = '{'a' * 200}'")


@both_stores
async def test_the_views_have_the_columns_that_were_promised(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.answers = [500]
    saga, _ = await shop.dead_letter(receiver.url)
    jobs = await shop.fetch("SELECT * FROM holdfast.webhook_delivery_jobs")
    (letter,) = await shop.fetch("SELECT * FROM holdfast.dead_letters")
    assert list(jobs[0]) == [
        "id",
        "saga_id",
        "status",
        "lease_until",
        "attempt_at",
        "response_status",
        "error_code",
    ]
    assert list(letter) == [
        "id",
        "saga_id",
        "event_id",
        "subscription_id",
        "final_error_code",
        "failed_at",
        "payload_snapshot",
    ]
    assert len(jobs) == 3
    assert str(letter["saga_id"]) == str(saga.id)
