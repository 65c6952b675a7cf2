"""What ended long ago is deleted, in bounded steps, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import ConfigurationError, Holdfast
from holdfast.webhooks import Webhooks
from holdfast.webhooks.limits import RETENTION_ROWS_MAX
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import Shop, both_stores
from tests.webhooks.test_replays import EVER
from tests.webhooks.test_rules_of_the_database import refused

pytestmark = pytest.mark.heavy

TABLES = ("subscriptions", "events", "sagas", "attempts", "attempt_log", "dead_letters", "replays")
LONG_AGO = "2026-01-01T00:00:00.000000Z"
# Triggers keep what has ended from changing, so age it as the owner.
AGED = (
    ("webhook_sagas", "ended_at"),
    ("webhook_events", "created_at"),
    ("webhook_subscriptions", "deleted_at"),
    ("webhook_replays", "ended_at"),
)


async def age(shop: Shop, *columns: tuple[str, str]) -> None:
    for table, column in columns or AGED:
        stay = f"{table}_stay"
        aging = f"UPDATE holdfast.{table} SET {column} = '{LONG_AGO}' WHERE {column} IS NOT NULL"
        if shop.url.startswith("postgres"):
            await shop.fetch(f"ALTER TABLE holdfast.{table} DISABLE TRIGGER USER")
            await shop.fetch(aging)
            await shop.fetch(f"ALTER TABLE holdfast.{table} ENABLE TRIGGER USER")
            continue
        found = await shop.fetch(f"SELECT sql FROM sqlite_schema WHERE name = '{stay}'")
        for _ in found:
            await shop.fetch(f"DROP TRIGGER {stay}")
        await shop.fetch(aging)
        for row in found:
            await shop.fetch(row["sql"])


async def counts(shop: Shop) -> dict[str, int]:
    found: dict[str, int] = {}
    for table in TABLES:
        (row,) = await shop.fetch(f"SELECT count(*) AS rows FROM holdfast.webhook_{table}")
        found[table] = row["rows"]
    return found


async def delete_all(shop: Shop) -> list[int]:
    steps = []
    while (deleted := await shop.webhooks._retention.step()) > 0:
        steps.append(deleted)
    return steps


@both_stores
async def test_what_ended_long_ago_is_deleted_with_all_that_belongs_to_it(
    store_url: str, receiver: Receiver
) -> None:
    receiver.answers = [200, 500]
    async with Shop.open(store_url) as shop:
        made = await shop.webhooks.subscribe(receiver.url)
        for _ in range(2):
            await shop.publish()
            await shop.hf.run_due()
        replay = await shop.webhooks.replay(*EVER, subscription_id=made.id)
        await shop.hf.run_due()
        await shop.webhooks.delete(made.id)
        await shop.hf.run_due()
        before = await counts(shop)
        assert (before["sagas"], before["dead_letters"], before["replays"]) == (4, 3, 1)
        assert await delete_all(shop) == []
        assert await counts(shop) == before
        await age(shop)
        assert await delete_all(shop) != []
        assert await counts(shop) == dict.fromkeys(TABLES, 0)
        assert await shop.fetch("SELECT * FROM holdfast.webhook_secrets") == []
        assert replay.tenant == "default"


@both_stores
async def test_what_is_open_or_recent_stays(shop: Shop, receiver: Receiver) -> None:
    receiver.answers = [500, 500, 500, 503, 200]
    await shop.webhooks.subscribe(receiver.url)
    await shop.publish()
    await shop.hf.run_due()
    await shop.webhooks.subscribe(receiver.url, preset="acme", tenant="waiting")
    open_saga = await shop.saga(await shop.publish(tenant="waiting"))
    await shop.hf.run_due()
    before = await counts(shop)
    await age(shop, ("webhook_events", "created_at"))
    assert await delete_all(shop) == []
    assert await counts(shop) == before
    await age(shop, ("webhook_sagas", "ended_at"))
    await delete_all(shop)
    left = await shop.fetch("SELECT id FROM holdfast.webhook_sagas")
    assert [str(row["id"]) for row in left] == [str(open_saga.id)]
    assert (await counts(shop))["events"] == 1
    await refused(shop, "DELETE FROM holdfast.webhook_sagas")


@both_stores
async def test_dead_letters_may_be_kept_longer(store_url: str, receiver: Receiver) -> None:
    receiver.answers = [500, 500, 500, 200]
    kept = {"sagas_kept_seconds": 60, "dead_letters_kept_seconds": 10 * 365 * 86400}
    hf = Holdfast(store_url)
    webhooks = Webhooks(hf, **kept)  # type: ignore[arg-type]
    async with Shop.open(store_url) as shop, hf:
        saga, letter = await shop.dead_letter(receiver.url)
        await shop.publish()
        await shop.hf.run_due()
        await age(shop)
        while await webhooks._retention.step():
            pass
        assert [each.id for each in (await webhooks.list_sagas()).sagas] == [saga.id]
        assert await webhooks.dead_letter(letter.id) == letter
        assert (await counts(shop))["events"] == 1


@both_stores
async def test_one_step_deletes_a_bounded_number_of_rows(shop: Shop) -> None:
    await shop.webhooks.subscribe("https://example.org/")
    async with shop.hf.transaction() as connection:
        for _ in range(RETENTION_ROWS_MAX + 7):
            await shop.publish(connection=connection)
    await shop.fetch(
        "UPDATE holdfast.webhook_sagas SET status = 'Canceled', next_attempt_at = NULL,"
        f" ended_at = '{LONG_AGO}'"
    )
    await age(shop, ("webhook_events", "created_at"))
    assert await delete_all(shop) == [RETENTION_ROWS_MAX, 7]
    assert (await counts(shop))["events"] == 0


@both_stores
async def test_a_worker_deletes_what_is_old(store_url: str, receiver: Receiver) -> None:
    async with Shop.open(store_url) as shop:
        await shop.webhooks.subscribe(receiver.url)
        await shop.publish()
        await shop.hf.run_due()
        await age(shop)
    async with Shop.open(store_url) as shop:
        await shop.hf.run_due()
        assert (await counts(shop))["sagas"] == 0


@pytest.mark.parametrize(
    "options",
    [
        {"sagas_kept_seconds": 59},
        {"dead_letters_kept_seconds": float("inf")},
        {"disable_after_seconds": 0},
        {"disable_after_seconds": float("nan")},
    ],
)
def test_a_time_that_can_not_be_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Webhooks(Holdfast(f"sqlite:///{tmp_path}/shop.db"), **options)
