"""Roles of the server: compare the catalog with the decisions, and fix the differences.

Every difference comes with the statement that fixes it. Installing executes these statements, so it
changes nothing where there is no difference, and can't disagree with a check.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from holdfast.domain.errors import BadArguments, ConfigurationError
from holdfast.domain.privileges import Decisions, merged
from holdfast.domain.roles import InstalledRoles, RoleDifference
from holdfast.stores.decisions import load_decisions
from holdfast.stores.postgres.rows import SQL, fetch_on

ENGINE: Final = "engine"  # the name of our own decisions, beside those of applications
_PRIVILEGES: Final = "privilege_differences"
_POLICIES: Final = "policy_differences"
_OWNERS: Final = "owner_differences"
# In this order: what one of them repairs, the next ones need.
_COMPARISONS: Final = (
    "role_differences",
    "member_differences",
    _OWNERS,
    "default_differences",
    "row_security_differences",
    _POLICIES,
    "view_differences",
    "function_differences",
    _PRIVILEGES,
)

Change = Callable[[InstalledRoles | None], InstalledRoles]


async def installed(connection: Any) -> InstalledRoles | None:
    """What was installed in this database, and from which decisions."""
    if not await connection.fetchval(SQL["roles_installed"].sql):
        return None
    (row,) = await fetch_on(connection, "recorded_roles")
    decisions = msgspec.json.decode(row["decisions"], type=dict[str, Decisions])
    return InstalledRoles(row["prefix"], row["callers"], decisions)


async def install(
    connection: Any, change: Change, verifiers: Mapping[str, str]
) -> tuple[InstalledRoles, list[RoleDifference]]:
    async with _changing(connection):
        await _check_installer(connection)
        before = await installed(connection)
        wanted = with_ours(change(before))
        await _check_callers(connection, wanted.callers)
        await connection.execute(SQL["prepare_record_of_roles"].sql)
        former = [] if before is None else [*set(before.callers) - set(wanted.callers)]
        comparison = _Comparison(connection, wanted, former)
        done = await comparison.repair()
        for role, verifier in verifiers.items():
            await comparison.execute_all("password_change", role=role, verifier=verifier)
        if left := [each for each in await comparison.all() if each.fix is not None]:
            raise ConfigurationError(
                f"this login can't fix a difference: {left[0].text}; run as a superuser:"
                f" {left[0].fix}"
            )
    return wanted, done


async def differences(connection: Any, wanted: InstalledRoles) -> list[RoleDifference]:
    async with connection.transaction(readonly=True):
        await _name_in_full(connection)
        return await _Comparison(connection, wanted).all()


async def remove(connection: Any) -> dict[str, list[str]]:
    """Return the roles that could not be dropped, and where they are still used."""
    async with _changing(connection):
        found = await installed(connection)
        if found is None:
            return {}
        await _check_installer(connection)
        nothing = InstalledRoles(found.prefix)
        comparison = _Comparison(connection, nothing, found.callers)
        for name in (_POLICIES, _PRIVILEGES, "return_to_login"):
            await comparison.execute_all(name)
        await comparison.execute_all(
            _OWNERS, owner=await connection.fetchval("SELECT current_user")
        )
        await connection.execute("DROP TABLE holdfast.installed_roles")
        kept = {}
        for row in await comparison.fetch("removable_roles"):
            if row["used_by"]:
                kept[row["name"]] = row["used_by"]
            else:
                await connection.execute(row["fix"])
    return kept


async def migrate_as_owner(
    connection: Any,
    decisions: Mapping[str, Decisions],
    migrate: Callable[[], Awaitable[Sequence[str]]],
) -> list[str]:
    """If roles are installed, run the steps as the owner, so that what they create never belongs to
    anyone else. Decisions about it are applied in the same transaction."""
    await fetch_on(connection, "lock_migrations")
    found = await installed(connection)
    if found is None:
        return [*await migrate()]
    await _become_owner(connection, found)
    steps = await migrate()
    await connection.execute("SET LOCAL ROLE NONE")
    await _name_in_full(connection)
    wanted = with_ours(msgspec.structs.replace(found, decisions={**found.decisions, **decisions}))
    changes = await _Comparison(connection, wanted).repair()
    return [*steps, *([f"roles ({len(changes):,} changes)"] if changes else [])]


def with_ours(wanted: InstalledRoles) -> InstalledRoles:
    decisions = {**wanted.decisions, ENGINE: load_decisions(__package__, "sql")}
    return msgspec.structs.replace(wanted, decisions=decisions)


class _Comparison:
    """Compares the catalog with what is wanted."""

    def __init__(
        self, connection: Any, wanted: InstalledRoles, former_callers: Sequence[str] = ()
    ) -> None:
        self._connection = connection
        self._record = {
            "prefix": wanted.prefix,
            "callers": list(wanted.callers),
            "decisions": msgspec.json.encode(wanted.decisions, order="sorted").decode(),
        }
        self._values: dict[str, object] = {
            **self._record,
            "decisions": msgspec.json.encode(merged(wanted.decisions.values())).decode(),
            "former_callers": list(former_callers),
            "owner": wanted.name("owner"),
        }

    async def all(self) -> list[RoleDifference]:
        names = (*_COMPARISONS, "undecided_objects")
        return [each for name in names for each in await self._compare(name)]

    async def repair(self) -> list[RoleDifference]:
        """Fix all differences, record what is wanted, and return what differed."""
        done: list[RoleDifference] = []
        for name in _COMPARISONS:
            if name == _OWNERS:
                await self.execute_all("join_owner")
            found = await self._compare(name)
            for each in found:
                await self._connection.execute(each.fix)
            done += found
            if name == _POLICIES:
                await self.execute_all("unsealed_policies")
        await fetch_on(self._connection, "record_roles", **self._record)
        return done

    async def execute_all(self, name: str, **values: object) -> None:
        for row in await self.fetch(name, **values):
            await self._connection.execute(row["fix"])

    async def fetch(self, name: str, **values: object) -> Sequence[Any]:
        given = SQL[name].arguments(self._values | values)
        rows: Sequence[Any] = await self._connection.fetch(SQL[name].sql, *given)
        return rows

    async def _compare(self, name: str) -> list[RoleDifference]:
        return [RoleDifference(row["difference"], row["fix"]) for row in await self.fetch(name)]


@asynccontextmanager
async def _changing(connection: Any) -> AsyncIterator[None]:
    async with connection.transaction():
        await fetch_on(connection, "lock_migrations")
        await _name_in_full(connection)
        yield


async def _name_in_full(connection: Any) -> None:
    """Have the server qualify names in expressions with schemas that are not in this path."""
    await connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")


async def _check_installer(connection: Any) -> None:
    (row,) = await fetch_on(connection, "installer")
    login = row["login"]
    if row["owner"] is None:
        raise ConfigurationError("the database is empty; run: holdfast migrate")
    if not row["may_create_roles"]:
        raise ConfigurationError(
            f"the login {login} can't create roles; use an administrator login, or run as one:"
            f" {row['allow_roles']}"
        )
    if not row["is_owner"]:
        raise ConfigurationError(
            f"the login {login} doesn't own the schema holdfast; use the login {row['owner']}, or"
            " a member of that role"
        )
    if not row["may_create_schemas"]:
        raise ConfigurationError(
            f"the login {login} can't give a schema to another role; run as the owner of the"
            f" database: {row['allow_schemas']}"
        )


async def _check_callers(connection: Any, callers: Sequence[str]) -> None:
    known = {row["name"] for row in await fetch_on(connection, "known_roles", names=list(callers))}
    if unknown := sorted(set(callers) - known):
        raise BadArguments(f"role {unknown[0]!r} does not exist on this server")


async def _become_owner(connection: Any, found: InstalledRoles) -> None:
    (row,) = await fetch_on(connection, "acting_owner", prefix=found.prefix)
    if not row["may_act"]:
        logins = " or ".join(row["members"]) or "a superuser's"
        raise ConfigurationError(
            f"the login {row['login']} can't migrate this database, because {row['owner']} owns its"
            f" tables; use the login {logins}"
        )
    await connection.execute(row["act"])
