"""Which store a URL belongs to: its scheme decides.

Other packages register a store with an entry point in the group `holdfast.stores`. Its name is the
scheme, and it refers to a function with the signature of `make_store` below.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final

from holdfast.domain.errors import ConfigurationError
from holdfast.runtime.plugins import load_plugin
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store

StoreFactory = Callable[[str, Seam, Settings], Store]

ENTRY_POINTS: Final = "holdfast.stores"
_WITH_DRIVER: Final = re.compile(r"(postgres|postgresql|sqlite)\+\w+")


def plain_url(url: str) -> str:
    """Write the scheme in lower case, without the driver that SQLAlchemy's form of a URL names."""
    written, separator, rest = url.partition("://")
    scheme = written.lower()
    if driven := _WITH_DRIVER.fullmatch(scheme):
        scheme = driven[1]
    return f"{scheme}://{rest}" if separator else url


def absolute_url(url: str, folder: str) -> str:
    """Make an SQLite URL independent of the process's working directory."""
    prefix, slashes, path = url.partition("sqlite:///")
    if prefix or not slashes or not path:
        return url
    return f"sqlite:///{os.path.join(folder, path)}"


def make_store(url: str, seam: Seam, settings: Settings) -> Store:
    """Make the store for this URL, without connecting."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise ConfigurationError(
            "a database URL looks like sqlite:///jobs.db or postgresql://host/name"
        )
    return _find(scheme.partition("+")[0])(url, seam, settings)


def _find(scheme: str) -> StoreFactory:
    match scheme:
        case "sqlite":
            return _make_sqlite
        case "postgres" | "postgresql":
            return _make_postgres
    from importlib.metadata import entry_points  # which these two don't need

    registered = entry_points(group=ENTRY_POINTS)
    if scheme in registered.names:
        factory: StoreFactory = load_plugin(registered[scheme], f"the store for {scheme}://")
        return factory
    schemes = ["sqlite", "postgresql", *sorted(registered.names)]
    known = ", ".join(f"{each}://" for each in schemes)
    raise ConfigurationError(f"there is no store for {scheme}://; installed stores: {known}")


def _make_sqlite(url: str, seam: Seam, settings: Settings) -> Store:
    from holdfast.stores.sqlite import SqliteStore

    path = url.partition("://")[2]
    if not path.startswith("/") or path == "/":
        raise ConfigurationError(
            "an SQLite URL has three slashes and a path: sqlite:///jobs.db,"
            " or four slashes for an absolute path: sqlite:////var/lib/jobs.db"
        )
    return SqliteStore(
        path[1:],
        seam,
        synchronous=settings.sqlite_synchronous,
        retention=settings.retention,
        read_only=settings.read_only,
    )


def _make_postgres(url: str, seam: Seam, settings: Settings) -> Store:
    from holdfast.stores.postgres import PostgresStore

    return PostgresStore(
        url,
        seam,
        pool_size=settings.pool_size,
        retention=settings.retention,
        lease_seconds=settings.lease_seconds,
        read_only=settings.read_only,
    )
