"""From a database's address to its store: the scheme of the URL names it.

Other packages register theirs by an entry point in the group `holdfast.stores`: its name is the
scheme, and it names a function like `make_store` below.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final

from holdfast.domain.errors import ConfigurationError
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store

StoreFactory = Callable[[str, Seam, Settings], Store]

ENTRY_POINTS: Final = "holdfast.stores"
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
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise ConfigurationError(
            "a database's address looks like sqlite:///jobs.db or postgresql://host/name"
        )
    return _find(scheme.partition("+")[0])(url, seam, settings)


def _find(scheme: str) -> StoreFactory:
    match scheme:
        case "sqlite":
            return _make_sqlite
        case "postgres" | "postgresql":
            return _make_postgres
    registered = entry_points(group=ENTRY_POINTS)
    if scheme in registered.names:
        factory: StoreFactory = registered[scheme].load()
        return factory
    schemes = ["sqlite", "postgresql", *sorted(registered.names)]
    known = ", ".join(f"{each}://" for each in schemes)
    raise ConfigurationError(f"there is no store for {scheme}://; installed stores: {known}")


def _make_sqlite(url: str, seam: Seam, settings: Settings) -> Store:
    from holdfast.stores.sqlite import SqliteStore

    path = url.partition("://")[2]
    if not path.startswith("/") or path == "/":
        raise ConfigurationError(
            "an SQLite address has three slashes and a path: sqlite:///jobs.db, "
            "or four for an absolute path: sqlite:////var/lib/jobs.db"
        )
    return SqliteStore(
        path[1:], seam, synchronous=settings.sqlite_synchronous, retention=settings.retention
    )


def _make_postgres(url: str, seam: Seam, settings: Settings) -> Store:
    from holdfast.stores.postgres import PostgresStore

    return PostgresStore(
        url,
        seam,
        pool_size=settings.pool_size,
        retention=settings.retention,
        lease_seconds=settings.lease_seconds,
    )
