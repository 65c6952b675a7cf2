"""An application's tables beside its jobs: migrations and named statements.

They are in the folder `sql` of the application's package:

    sql/*.sql                                   statements for both databases
    sql/postgres/*.sql, sql/sqlite/*.sql        statements for one of them
    sql/postgres/migrations/0001_orders.sql     numbered steps, forward only
    sql/sqlite/migrations/0001_orders.sql
    sql/postgres/privileges.toml                what each database role may do with them

The tables are in PostgreSQL's schema `holdfast`. SQLite has no schemas: there, the prefix
`holdfast.` is removed from the statements for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec

from holdfast.domain.errors import BadArguments, ConfigurationError, SchemaMismatch
from holdfast.domain.privileges import Decisions
from holdfast.runtime.package_files import files
from holdfast.stores.decisions import load_decisions
from holdfast.stores.migrations import Step, application_steps, split
from holdfast.stores.protocol import Store, Transactions, capability, require
from holdfast.stores.roles import Roles
from holdfast.stores.statements import Statement, load, read_sql
from holdfast.transactions.transaction import transaction

Row = TypeVar("Row")

_SCHEMA = "holdfast."


class Tables:
    """The tables of an application, as `hf.tables(...)` returns them."""

    def __init__(self, name: str, package: str) -> None:
        _check_package(name, package)
        self.name = name
        self.package = package

    def on(self, connection: Any) -> Statements:
        """Return the statements, on a connection of `hf.transaction()` or `ctx.completing()`."""
        return Statements(connection, _read(self.package, _dialect(connection)))

    async def missing(self, connection: Any) -> list[Step]:
        """Return the steps that this database has not applied."""
        known = application_steps(_dialect(connection), self.package)
        if not known:
            raise ConfigurationError(
                f"the tables of {self.name} have no migrations: add them to"
                f" sql/{_dialect(connection)}/migrations in {self.package}"
            )
        version = await _own(connection).value("application_version", application=self.name)
        newest = known[-1].version
        if version > newest + 1:
            raise SchemaMismatch(
                f"the tables of {self.name} are at version {version}, but this code knows {newest};"
                f" upgrade {self.name}"
            )
        return [step for step in known if step.version > version]

    async def migrate(self, connection: Any) -> list[str]:
        """Apply the missing steps in the connection's transaction, and return their names."""
        is_sqlite = _dialect(connection) == "sqlite"
        if not is_sqlite:
            # Two processes must not apply the same steps.
            await connection.execute("LOCK TABLE holdfast.application_steps IN EXCLUSIVE MODE")
        done = await self.missing(connection)
        for step in done:
            try:
                for statement in split(step.sql) if is_sqlite else [step.sql]:
                    await connection.execute(statement)
            except Exception as error:
                raise SchemaMismatch(
                    f"step {self._shown(step)} failed, and no step was applied: {error}"
                ) from error
            await _own(connection).execute(
                "record_step", application=self.name, version=step.version, name=step.name
            )
        return [self._shown(step) for step in done]

    def decisions(self) -> Decisions:
        """The decisions about database roles for these tables."""
        return load_decisions(self.package, "sql", "postgres")

    def _shown(self, step: Step) -> str:
        return f"{self.name} {step.version:04}_{step.name}"


async def check_tables(store: Store, declared: Sequence[Tables], *, may_migrate: bool) -> None:
    """Reject a database whose tables are not up to date, or migrate them."""
    if not declared:
        return
    async with transaction(_owner(store), read_only=True) as connection:
        missing = [tables for tables in declared if await tables.missing(connection)]
    if missing and not may_migrate:
        raise not_up_to_date(missing)
    await migrate_tables(store, missing)


def not_up_to_date(missing: Sequence[Tables]) -> SchemaMismatch:
    names = ", ".join(tables.name for tables in missing)
    return SchemaMismatch(f"the tables of {names} are not up to date; run: holdfast migrate")


async def migrate_tables(store: Store, declared: Sequence[Tables]) -> list[str]:
    """Apply all missing steps in one transaction, and return their names."""
    if not declared:
        return []
    roles = capability(store, Roles)
    async with transaction(_owner(store), read_only=False) as connection:

        async def migrate() -> list[str]:
            return [step for tables in declared for step in await tables.migrate(connection)]

        if roles is None:
            return await migrate()
        decisions = {tables.name: tables.decisions() for tables in declared}
        return await roles.migrate_as_owner(connection, decisions, migrate)


def _owner(store: Store) -> Transactions:
    return require(store, Transactions, "hold tables of an application")


class Statements:
    """Run an application's statements by name: `await statements.execute("pay", order=17)`."""

    def __init__(self, connection: Any, statements: Mapping[str, Statement]) -> None:
        self._connection = connection
        self._statements = statements

    async def execute(self, statement: str, **values: Any) -> int:
        """Run the statement and return the number of rows that it changed."""
        done = await self._connection.execute(*self._call(statement, values))
        if isinstance(done, int):
            return done
        # PostgreSQL's driver returns "UPDATE 3", or "CREATE TABLE".
        last: str = done.rpartition(" ")[2]
        return int(last) if last.isdigit() else 0

    async def value(self, statement: str, **values: Any) -> Any:
        """Return the first column of the first row, or None."""
        return await self._connection.fetchval(*self._call(statement, values))

    async def one(self, statement: str, row_type: type[Row], **values: Any) -> Row | None:
        """Return the first row, or None."""
        row = await self._connection.fetchrow(*self._call(statement, values))
        return None if row is None else _converted(row, row_type)

    async def all(self, statement: str, row_type: type[Row], **values: Any) -> list[Row]:
        """Return all rows."""
        rows = await self._connection.fetch(*self._call(statement, values))
        return [_converted(row, row_type) for row in rows]

    def _call(self, name: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
        if name not in self._statements:
            raise BadArguments(f"there is no statement {name!r}")
        statement = self._statements[name]
        if values.keys() != set(statement.parameters):
            raise BadArguments(
                f"statement {name} takes {', '.join(statement.parameters) or 'nothing'},"
                f" not {', '.join(values) or 'nothing'}"
            )
        return statement.sql, *statement.arguments(dict(values))


def _check_package(name: str, package: object) -> None:
    try:
        is_there = isinstance(package, str) and files(package).joinpath("sql").is_dir()
    except (ImportError, TypeError, ValueError):
        is_there = False
    if not is_there:
        raise ConfigurationError(
            f"the tables of {name} need a folder `sql` in their package, and {package!r} has none"
        )


def _converted(row: Any, row_type: type[Row]) -> Row:
    return msgspec.convert(dict(row), row_type, strict=False)


def _dialect(connection: Any) -> str:
    dialect: str = getattr(connection, "dialect", "postgres")
    return dialect


def _own(connection: Any) -> Statements:
    text = read_sql(__package__, "applications.sql")
    return Statements(connection, _load(text, _dialect(connection)))


@cache
def _read(package: str, dialect: str) -> dict[str, Statement]:
    folder = files(package).joinpath("sql")
    found: dict[str, Statement] = {}
    for place, of_both in ((folder, True), (folder.joinpath(dialect), False)):
        entries = place.iterdir() if place.is_dir() else ()
        here: dict[str, Statement] = {}
        for file in entries:
            if file.name.endswith(".sql"):
                text = file.read_text(encoding="utf-8")
                more = _load(text, dialect) if of_both else load(text, numbered=True)
                if twice := here.keys() & more.keys():
                    raise ConfigurationError(f"{package} has two statements named {min(twice)}")
                here |= more
        found |= here
    return found


def _load(sql: str, dialect: str) -> dict[str, Statement]:
    return load(sql.replace(_SCHEMA, "") if dialect == "sqlite" else sql, numbered=True)
