"""Django with one database, `jobs`, that a test chooses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connections

if not settings.configured:
    settings.configure(DATABASES={}, USE_TZ=True)
    django.setup()


def entry(url: str) -> dict[str, Any]:
    """The entry of a database in DATABASES."""
    if url.startswith("sqlite:///"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }


@contextmanager
def database(url: str, alias: str = "jobs") -> Iterator[Any]:
    """The connection `connections[alias]` to this database, closed at the end."""
    before = connections.databases.get(alias)
    connections.databases[alias] = {**connections.databases["default"], **entry(url)}
    try:
        yield connections[alias]
    finally:
        connections[alias].close()
        del connections[alias]
        if before is None:
            del connections.databases[alias]
        else:
            connections.databases[alias] = before
