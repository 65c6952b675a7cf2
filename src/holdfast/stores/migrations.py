"""Numbered, forward-only steps of the schema: sql/<dialect>/migrations/NNNN_name.sql."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


class Step(NamedTuple):
    version: int
    name: str
    sql: str


def steps(dialect: str) -> list[Step]:
    """Read all steps of a dialect, oldest first."""
    folder = files("holdfast.stores").joinpath("sql", dialect, "migrations")
    return sorted(
        Step(int(match[1]), match[2], file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if (match := _FILE.fullmatch(file.name))
    )
