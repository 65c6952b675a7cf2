"""Numbered, forward-only steps of a schema: the files NNNN_name.sql in a folder `migrations`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from holdfast.domain.errors import ConfigurationError
from holdfast.runtime.package_files import Traversable, files

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_INDEX = re.compile(r"^(?:CREATE (?:UNIQUE )?|(DROP ))INDEX (\w++)[^;]*+;", re.MULTILINE)


class Step(NamedTuple):
    version: int
    name: str
    sql: str


@cache
def steps(dialect: str) -> Sequence[Step]:
    """Read all steps of Holdfast's own schema, oldest first."""
    return _read_all(f"holdfast.stores.{dialect}", "sql", "migrations")


@cache
def application_steps(dialect: str, package: str) -> Sequence[Step]:
    """Read all steps of an application's tables, oldest first."""
    return _read_all(package, "sql", dialect, "migrations")


def _read_all(package: str, *path: str) -> Sequence[Step]:
    folder = files(package)
    for part in path:
        folder = folder.joinpath(part)
    entries = folder.iterdir() if folder.is_dir() else ()
    found = sorted(_read(file, package) for file in entries if file.name.endswith(".sql"))
    for one, next_one in pairwise(found):
        if one.version == next_one.version:
            raise ConfigurationError(
                f"two migrations of {package} have the number {one.version:04}: {one.name} and"
                f" {next_one.name}; renumber one of them"
            )
    return found


def _read(file: Traversable, package: str) -> Step:
    match = _FILE.fullmatch(file.name)
    if match is None:
        raise ConfigurationError(
            f"{file.name} of {package} is not a migration's name; it must look like 0001_orders.sql"
        )
    return Step(int(match[1]), match[2], file.read_text(encoding="utf-8"))


def indexes(dialect: str, version: int) -> dict[str, str]:
    """The indexes that exist after the steps up to this version, and how each is created."""
    found: dict[str, str] = {}
    for step in steps(dialect):
        if step.version <= version:
            for match in _INDEX.finditer(step.sql):
                dropped, name = match.groups()
                if dropped:
                    found.pop(name, None)
                else:
                    found[name] = " ".join(match[0].split())
    return found


def split(script: str) -> Iterator[str]:
    """Split a script for SQLite: `executescript` would commit the transaction around it."""
    import sqlite3  # which PostgreSQL does not need

    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement  # the last one, without its semicolon
