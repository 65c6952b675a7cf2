"""Every statement finds its rows by an index, however many sagas there are.

On PostgreSQL, each is explained as it runs: prepared, with a generic plan, on 50,000 sagas. Of each
ten, two wait, one is in flight, one is reported, and the others have ended. `stale` statistics were
gathered while the tables were empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from holdfast.stores.statements import Statement, load
from tests.webhooks.shop import Shop, on_postgres, on_sqlite

pytestmark = pytest.mark.heavy

SAGAS = 50_000
ID = str(uuid4())
KNOWN: dict[str, Any] = {
    "after_at": "2026-11-16T03:00:00Z",
    "all_kept_seconds": 60,
    "because": None,
    "dead_kept_seconds": 60,
    "attempt_no": 1,
    "attempts": json.dumps(
        [
            {
                "id": ID,
                "tenant": "acme",
                "saga_id": ID,
                "attempt_no": 1,
                "guard_seconds": 60,
                "error_code": "HTTP_500",
            }
        ]
    ),
    "ciphertext": None,
    "duration_ms": 7,
    "error_code": "HTTP_500",
    "event_types": "[]",
    "events": 1,
    "ids": json.dumps([ID]),
    "keep_seconds": 60,
    "kept_seconds": 60,
    "key_id": "k1",
    "letters": json.dumps([{"id": ID, "saga_id": ID, "error_code": "HTTP_500"}]),
    "of_events": json.dumps([{"tenant": "acme", "event_id": ID}]),
    "old": None,
    "policy": "{}",
    "response_status": 500,
    "results": json.dumps([{"id": ID, "failed": True}]),
    "retry_after_seconds": 7,
    "rows_max": 100,
    "started": 1,
    "since": "2026-11-16T03:00:00Z",
    "sagas": json.dumps([{"id": ID, "status": "Delivered", "delay_seconds": 1}]),
    "status": "Failed",
    "tenant": "acme",
    "until": "2026-11-17T03:00:00Z",
    "url": "https://example.org/",
    "waiting_max": 1000,
}
# What these contain is what there is to do; nothing leaves it but by being done.
TO_DO = {
    "webhook_attempts_to_check",
    "webhook_attempts_to_judge",
    "webhook_replays_open",
    "webhook_sagas_due",
    "webhook_subscriptions_stopping",
}
OF_COMMANDS = {"secrets_by_key", "stale_secrets"}
SCANS = re.compile(r"SCAN (?!CONSTANT ROW|\w+ VIRTUAL TABLE|given\b|\()")
# By the owner's functions, whose statements are those of SQLite.
CALLS = re.compile(r"SELECT (?:WHERE )?holdfast\.\w+\(")
NUMBERED = """
CREATE TEMPORARY TABLE numbered AS
SELECT
    i, i % 10 AS kind, (lpad(to_hex(i), 12, '0') || '-7000-8000-000000000000')::uuid AS id,
    now() + make_interval(secs => i - {sagas} / 2) AS at
FROM generate_series(1, {sagas}) AS i;
SET session_replication_role = replica;
INSERT INTO holdfast.webhook_subscriptions (id, tenant, url, event_types, preset, created_at)
SELECT id, 'tenant ' || i / 10 % 100, 'https://example.org/', '[]', 'standard', now() FROM numbered
WHERE i <= 5000;
INSERT INTO holdfast.webhook_events (
    id, tenant, event_type, occurred_at, payload, created_at
)
SELECT id, 'tenant ' || i / 10 % 100, 'order.paid', now(), '{{}}', now() FROM numbered;
INSERT INTO holdfast.webhook_sagas (
    id, tenant, event_id, subscription_id, status, attempt_count, next_attempt_at, created_at,
    ended_at
)
SELECT
    id, 'tenant ' || i / 10 % 100, id,
    (lpad(to_hex(1 + i % 5000), 12, '0') || '-7000-8000-000000000000')::uuid,
    CASE WHEN kind < 2 THEN 'Pending' WHEN kind < 4 THEN 'InFlight' ELSE 'Delivered' END,
    CASE WHEN kind < 2 THEN 0 ELSE 1 END, CASE WHEN kind < 2 THEN at END, now(),
    CASE WHEN kind >= 4 THEN now() END
FROM numbered;
INSERT INTO holdfast.webhook_attempts (
    id, tenant, saga_id, attempt_no, status, judged, attempt_at, check_at, ended_at, response_status
)
SELECT
    id, 'tenant ' || i / 10 % 100, id, 1, CASE kind WHEN 2 THEN 'Pending' ELSE 'Completed' END,
    kind > 3, now(), at, CASE WHEN kind > 2 THEN now() END, CASE WHEN kind > 2 THEN 200 END
FROM numbered WHERE kind >= 2;
INSERT INTO holdfast.webhook_attempt_log (attempt_id, tenant, saga_id, duration_ms, logged_at)
SELECT id, 'tenant ' || i / 10 % 100, id, 7, now() FROM numbered WHERE kind > 2;
INSERT INTO holdfast.webhook_dead_letters (
    id, tenant, saga_id, event_id, subscription_id, final_error_code, failed_at, payload_snapshot
)
SELECT id, 'tenant ' || i / 10 % 100, id, id, id, 'HTTP_500', now(), '{{}}' FROM numbered
WHERE kind = 9;
INSERT INTO holdfast.webhook_secrets (
    id, tenant, subscription_id, key_id, ciphertext, created_at
)
SELECT id, 'tenant ' || i / 10 % 100, id, 'k1', 'x', now() FROM numbered WHERE i <= 5000;
INSERT INTO holdfast.jobs (id, name, queue, priority, arguments, max_attempts)
SELECT id, 'webhooks.deliver', 'webhooks.delivery', 0, '{{}}', 4 FROM numbered WHERE kind = 2;
INSERT INTO holdfast.webhook_replays (
    id, tenant, since, until, after_at, after_id, created_at, stepped_at, ended_at
)
SELECT
    id, 'tenant ' || i / 10 % 100, now(), now(), now(), id, now(), at,
    CASE WHEN i > 10 THEN at END
FROM numbered WHERE i <= 5000;
SET session_replication_role = DEFAULT;
"""


def statements(dialect: str) -> Iterator[Statement]:
    """All that webhooks run, except for plain INSERTs and what commands read on request."""
    folder = files("holdfast.webhooks").joinpath("sql")
    for place in (folder, folder.joinpath(dialect)):
        for file in sorted(place.iterdir(), key=lambda file: file.name):
            if file.name.endswith(".sql"):
                text = file.read_text(encoding="utf-8")
                for each in load(text, numbered=True).values():
                    is_plain = each.sql.startswith("INSERT") and "SELECT" not in each.sql
                    if not is_plain and each.name not in OF_COMMANDS:
                        yield each


@on_sqlite
async def test_no_statement_reads_a_whole_table_of_sqlite(shop: Shop) -> None:
    for statement in statements("sqlite"):
        values = [KNOWN.get(name, ID) for name in statement.parameters]
        async with shop.hf.transaction() as connection:
            sql = statement.sql.replace("holdfast.", "")
            rows = await connection.fetch(f"EXPLAIN QUERY PLAN {sql}", *values)
        for row in rows:
            assert not SCANS.match(row["detail"]) or row["detail"].rpartition(" ")[2] in TO_DO, (
                f"{statement.name}: {[row['detail'] for row in rows]}"
            )


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else f"'{value}'"


async def check_plans(connection: asyncpg.Connection[Any], statistics: str) -> None:
    for statement in statements("postgres"):
        if CALLS.match(statement.sql):
            continue
        values = ", ".join(literal(KNOWN.get(name, ID)) for name in statement.parameters)
        await connection.execute(f"PREPARE one AS {statement.sql}")
        rows = await connection.fetch(f"EXPLAIN EXECUTE one{f'({values})' if values else ''}")
        await connection.execute("DEALLOCATE one")
        lines = [row[0] for row in rows]
        plan = "\n".join([f"{statement.name}, {statistics} statistics:", *lines])
        for place, line in enumerate(lines):
            assert not re.search("Seq Scan on (webhook|jobs)", line), plan
            # Without a condition an index is read whole, too.
            used = re.search(r"Index (?:Only )?Scan (?:Backward )?using (\w+)", line)
            if used and used[1] not in TO_DO:
                assert "Index Cond" in lines[place + 1], plan


@on_postgres
async def test_no_statement_reads_a_whole_table_of_postgres(shop: Shop) -> None:
    connection = await asyncpg.connect(shop.url)
    try:
        await connection.execute("ANALYZE")
        await connection.execute(NUMBERED.format(sagas=SAGAS))
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        await check_plans(connection, "stale")
        await connection.execute("ANALYZE")
        await check_plans(connection, "fresh")
    finally:
        await connection.close()
