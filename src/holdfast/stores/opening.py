"""From a database's address to its store."""

from __future__ import annotations

import os
import re
from typing import Final

from holdfast.domain.errors import ConfigurationError
from holdfast.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store

_DRIVER: Final = re.compile(r"(postgres|postgresql|sqlite)\+\w+://")


def without_driver(url: str) -> str:
    """Take SQLAlchemy's form of an address, which names a driver, for the address itself."""
    return _DRIVER.sub(r"\1://", url, count=1) if _DRIVER.match(url) else url


def absolute_url(url: str, folder: str) -> str:
    """The same address, whatever the working directory of the process becomes."""
    prefix, slashes, path = url.partition("sqlite:///")
    if prefix or not slashes or not path:
        return url
    return f"sqlite:///{os.path.join(folder, path)}"


def make_store(url: str, seam: Seam, settings: Settings) -> Store:
    """Make the store for this address, without connecting."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise ConfigurationError(
            "a database's address looks like sqlite:///jobs.db or postgresql://host/name"
        )
    match scheme:
        case "sqlite":
            from holdfast.stores.sqlite import SqliteStore

            if not rest.startswith("/") or rest == "/":
                raise ConfigurationError(
                    "an SQLite address has three slashes and a path: sqlite:///jobs.db, "
                    "or four for an absolute path: sqlite:////var/lib/jobs.db"
                )
            return SqliteStore(
                rest[1:],
                seam,
                synchronous=settings.sqlite_synchronous,
                retention=settings.retention,
            )
        case "postgres" | "postgresql":
            from holdfast.stores.postgres import PostgresStore

            return PostgresStore(
                url,
                seam,
                pool_size=settings.pool_size,
                retention=settings.retention,
                lease_seconds=settings.lease_seconds,
            )
        case "salesforce" | "salesforce+http":
            from holdfast.stores.salesforce import SalesforceStore

            return SalesforceStore(url, seam, max_attempts=settings.max_attempts)
        case _:
            raise ConfigurationError(
                f"there is no store for {scheme}://; there are sqlite://, postgresql:// and"
                " salesforce://"
            )
