"""The lists in the dashboard read an index in its order, and the roles that show them may."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from holdfast.dashboard.systems import LAST
from holdfast.transactions.tables import Tables
from tests.support.roles import PACKAGES, installed_roles, with_all_tables

LISTS = {
    "webhooks": "pages_sagas",
    "passport": "pages_versions",
    "convert": "pages_conversions",
    "compute": "pages_requests",
}
VALUES = {
    "tenant": "default",
    "before": LAST,
    "before_id": UUID(int=7),
    "before_time": datetime(2026, 11, 18, tzinfo=UTC),
    "rows_max": 50,
    "id": UUID(int=7),
}


@pytest.mark.parametrize("system", LISTS)
async def test_a_page_of_a_list_is_read_without_sorting_the_whole(
    system: str, postgres_url: str
) -> None:
    hf = with_all_tables(postgres_url)
    await hf.migrate()
    async with hf, hf.transaction() as connection:
        # What an index can give in order is neither scanned nor sorted.
        await connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        known = Tables(system, PACKAGES[system]).on(connection)._statements
        for name in (LISTS[system], f"{LISTS[system]}_of_tenant"):
            statement = known[name]
            values = {each: VALUES[each] for each in statement.parameters}
            rows = await connection.fetch(f"EXPLAIN {statement.sql}", *statement.arguments(values))
            plan = "\n".join(row[0] for row in rows)
            assert "Index" in plan
            assert "Seq Scan" not in plan, plan
            assert "Sort" not in plan, plan


async def test_the_role_of_the_service_may_read_all_that_the_pages_show(postgres_url: str) -> None:
    async with installed_roles(postgres_url, with_all_tables) as roles:
        hf = with_all_tables(roles.url("api"))
        async with hf, hf.for_tenant("default").transaction(read_only=True) as connection:
            for system in LISTS:
                statements = Tables(system, PACKAGES[system]).on(connection)
                for name, statement in statements._statements.items():
                    if name.startswith("pages_"):
                        values = {each: VALUES[each] for each in statement.parameters}
                        rows = await connection.fetch(statement.sql, *statement.arguments(values))
                        assert rows == []
