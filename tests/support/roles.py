"""A database with roles installed. Nothing in the block connects as superuser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import NamedTuple
from urllib.parse import urlsplit

import asyncpg

from holdfast import Holdfast
from tests.support.postgres import Databases

PACKAGES = {
    "webhooks": "holdfast.webhooks",
    "passport": "holdfast_systems.passport",
    "compute": "holdfast_systems.compute",
    "convert": "holdfast_systems.convert",
}
_numbers = count(1)


class InstalledRoles(NamedTuple):
    """`roles.url("api")`; the administrator may create roles, and owns the database."""

    admin_url: str
    prefix: str

    def url(self, role: str) -> str:
        return url_as(self.admin_url, self.name(role))

    def name(self, role: str) -> str:
        return f"{self.prefix}_{role}"


def url_as(url: str, login: str) -> str:
    """The URL with another login. Servers of tests trust whoever is on this machine."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{login}@{parts.netloc.rpartition('@')[2]}").geturl()


def with_all_tables(url: str) -> Holdfast:
    """An app with the tables of all our packages."""
    app = Holdfast(url)
    for name, package in PACKAGES.items():
        app.tables(name, package)
    return app


@asynccontextmanager
async def administered(postgres_url: str) -> AsyncIterator[InstalledRoles]:
    """Give the database to a login that may create roles and is no superuser; in the end, remove
    that login, and all roles whose names begin with the prefix."""
    database = urlsplit(postgres_url).path.lstrip("/")
    prefix = f"{database}_{next(_numbers)}"
    roles = InstalledRoles(url_as(postgres_url, f"{prefix}_admin"), prefix)
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute(f'CREATE ROLE "{prefix}_admin" LOGIN CREATEROLE')
        await connection.execute(f'ALTER DATABASE "{database}" OWNER TO "{prefix}_admin"')
        yield roles
    finally:
        await connection.execute(f'ALTER DATABASE "{database}" OWNER TO CURRENT_USER')
        left = await connection.fetch(
            "SELECT rolname FROM pg_roles WHERE starts_with(rolname, $1)", f"{prefix}_"
        )
        for (name,) in left:
            await connection.execute(f'DROP OWNED BY "{name}" CASCADE')
        for (name,) in left:
            await connection.execute(f'DROP ROLE "{name}"')
        await connection.close()


@asynccontextmanager
async def installed_roles(
    postgres_url: str, make: Callable[[str], Holdfast] = Holdfast
) -> AsyncIterator[InstalledRoles]:
    """Migrate an empty database and install roles in it. `make` makes the app, with its tables."""
    async with administered(postgres_url) as roles:
        app = make(roles.admin_url)
        await app.migrate()
        await app.roles.install(prefix=roles.prefix)
        await app.close()
        yield roles


@contextmanager
def shared_roles(
    databases: Databases, make: Callable[[str], Holdfast] = Holdfast
) -> Iterator[InstalledRoles]:
    """A database of its own with roles, for all tests of a module."""
    name = databases.create()
    installing = installed_roles(databases.url(name), make)
    try:
        yield databases.run(installing.__aenter__())
    finally:
        databases.run(installing.__aexit__(None, None, None))
        databases.drop(name)
