"""The views that the specification names, with its columns, for each of its roles."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.support.roles import InstalledRoles, installed_roles
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import Shop, both_stores
from tests.webhooks.test_walls import make_app, make_dead_letter

pytestmark = pytest.mark.heavy

COLUMNS = {
    "webhook_delivery_jobs": (
        "id saga_id status lease_until attempt_at response_status error_code"
    ),
    "dead_letters": (
        "id saga_id event_id subscription_id final_error_code failed_at payload_snapshot"
    ),
    "sagas": (
        "id tenant event_id subscription_id status attempt_count next_attempt_at requeued_from"
        " created_at ended_at"
    ),
    "events": ("id tenant event_type aggregate_type aggregate_id occurred_at payload created_at"),
    "subscriptions": (
        "id tenant url event_types preset created_at disabled_at disabled_because failing_since"
    ),
}
READERS = ("api", "delivery", "orchestrator", "operator", "readonly")


@pytest.fixture
async def roles(postgres_url: str) -> AsyncIterator[InstalledRoles]:
    async with installed_roles(postgres_url, lambda url: make_app(url)[0]) as roles:
        yield roles


@both_stores
async def test_the_views_have_these_columns_and_rows(shop: Shop, receiver: Receiver) -> None:
    receiver.answers = [500]
    saga, letter = await shop.dead_letter(receiver.url)
    for view, columns in COLUMNS.items():
        rows = await shop.fetch(f"SELECT * FROM holdfast.{view}")
        assert list(rows[0]) == columns.split()
    jobs = await shop.fetch("SELECT * FROM holdfast.webhook_delivery_jobs ORDER BY attempt_at")
    assert [(job["status"], job["error_code"]) for job in jobs] == [("Failed", "HTTP_500")] * 3
    assert all(job["lease_until"] for job in jobs)  # as it was when the worker reported
    (seen,) = await shop.fetch("SELECT * FROM holdfast.sagas")
    assert (str(seen["id"]), seen["status"], seen["attempt_count"]) == (
        str(saga.id),
        "DeadLettered",
        3,
    )
    (dead,) = await shop.fetch("SELECT * FROM holdfast.dead_letters")
    assert str(dead["id"]) == str(letter.id)


async def test_each_role_reads_the_views_it_may(roles: InstalledRoles, receiver: Receiver) -> None:
    receiver.answers = [500]
    await make_dead_letter(roles, receiver.url)
    for role in READERS:
        for view in COLUMNS:
            if (role, view) == ("delivery", "dead_letters"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await rows_of(roles, role, view, "acme")
                continue
            assert await rows_of(roles, role, view, "acme") > 0, (role, view)
            # Only the API serves tenants; the others work for all of them.
            seen = await rows_of(roles, role, view, "other")
            assert (seen > 0) == (role != "api"), (role, view)


async def rows_of(roles: InstalledRoles, role: str, view: str, tenant: str) -> int:
    connection = await asyncpg.connect(roles.url(role))
    try:
        await connection.execute("SELECT set_config('holdfast.tenant', $1, false)", tenant)
        return len(await connection.fetch(f"SELECT * FROM holdfast.{view}"))
    finally:
        await connection.close()


async def test_each_role_does_its_part_of_what_is_new_and_nothing_else(
    roles: InstalledRoles, receiver: Receiver
) -> None:
    receiver.answers = [500]
    letter = await make_dead_letter(roles, receiver.url)
    calls = {
        f"SELECT holdfast.cancel_webhook_saga('{letter.saga_id}')": {"api"},
        "SELECT holdfast.delete_old_webhooks(60, 60, 10)": {"orchestrator"},
        "SELECT holdfast.note_webhook_results('[]')": {"orchestrator"},
        f"SELECT holdfast.webhook_subscription_stopped('{letter.id}')": {"orchestrator"},
        f"SELECT holdfast.disable_webhook_subscription('{letter.id}', 'x')": {
            "api", "orchestrator",
        },
        "SELECT id FROM holdfast.webhook_replays": {"api", "orchestrator", "operator", "readonly"},
        "UPDATE holdfast.webhook_replays SET events = 0": {"orchestrator"},
        "DELETE FROM holdfast.webhook_replays": set(),
        "DELETE FROM holdfast.webhook_sagas": set(),
        "DELETE FROM holdfast.webhook_dead_letters": set(),
        "DELETE FROM holdfast.webhook_subscriptions": set(),
    }  # fmt: skip
    for role in (*READERS, "worker"):
        connection = await asyncpg.connect(roles.url(role))
        try:
            for sql, allowed in calls.items():
                try:
                    await connection.fetch(sql)
                except asyncpg.InsufficientPrivilegeError:
                    assert role not in allowed, (role, sql)
                else:
                    assert role in allowed, (role, sql)
        finally:
            await connection.close()
