"""How a result is shown: its files, a table if it is one, and always its exact JSON."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.dashboard.limits import (
    RESULT_CHARS_SHOWN_MAX,
    RESULT_COLUMNS_MAX,
    RESULT_ROWS_SHOWN_MAX,
)
from holdfast.dashboard.results.files import File, find_files
from holdfast.dashboard.results.xml import indented
from holdfast.dashboard.texts import json_text

_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


@dataclass(frozen=True)
class Table:
    """Rows of texts. `rows_left` are those that are not shown; `numeric` tells which columns have
    only numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    rows_left: int = 0
    numeric: Sequence[bool] = ()


@dataclass(frozen=True)
class Shown:
    """A text, cut if it is long."""

    text: str
    is_cut: bool


@dataclass(frozen=True)
class Exhibit:
    json: Shown
    bytes: int
    table: Table | None
    files: Sequence[File]


def exhibit(result: Any) -> Exhibit:
    text = json_text(result, indented=True)
    return Exhibit(cut(text), len(text.encode()), _table_of(result), find_files(result))


def cut(text: str) -> Shown:
    is_cut = len(text) > RESULT_CHARS_SHOWN_MAX
    return Shown(text[:RESULT_CHARS_SHOWN_MAX], is_cut)


def text_of(file: File) -> Shown:
    """The text of a file, indented if it is XML."""
    whole = cut(file.text)
    return whole if whole.is_cut or file.kind != "xml" else cut(indented(file.text))


def table_of(file: File) -> Table | None:
    """The table in a CSV file; None if it has none that can be shown."""
    lines = cut(file.text).text.splitlines()
    try:
        rows = [row for row in csv.reader(lines) if row]
    except csv.Error:
        return None
    if not rows or len(rows[0]) > RESULT_COLUMNS_MAX:
        return None
    width = len(rows[0])
    body = [[*row, *[""] * width][:width] for row in rows[1:]]
    return _made(rows[0], body)


def _table_of(result: Any) -> Table | None:
    """A table, if the result is a list of flat objects."""
    if not isinstance(result, list) or not result or not all(map(_is_flat, result)):
        return None
    columns = list(dict.fromkeys(name for row in result for name in row))
    if not 0 < len(columns) <= RESULT_COLUMNS_MAX:
        return None
    shown = result[:RESULT_ROWS_SHOWN_MAX]
    rows = [[_cell(row[name]) if name in row else "" for name in columns] for row in shown]
    return _made(columns, rows, len(result) - len(shown))


def _made(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0) -> Table:
    more = max(0, len(rows) - RESULT_ROWS_SHOWN_MAX)
    shown = rows[:RESULT_ROWS_SHOWN_MAX]
    numeric = [_are_numbers(row[place] for row in shown) for place in range(len(columns))]
    return Table(columns, shown, left + more, numeric)


def _are_numbers(cells: Iterable[str]) -> bool:
    known = [cell for cell in cells if cell]
    return bool(known) and all(_NUMBER.fullmatch(cell) for cell in known)


def _is_flat(row: Any) -> bool:
    return isinstance(row, dict) and not any(isinstance(each, dict | list) for each in row.values())


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


FILTERS: Final = {"exhibit": exhibit, "text_of": text_of, "table_of": table_of}
