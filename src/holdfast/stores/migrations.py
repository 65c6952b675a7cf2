"""Numbered, forward-only steps of a schema: sql/<dialect>/migrations/NNNN_name.sql."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


class Step(NamedTuple):
    version: int
    name: str
    sql: str


@cache
def steps(dialect: str, package: str = "holdfast.stores") -> Sequence[Step]:
    """Read all steps of a dialect, oldest first."""
    folder = files(package).joinpath("sql", dialect, "migrations")
    return sorted(
        Step(int(match[1]), match[2], file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if (match := _FILE.fullmatch(file.name))
    )


def split(script: str) -> Iterator[str]:
    """Take SQLite's script apart: `executescript` would commit the transaction around it."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
