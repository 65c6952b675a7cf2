"""Role by table by privilege: what the catalog says, compared cell by cell with what is decided."""

from __future__ import annotations

import re
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import asyncpg
import pytest

from tests.conftest import SERVERS
from tests.support.forks import ROOT
from tests.support.postgres import Databases
from tests.support.roles import PACKAGES, InstalledRoles, shared_roles, with_all_tables
from tests.support.running import execute

ROLES = ("api", "worker", "orchestrator", "delivery", "operator", "readonly")
OF_COLUMNS = ("SELECT", "INSERT", "UPDATE", "REFERENCES")
OF_TABLES = (*OF_COLUMNS, "DELETE", "TRUNCATE", "TRIGGER")
MAINTAIN = "MAINTAIN"

# From the specification of the webhooks: S select, I insert, U update, u update of some columns.
WEBHOOKS = """
|              | events | subscriptions | secrets | sagas | attempts | attempt_log | dead_letters |
| api          | SI     | SIU           | -       | S     | S        | S           | S            |
| delivery     | S      | S             | S       | S     | Su       | SI          | -            |
| orchestrator | S      | S             | -       | SIU   | SIU      | S           | SI           |
| operator     | S      | S             | -       | S     | S        | S           | S            |
| readonly     | S      | S             | -       | S     | S        | S           | S            |
"""

Cell = tuple[str, str, str | None, str]  # role, relation, column, privilege


@pytest.fixture(scope="module", params=SERVERS)
def roles(
    request: pytest.FixtureRequest, postgres_databases: Callable[[str], Databases]
) -> Iterator[InstalledRoles]:
    with shared_roles(postgres_databases(request.param), with_all_tables) as made:
        yield made


@pytest.fixture
async def catalog(roles: InstalledRoles) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(roles.admin_url)
    yield connection
    await connection.close()


def decided(kind: str) -> dict[str, dict[str, Any]]:
    """What all our packages decide, read without our loader."""
    folders = ["src/holdfast/stores/postgres/sql", "src/holdfast/operations/sql/postgres"]
    folders += [f"src/{name.replace('.', '/')}/sql/postgres" for name in PACKAGES.values()]
    files = [(ROOT / folder / "privileges.toml").read_text(encoding="utf-8") for folder in folders]
    return {name: each for text in files for name, each in _part(text, kind).items()}


def _part(text: str, kind: str) -> dict[str, dict[str, Any]]:
    part: dict[str, dict[str, Any]] = tomllib.loads(text).get(kind, {})
    return part


async def relations(catalog: asyncpg.Connection) -> dict[str, list[str]]:
    """All tables and views with their columns. Partitions of days are for nobody."""
    rows = await catalog.fetch(
        "SELECT relname, array_agg(attname::text ORDER BY attnum) AS columns"
        " FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid"
        " WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')"
        " AND attnum > 0 AND NOT attisdropped GROUP BY relname"
    )
    return {row["relname"]: row["columns"] for row in rows}


async def found_cells(catalog: asyncpg.Connection, roles: InstalledRoles) -> set[Cell]:
    names = {roles.name(role): role for role in ROLES} | {"public": "public"}
    maintain = [MAINTAIN] if catalog.get_server_version().major >= 17 else []
    of_tables = await catalog.fetch(
        "SELECT role, relname, NULL, privilege"
        " FROM pg_class, unnest($1::text[]) AS role, unnest($2::text[]) AS privilege"
        " WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')"
        " AND has_table_privilege(role, pg_class.oid, privilege)",
        [*names],
        [*OF_TABLES, *maintain],
    )
    of_columns = await catalog.fetch(
        "SELECT role, relname, attname, privilege"
        " FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid,"
        " unnest($1::text[]) AS role, unnest($2::text[]) AS privilege"
        " WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')"
        " AND attnum > 0 AND NOT attisdropped"
        " AND has_column_privilege(role, pg_class.oid, attname, privilege)",
        [*names],
        [*OF_COLUMNS],
    )
    return {(names[role], *rest) for role, *rest in map(tuple, [*of_tables, *of_columns])}


def wanted_cells(relations: dict[str, list[str]]) -> Iterator[Cell]:
    for relation, decision in (decided("tables") | decided("views")).items():
        for role in ROLES:
            for word, columns in re.findall(r"(\w+)(?:\(([^)]*)\))?", decision.get(role, "")):
                if not columns:
                    yield role, relation, None, word.upper()
                if word.upper() == MAINTAIN:
                    continue
                for column in re.findall(r"\w+", columns) or relations[relation]:
                    yield role, relation, column, word.upper()


async def test_every_role_has_exactly_what_is_decided_in_every_table_and_column(
    catalog: asyncpg.Connection, roles: InstalledRoles
) -> None:
    found = await found_cells(catalog, roles)
    maintains = catalog.get_server_version().major >= 17
    wanted = {
        cell for cell in wanted_cells(await relations(catalog)) if maintains or cell[3] != MAINTAIN
    }
    assert sorted(found - wanted, key=str) == []
    assert sorted(wanted - found, key=str) == []
    assert {cell[3] for cell in found} - {MAINTAIN} == {"SELECT", "INSERT", "UPDATE"}
    allowed = {cell[:2] for cell in found if cell[3] == MAINTAIN}
    assert allowed == ({("worker", "jobs"), ("delivery", "jobs")} if maintains else set())


async def test_every_table_view_and_function_has_one_decision(
    catalog: asyncpg.Connection,
) -> None:
    partitions = await catalog.fetch(
        "SELECT relname FROM pg_class"
        " WHERE relnamespace = 'holdfast'::regnamespace AND relispartition"
    )
    of_days = {name for (name,) in partitions} - {"history_rest"}
    there = set(await relations(catalog)) - of_days
    assert sorted(decided("tables").keys() | decided("views").keys()) == sorted(there)
    functions = await catalog.fetch(
        "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace"
    )
    assert sorted(decided("functions")) == sorted(name for (name,) in functions)
    for name, table in decided("tables").items():
        assert ("tenant" in table) != ("shared" in table), name


async def test_a_new_table_without_a_decision_is_reported(roles: InstalledRoles) -> None:
    app = with_all_tables(roles.admin_url)
    assert await app.roles.check() == []
    await execute(roles.admin_url, "CREATE TABLE holdfast.invoices (id integer)")
    found = [each for each in await app.roles.check() if "invoices" in each.text]
    await execute(roles.admin_url, "DROP TABLE holdfast.invoices")
    assert ["has no decision" in each.text for each in found] == [False, True]


async def test_functions_are_for_those_who_are_decided_and_act_for_the_owner_only_if_pinned(
    catalog: asyncpg.Connection, roles: InstalledRoles
) -> None:
    names = {roles.name(role): role for role in ROLES} | {"public": "public"}
    rows = await catalog.fetch(
        "SELECT proname, prosecdef, proconfig, array("
        "     SELECT role FROM unnest($1::text[]) AS role"
        "     WHERE has_function_privilege(role, pg_proc.oid, 'EXECUTE')"
        " ) AS executors"
        " FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace",
        [*names],
    )
    for name, is_definer, settings, executors in map(tuple, rows):
        decision = decided("functions")[name]
        listed = set(ROLES) if "all" in decision["execute"] else set(decision["execute"])
        assert {names[each] for each in executors} == listed - {"caller"}, name
        assert is_definer == decision.get("definer", False), name
        assert not is_definer or "search_path=pg_catalog, pg_temp" in settings, name


async def test_every_table_with_a_tenant_has_forced_row_security(
    catalog: asyncpg.Connection,
) -> None:
    rows = await catalog.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace"
        " AND relrowsecurity AND relforcerowsecurity"
    )
    tables = decided("tables")
    with_tenant = {name for name, each in tables.items() if "tenant" in each or "rows" in each}
    assert {name for (name,) in rows} == with_tenant


async def test_the_matrix_of_the_webhooks_is_the_specified_one(
    catalog: asyncpg.Connection, roles: InstalledRoles
) -> None:
    header, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in WEBHOOKS.strip().splitlines()
    ]
    found = await found_cells(catalog, roles)
    columns = await relations(catalog)
    for role, *cells in rows:
        for table, cell in zip(header[1:], cells, strict=True):
            relation = f"webhook_{table}"
            assert letters(found, role, relation, columns[relation]) == cell, (role, table)


def letters(found: set[Cell], role: str, relation: str, columns: list[str]) -> str:
    shown = ""
    for privilege in OF_TABLES:
        if (role, relation, None, privilege) in found:
            shown += privilege[0]
        elif any((role, relation, column, privilege) in found for column in columns):
            shown += privilege[0].lower()
    return shown or "-"


async def test_the_functions_of_the_webhooks_stand_in_for_rights_on_tables(
    roles: InstalledRoles, catalog: asyncpg.Connection
) -> None:
    functions = decided("functions")
    assert "api" in functions["add_webhook_secret"]["execute"]
    assert "orchestrator" in functions["disable_webhook_subscription"]["execute"]
    assert "operator" in functions["requeue_dead_letter"]["execute"]
    for reader in ("readonly", "delivery"):
        for name in ("add_webhook_secret", "disable_webhook_subscription", "requeue_dead_letter"):
            assert reader not in functions[name]["execute"]


async def test_no_login_of_these_tests_is_a_superuser(roles: InstalledRoles) -> None:
    for url in (roles.admin_url, *map(roles.url, ROLES)):
        connection = await asyncpg.connect(url)
        try:
            assert await connection.fetchval("SHOW is_superuser") == "off"
        finally:
            await connection.close()
