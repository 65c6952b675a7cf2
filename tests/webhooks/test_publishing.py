"""What a published event costs, however many subscriptions want it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import asyncpg
import pytest

from tests.support.processes import wait_until
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import Shop, both_stores, on_postgres

pytestmark = pytest.mark.heavy

SUBSCRIPTIONS = 1000
SUBSCRIBE = {
    "postgresql": f"""
INSERT INTO holdfast.webhook_subscriptions
    (id, tenant, url, event_types, preset, policy, created_at)
SELECT gen_random_uuid(), tenant, url, event_types, preset, policy, created_at
FROM holdfast.webhook_subscriptions CROSS JOIN generate_series(2, {SUBSCRIPTIONS})
""",
    "sqlite": f"""
WITH RECURSIVE numbered (i) AS (
    VALUES (2) UNION ALL SELECT i + 1 FROM numbered WHERE i < {SUBSCRIPTIONS}
)
INSERT INTO webhook_subscriptions (id, tenant, url, event_types, preset, policy, created_at)
SELECT printf('00000000-0000-7000-8000-%012d', i), tenant, url, '[]', preset, policy, created_at
FROM webhook_subscriptions CROSS JOIN numbered
""",
}
WRITES = """
SELECT regexp_replace(relname, '^history_(\\d+|rest)$', 'history') AS name, kind,
    sum(count) AS count
FROM pg_stat_user_tables
CROSS JOIN LATERAL (
    VALUES ('inserted', n_tup_ins), ('updated', n_tup_upd), ('deleted', n_tup_del)
) AS written (kind, count)
WHERE relname ~ '^(webhook_(events|sagas|attempt|dead)|jobs$|history|attempts$|idempotency)'
GROUP BY 1, 2
"""
RFC_4122 = "specified in RFC 4122"


class Counting:
    """A connection that counts the statements sent through it."""

    def __init__(self, connection: Any) -> None:
        self.statements = 0
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        if name in ("execute", "fetch", "fetchrow", "fetchval"):
            self.statements += 1
        return getattr(self._connection, name)


@both_stores
async def test_an_event_for_a_thousand_subscriptions_is_one_statement(shop: Shop) -> None:
    await shop.webhooks.subscribe("http://127.0.0.1:9/", event_types=["order.paid"])
    await shop.fetch(SUBSCRIBE[shop.url.partition(":")[0]])
    async with shop.hf.transaction() as connection:
        counting = Counting(connection)
        event = await shop.publish(connection=counting)
    sagas = await shop.webhooks.sagas(event_id=event.id)
    assert len(sagas) == len({saga.id for saga in sagas}) == SUBSCRIPTIONS
    assert {(saga.id.version, saga.id.variant) for saga in sagas} == {(7, RFC_4122)}
    assert counting.statements == 1


@both_stores
async def test_the_ids_of_sagas_begin_with_their_time(shop: Shop) -> None:
    for _ in range(3):
        await shop.webhooks.subscribe("http://127.0.0.1:9/")
    event = await shop.publish()
    now = event.created_at.timestamp() * 1000
    for saga in await shop.webhooks.sagas(event_id=event.id):
        assert abs((saga.id.int >> 80) - now) < 60_000


@on_postgres
async def test_a_delivered_event_costs_thirteen_writes(shop: Shop, receiver: Receiver) -> None:
    """As docs/systems/webhooks.md says. The server counts what a session did when it ends."""
    await shop.webhooks.subscribe(receiver.url)
    await shop.hf.close()
    before = await writes(shop.url)
    event = await shop.publish()
    await shop.hf.run_due()
    assert (await shop.saga(event)).status == "Delivered"
    await shop.hf.close()
    counted: Counter[str] = Counter()

    async def is_counted() -> bool:
        counted.clear()
        counted.update(await writes(shop.url))
        counted.subtract(before)
        return counted.total() >= 13

    await wait_until(is_counted, lambda: f"all counted: {counted}")
    assert +counted == Counter(
        {
            "webhook_events inserted": 1,
            "webhook_sagas inserted": 1,
            "webhook_sagas updated": 2,
            "webhook_attempts inserted": 1,
            "webhook_attempts updated": 2,
            "webhook_attempt_log inserted": 1,
            "jobs inserted": 1,
            "jobs updated": 1,
            "jobs deleted": 1,
            "history inserted": 1,
            "history_counts inserted": 1,
        }
    )


async def writes(url: str) -> Counter[str]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(WRITES)
    finally:
        await connection.close()
    return Counter({f"{row['name']} {row['kind']}": row["count"] for row in rows})
