"""A column that may be NULL takes NULL, with every SQLite that is supported.

What a CHECK makes of NULL depends on the version: json_valid(NULL) is 0 in the older ones.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import holdfast_systems
from holdfast import Holdfast
from tests.support.running import QUICK

PACKAGES: Final = {
    "webhooks": "holdfast.webhooks",
    **{
        folder.parent.parent.parent.name: f"holdfast_systems.{folder.parent.parent.parent.name}"
        for folder in Path(holdfast_systems.__file__).parent.glob("*/sql/sqlite/migrations")
    },
}
_CHECKED_COLUMN: Final = re.compile(
    r"^ +(?P<column>\w+ (?:TEXT|INTEGER|REAL|BLOB)\b(?!.*NOT NULL).* CHECK \(.*\)),?(?: --.*)?$",
    re.MULTILINE,
)

_ADDED_COLUMN: Final = re.compile(r", (?=\w+ (?:TEXT|INTEGER|REAL|BLOB)\b)")  # by ALTER TABLE


async def test_no_check_refuses_a_value_that_may_be_missing(tmp_path: Path) -> None:
    hf = Holdfast(f"sqlite:///{tmp_path}/jobs.db", **QUICK)
    for name, package in PACKAGES.items():
        hf.tables(name, package=package)
    await hf.migrate()
    await hf.close()
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as file:
        made = file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    columns = [
        (table, match["column"])
        for table, sql in made
        for match in _CHECKED_COLUMN.finditer(_ADDED_COLUMN.sub(",\n    ", sql))
    ]
    assert ("webhook_attempt_log", "response_headers") in [
        (table, column.split()[0]) for table, column in columns
    ]
    refused = [f"{table}: {column}" for table, column in columns if not _takes_null(column)]
    assert refused == []


def _takes_null(column: str) -> bool:
    with closing(sqlite3.connect(":memory:")) as alone:
        alone.execute(f"CREATE TABLE alone ({column}) STRICT")
        try:
            alone.execute("INSERT INTO alone VALUES (NULL)")
        except sqlite3.IntegrityError:
            return False
    return True
