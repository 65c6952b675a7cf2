"""The tables of an application beside its jobs: made, migrated, and used by named statements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import pytest

from holdfast import BadArguments, ConfigurationError, Holdfast, SchemaMismatch
from holdfast.transactions.tables import Tables
from tests.support.running import QUICK

pytestmark = pytest.mark.both_postgres

PACKAGE = "tests.support.shop"
STEPS = ["shop 0001_orders", "shop 0002_paying"]


class Order(msgspec.Struct):
    id: UUID
    price: Decimal
    is_paid: bool
    seal: bytes
    due_at: datetime
    made_at: datetime


class Shop:
    def __init__(self, url: str) -> None:
        self.hf = Holdfast(url, **QUICK)
        self.tables = self.hf.tables("shop", package=PACKAGE)

    async def insert(self, price: str = "1.50", seal: bytes = b"\0\xff") -> UUID:
        order_id = uuid4()
        async with self.hf.transaction() as connection:
            changed = await self.tables.on(connection).execute(
                "insert_order",
                id=order_id,
                price=Decimal(price),
                seal=seal,
                due_at=datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
            )
        assert changed == 1
        return order_id


@pytest.fixture
async def shop(store_url: str) -> AsyncIterator[Shop]:
    shop = Shop(store_url)
    await shop.hf.migrate()
    yield shop
    await shop.hf.close()


async def test_values_come_back_as_they_were_on_both_databases(shop: Shop) -> None:
    order_id = await shop.insert()
    async with shop.hf.transaction(read_only=True) as connection:
        order = await shop.tables.on(connection).one("order", Order, id=order_id)
    assert order is not None
    assert (order.id, order.price, order.is_paid, order.seal) == (
        order_id, Decimal("1.50"), False, b"\0\xff",
    )  # fmt: skip
    assert order.due_at == datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert order.made_at.tzinfo is not None


async def test_nothing_found_is_none_and_many_are_a_list(shop: Shop) -> None:
    await shop.insert("2.00")
    await shop.insert("1.00")
    async with shop.hf.transaction(read_only=True) as connection:
        statements = shop.tables.on(connection)
        assert await statements.one("order", Order, id=uuid4()) is None
        prices = [order.price for order in await statements.all("orders", Order)]
        assert prices == [Decimal("1.00"), Decimal("2.00")]


async def test_the_databases_clock_is_asked_in_the_same_words(shop: Shop) -> None:
    await shop.insert()
    century = 100 * 365 * 86400.0
    async with shop.hf.transaction(read_only=True) as connection:
        statements = shop.tables.on(connection)
        assert await statements.value("due_orders", seconds=0.0) == 0
        assert await statements.value("due_orders", seconds=century) == 1


async def test_what_one_database_says_in_its_own_way_wins(shop: Shop, store_url: str) -> None:
    expected = "SQLite" if store_url.startswith("sqlite") else "either"
    async with shop.hf.transaction(read_only=True) as connection:
        assert await shop.tables.on(connection).value("dialect") == expected


async def test_a_later_step_is_taken_too(shop: Shop) -> None:
    order_id = await shop.insert()
    async with shop.hf.transaction() as connection:
        assert await shop.tables.on(connection).execute("pay", id=order_id) == 1
    with pytest.raises(Exception, match="a paid order may not change"):
        async with shop.hf.transaction() as connection:
            await shop.tables.on(connection).execute("pay", id=order_id)


async def test_sqlite_makes_the_tables_at_the_first_use(local_url: str) -> None:
    shop = Shop(local_url)
    try:
        await shop.insert()
        assert not [step for step in await shop.hf.migrate() if step.startswith("shop")]
    finally:
        await shop.hf.close()


async def test_postgresql_asks_for_a_migration(postgres_url: str) -> None:
    await Holdfast(postgres_url).migrate()
    shop = Shop(postgres_url)
    with pytest.raises(SchemaMismatch, match=r"the tables of shop .*run: holdfast migrate"):
        await shop.insert()
    assert await shop.hf.migrate() == STEPS
    await shop.insert()
    await shop.hf.close()


async def test_migrations_that_start_at_once_make_the_tables_once(store_url: str) -> None:
    taken = await asyncio.gather(*(Shop(store_url).hf.migrate() for _ in range(4)))
    steps = [step for steps in taken for step in steps if step.startswith("shop")]
    assert steps == STEPS


async def test_tables_of_a_much_newer_application_are_refused(shop: Shop) -> None:
    await shop.hf.close()
    async with shop.hf.transaction() as connection:
        await connection.execute(
            "INSERT INTO application_steps (application, version, name, applied_at)"
            " VALUES ('shop', 4, 'later', CURRENT_TIMESTAMP)"
            if getattr(connection, "dialect", "") == "sqlite"
            else "INSERT INTO holdfast.application_steps VALUES ('shop', 4, 'later')"
        )
        with pytest.raises(SchemaMismatch, match="upgrade shop"):
            await shop.tables.missing(connection)


async def test_a_wrong_name_or_parameter_is_told(shop: Shop) -> None:
    async with shop.hf.transaction(read_only=True) as connection:
        statements = shop.tables.on(connection)
        with pytest.raises(BadArguments, match="no statement 'odrer'"):
            await statements.value("odrer")
        with pytest.raises(BadArguments, match="statement order takes id, not number"):
            await statements.value("order", number=1)


async def test_tables_are_declared_once_and_before_the_first_use(local_hf: Holdfast) -> None:
    with pytest.raises(ConfigurationError, match="before you use the database"):
        local_hf.tables("shop", package=PACKAGE)
    shop = Shop("sqlite:///shop.db")
    with pytest.raises(ConfigurationError, match="tables of 'shop' are already declared"):
        shop.hf.tables("shop", package=PACKAGE)
    assert isinstance(shop.tables, Tables)


class Packages:
    """Make packages with SQL of their own, each read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, **files: str) -> str:
        name = f"package_{uuid4().hex}"
        for path, text in files.items():
            place = self._folder / name / "sql" / f"{path.replace('__', '/')}.sql"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        return name


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    monkeypatch.syspath_prepend(str(tmp_path))
    return Packages(tmp_path)


@pytest.mark.parametrize("package", ["no_such_package", "json", "tests.support.running", "", None])
def test_a_package_without_sql_is_told_where_it_is_declared(package: str) -> None:
    with pytest.raises(ConfigurationError, match=r"folder `sql` in their package, and .* has none"):
        Holdfast("sqlite:///jobs.db").tables("shop", package=package)


async def test_a_package_without_steps_is_told(store_url: str, packages: Packages) -> None:
    hf = Holdfast(store_url)
    hf.tables("shop", package=packages.make(statements="-- name: one\nSELECT 1"))
    with pytest.raises(
        ConfigurationError, match=r"the tables of shop have no migrations.*migrations"
    ):
        await hf.migrate()


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (("0001_one", "0001_other"), "two migrations of .* have the number 0001: one and other"),
        (("0001_one", "2_two"), r"2_two\.sql of .* is not a migration's name"),
    ],
)
async def test_steps_that_can_not_be_ordered_are_refused(
    steps: tuple[str, str], told: str, local_url: str, packages: Packages
) -> None:
    hf = Holdfast(local_url)
    files = {f"sqlite__migrations__{step}": "SELECT 1;" for step in steps}
    hf.tables("shop", package=packages.make(**files))
    with pytest.raises(ConfigurationError, match=told):
        await hf.migrate()


async def test_two_statements_of_one_name_are_refused(
    local_hf: Holdfast, packages: Packages
) -> None:
    block = "-- name: one\nSELECT 1\n"
    async with local_hf.transaction(read_only=True) as connection:
        for files in ({"a": block, "b": block}, {"a": block + block}, {"sqlite__a": block * 2}):
            with pytest.raises(ConfigurationError, match="statements named one"):
                Tables("shop", packages.make(**files)).on(connection)


async def test_a_step_that_fails_half_way_leaves_nothing_and_is_named(
    store_url: str, packages: Packages
) -> None:
    is_sqlite = store_url.startswith("sqlite")
    folder, schema = ("sqlite", "") if is_sqlite else ("postgres", "holdfast.")
    table = f"CREATE TABLE {schema}shop_rows (id INTEGER);"
    first, second = f"{folder}__migrations__0001_rows", f"{folder}__migrations__0002_more"
    broken = {first: table, second: f"CREATE TABLE {schema}shop_more (id INTEGER);\nNO;"}
    hf = Holdfast(store_url)
    hf.tables("shop", package=packages.make(**broken))
    with pytest.raises(SchemaMismatch, match=r"step shop 0002_more failed, and no step was"):
        await hf.migrate()
    mended = Holdfast(store_url)
    mended.tables("shop", package=packages.make(**{first: table}))
    assert "shop 0001_rows" in await mended.migrate()


async def test_the_last_statement_of_a_step_needs_no_semicolon(
    store_url: str, packages: Packages
) -> None:
    is_sqlite = store_url.startswith("sqlite")
    folder, schema = ("sqlite", "") if is_sqlite else ("postgres", "holdfast.")
    text = f"CREATE TABLE {schema}a (id INTEGER);\nCREATE TABLE {schema}b (id INTEGER) -- last\n"
    hf = Holdfast(store_url)
    hf.tables("shop", package=packages.make(**{f"{folder}__migrations__0001_rows": text}))
    await hf.migrate()
    async with hf.transaction(read_only=True) as connection:
        assert await connection.fetchval(f"SELECT count(*) FROM {schema}b") == 0
    await hf.close()


async def test_a_statement_that_changes_no_rows_answers_none_changed(
    shop: Shop, packages: Packages
) -> None:
    made = "-- name: make\nCREATE TEMPORARY TABLE scratch (id INTEGER)"
    async with shop.hf.transaction() as connection:
        statements = Tables("scratch", packages.make(statements=made)).on(connection)
        assert await statements.execute("make") == 0
