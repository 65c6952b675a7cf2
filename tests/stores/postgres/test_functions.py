"""What deletes is a function of the schema's owner, and only those who were told to may call it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast import ConfigurationError, Holdfast
from holdfast.domain.job import Count
from holdfast.domain.states import State
from holdfast.operations.own_tables import PACKAGE
from holdfast.runtime.seam import Seam
from holdfast.stores.migrations import steps
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.rows import SQL
from holdfast.testing.conformance.harness import claim, enqueue, new_id, success
from holdfast.transactions.tables import Statements, Tables
from tests.support.roles import PACKAGES, InstalledRoles, administered, url_as, with_all_tables

FUNCTIONS = """
SELECT
    oid::regprocedure::text AS signature, prosecdef AS is_definer, proconfig AS settings,
    EXISTS (
        SELECT FROM aclexplode(coalesce(proacl, acldefault('f', proowner)))
        WHERE grantee = 0 AND privilege_type = 'EXECUTE'
    ) AS is_public
FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace
"""
PINNED = "search_path=pg_catalog, pg_temp"
BEFORE = 10  # the version without these functions
SHARED = """
GRANT USAGE ON SCHEMA holdfast TO "{worker}", "{watcher}";
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO "{worker}";
GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO "{watcher}";
"""


@pytest.mark.both_postgres
async def test_what_acts_for_the_owner_is_pinned_and_public_to_nobody(postgres_url: str) -> None:
    app = with_all_tables(postgres_url)
    await app.migrate()
    await app.close()
    connection = await asyncpg.connect(postgres_url)
    found = await connection.fetch(FUNCTIONS)
    await connection.close()
    definers = [each for each in found if each["is_definer"]]
    assert len(definers) > 25
    assert [each["signature"] for each in definers if PINNED not in each["settings"]] == []
    assert [each["signature"] for each in definers if each["is_public"]] == []


async def test_no_function_of_the_engine_is_public(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    for step in steps("postgres"):
        await connection.execute(step.sql)
    found = await connection.fetch(FUNCTIONS)
    await connection.close()
    assert [each["signature"] for each in found if each["is_public"]] == []


def test_no_statement_deletes() -> None:
    packages = {name: Tables(name, package) for name, package in PACKAGES.items()}
    packages["service"] = Tables("service", PACKAGE)
    found = [name for name, statement in SQL.items() if _deletes(statement.sql)]
    for name, tables in packages.items():
        statements: Statements = tables.on(None)
        found += [
            f"{name}: {each.name}" for each in statements._statements.values() if _deletes(each.sql)
        ]
    assert found == []


def _deletes(sql: str) -> bool:
    """A vacuum with TRUNCATE off doesn't."""
    return re.search(r"DELETE FROM|TRUNCATE(?! OFF)", sql.upper()) is not None


@pytest.fixture
async def upgraded(postgres_url: str) -> AsyncIterator[InstalledRoles]:
    """A database of the version before, with grants made by hand, after its upgrade."""
    async with administered(postgres_url) as roles:
        connection = await asyncpg.connect(roles.admin_url)
        for step in steps("postgres")[:BEFORE]:
            await connection.execute(step.sql)
            await connection.execute(
                "INSERT INTO holdfast.schema_version (version, name) VALUES ($1, $2)",
                step.version,
                step.name,
            )
        for role in ("worker", "watcher"):
            await connection.execute(f'CREATE ROLE "{roles.name(role)}" LOGIN')
        names = {role: roles.name(role) for role in ("worker", "watcher")}
        await connection.execute(SHARED.format(**names))
        await connection.close()
        app = Holdfast(roles.admin_url)
        await app.migrate()
        await app.close()
        yield roles


async def test_a_role_that_could_delete_jobs_keeps_working_after_the_upgrade(
    upgraded: InstalledRoles,
) -> None:
    store = PostgresStore(url_as(upgraded.admin_url, upgraded.name("worker")), Seam())
    await store.open()
    try:
        done, canceled = [await enqueue(store) for _ in range(2)]
        assert [each.job_id for each in await store.cancel([canceled])] == [canceled]
        [job] = await claim(store)
        assert job.id == done
        assert await store.settle([success(job)]) == []
        assert await store.requeue(canceled, new_id())
        assert await store.tidy(10) == 0
        counts = await store.counts()
        assert sorted(count.state for count in counts) == ["canceled", "queued", "succeeded"]
        assert counts[0] == Count("default", State.CANCELED, 1)
    finally:
        await store.close()


async def test_a_role_that_could_only_read_still_can_do_no_more(upgraded: InstalledRoles) -> None:
    store = PostgresStore(url_as(upgraded.admin_url, upgraded.name("watcher")), Seam())
    await store.open()
    try:
        assert await store.counts() == []
        with pytest.raises(ConfigurationError, match="permission denied for function cancel"):
            await store.cancel([new_id()])
    finally:
        await store.close()
