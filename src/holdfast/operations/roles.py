"""Database roles: one for each kind of process, with the least privileges."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from holdfast.domain.errors import BadArguments, ConfigurationError
from holdfast.domain.privileges import ROLES
from holdfast.domain.roles import (
    DEFAULT_PREFIX,
    Installation,
    InstalledRoles,
    RoleDifference,
    check_prefix,
)
from holdfast.domain.scram import SALT_BYTES, scram_verifier
from holdfast.domain.texts import check_name
from holdfast.operations.desk import Desk
from holdfast.runtime.blocking import blocking
from holdfast.stores import roles as capabilities
from holdfast.stores.protocol import require
from holdfast.transactions.tables import Tables

PASSWORD_BYTES: Final = 24


class Roles:
    """`hf.roles`: install, check and remove database roles. PostgreSQL only."""

    def __init__(
        self, desk: Desk, database: Callable[[], str], tables: Callable[[], Sequence[Tables]]
    ) -> None:
        self._desk = desk
        self._database = database
        self._tables = tables
        self._run_sync = desk.run_sync

    async def install(self, *, prefix: str | None = None, passwords: bool = False) -> Installation:
        """Create the roles `<prefix>_api`, `<prefix>_worker` and so on, and grant each the
        privileges it needs, in one transaction. Where nothing differs, it changes nothing.

        Call it after `migrate`, with the same login, which must be able to create roles. From then
        on, `migrate` keeps the roles up to date. `passwords` gives each role a new random password;
        without it, they have none until you set one.
        """

        def change(before: InstalledRoles | None) -> InstalledRoles:
            given = prefix or (before.prefix if before else DEFAULT_PREFIX)
            check_prefix(given)
            if before is not None and before.prefix != given:
                raise ConfigurationError(
                    f"this database already has roles with the prefix {before.prefix}; remove them"
                    " first: holdfast roles remove"
                )
            return self._wanted(before or InstalledRoles(given))

        words = {role: secrets.token_urlsafe(PASSWORD_BYTES) for role in ROLES if passwords}
        verifiers = {
            role: scram_verifier(word, secrets.token_bytes(SALT_BYTES))
            for role, word in words.items()
        }
        async with self._store() as store:
            roles, changes = await store.install_roles(change, verifiers)
        urls = {
            role: _url_of(self._database(), roles.name(role), words.get(role)) for role in ROLES
        }
        return Installation(roles, changes, urls)

    async def installed(self) -> InstalledRoles | None:
        """Return the roles of this database, or None if none are installed."""
        async with self._store() as store:
            return await store.installed_roles()

    async def check(self) -> Sequence[RoleDifference]:
        """Compare the database with the decisions about its roles; change nothing."""
        async with self._store() as store:
            return await store.role_differences(self._wanted(_there(await store.installed_roles())))

    async def allow_enqueue(self, role: str, *, revoke: bool = False) -> None:
        """Let an application's own role enqueue jobs in its own transactions. It gets no access to
        any table. With `revoke`, no longer let it."""
        check_name("role", role)

        def change(before: InstalledRoles | None) -> InstalledRoles:
            found = self._wanted(_there(before))
            if role in map(found.name, ("owner", *ROLES)) and not revoke:
                raise BadArguments(
                    f"{role!r} is one of Holdfast's own roles, whose privileges are fixed; create a"
                    " separate role for your application"
                )
            callers = {*found.callers, role} - ({role} if revoke else set())
            return msgspec.structs.replace(found, callers=sorted(callers))

        async with self._store() as store:
            await store.install_roles(change, {})

    async def remove(self) -> Mapping[str, Sequence[str]]:
        """Remove the roles and row-level security, and give the schema back to this login.

        Return the roles that are still used elsewhere on this server, and where.
        """
        async with self._store() as store:
            _there(await store.installed_roles())
            return await store.remove_roles()

    def _wanted(self, found: InstalledRoles) -> InstalledRoles:
        # What other applications decided stays.
        ours = {tables.name: tables.decisions() for tables in self._tables()}
        return msgspec.structs.replace(found, decisions={**found.decisions, **ours})

    @asynccontextmanager
    async def _store(self) -> AsyncIterator[capabilities.Roles]:
        store = self._desk.make_store()
        try:
            yield require(store, capabilities.Roles, "have roles; they need PostgreSQL")
        finally:
            await store.close()

    install_sync = blocking(install)
    installed_sync = blocking(installed)
    check_sync = blocking(check)
    allow_enqueue_sync = blocking(allow_enqueue)
    remove_sync = blocking(remove)


def _there(found: InstalledRoles | None) -> InstalledRoles:
    if found is None:
        raise ConfigurationError("this database has no roles; run: holdfast roles install")
    return found


def _url_of(database: str, role: str, password: str | None) -> str:
    """The same address with another login."""
    parts = urlsplit(database)
    login = role if password is None else f"{role}:{password}"
    kept = [pair for pair in parse_qsl(parts.query) if pair[0] not in ("user", "password")]
    netloc = f"{login}@{parts.netloc.rpartition('@')[2]}"
    return parts._replace(netloc=netloc, query=urlencode(kept)).geturl()
