"""The pepper: a secret that goes into the hash of every key, and that the database doesn't have.

In production it comes from the environment. In development it is generated once: beside an SQLite
file, or in a PostgreSQL database on this machine. That only saves a setting: anyone who can write
there can create keys. So a server that listens on any other address needs the variable.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.domain.addresses import is_loopback
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.keys import PEPPER_CHARS_MIN
from holdfast.operations.kept_files import read_or_make
from holdfast.operations.own_tables import OwnTables
from holdfast.transactions.tables import Statements

VARIABLE: Final = "HOLDFAST_KEY_PEPPER"
HOW_TO_MAKE: Final = (
    'generate one with: python -c "import secrets; print(secrets.token_urlsafe(32))"; keep it'
    f" outside the database, and set {VARIABLE} for every server and `holdfast keys` command"
)
_PUT_IT: Final = f"set {VARIABLE} to the one that the keys were created with"
_SQLITE: Final = "sqlite:///"
_PORT: Final = re.compile(r":\d*$")


class NoPepper(ConfigurationError):
    """The server lacks the pepper. No request can fix that."""


class Pepper:
    """Nothing is cached: tests move an app to another database, and operators create the file."""

    def __init__(
        self, database: Callable[[], str], own: OwnTables, *, may_make: bool = True
    ) -> None:
        self._database = database
        self._own = own
        self._may_make = may_make

    async def get(self) -> bytes:
        """Return the pepper. In development, generate it if there is none."""
        if (given := from_environment()) is not None:
            return given
        database = self._database()
        if database.startswith(_SQLITE):
            return _beside(database.removeprefix(_SQLITE), may_make=self._may_make)
        if not _is_on_this_machine(database):
            raise NoPepper(
                f"keys need {VARIABLE}, because this database is not on this machine; {HOW_TO_MAKE}"
            )
        if not self._may_make:
            return await self._find()
        async with self._own.transaction() as (_, statements):
            return await _inside(statements)

    async def _find(self) -> bytes:
        async with self._own.transaction(read_only=True) as (_, statements):
            if not await statements.value("may_read_development_pepper"):
                raise NoPepper(f"this role may not read the database's pepper; {_PUT_IT}")
            found: str | None = await statements.value("find_development_pepper")
        if found is None:
            raise NoPepper(f"the database has no pepper; {_PUT_IT}")
        return found.encode()


def from_environment() -> bytes | None:
    given = os.environ.get(VARIABLE)
    if given is None:
        return None
    if len(given) < PEPPER_CHARS_MIN:
        raise NoPepper(
            f"{VARIABLE} has {len(given)} characters, but needs at least {PEPPER_CHARS_MIN};"
            f" {HOW_TO_MAKE}"
        )
    return given.encode()


def _beside(path: str, *, may_make: bool) -> bytes:
    file = f"{path}.pepper"
    if not may_make and not os.path.exists(file):
        raise NoPepper(f"there is no pepper in {file}; {_PUT_IT}")
    found = read_or_make(file, _made, what="the key pepper", variable=VARIABLE)
    if len(found) < PEPPER_CHARS_MIN:
        raise NoPepper(
            f"{file} is damaged: it has {len(found)} bytes; restore it, or delete it and create new"
            " keys"
        )
    return found


async def _inside(statements: Statements) -> bytes:
    found: str | None = await statements.value("find_development_pepper")
    if found is None:
        await statements.execute("keep_development_pepper", pepper=_made())
        found = await statements.value("find_development_pepper")
    assert found is not None
    return found.encode()


def _is_on_this_machine(database: str) -> bool:
    parts = urlsplit(database)
    hosts = unquote(parts.netloc.rpartition("@")[2]) or dict(parse_qsl(parts.query)).get("host")
    hosts = hosts or os.environ.get("PGHOST", "localhost")
    return all(
        host.startswith("/") or is_loopback(_PORT.sub("", host)) for host in hosts.split(",")
    )


def _made() -> str:
    return secrets.token_urlsafe(32)
