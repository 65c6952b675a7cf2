"""SQL from .sql files with named blocks.

A block begins with `-- name: claim` and ends at the next one. Parameters are written `:worker` in
both dialects; for PostgreSQL they become `$1`, `$2`, ... in the order of their first appearance.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple

from holdfast.domain.errors import ConfigurationError

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")


class Statement(NamedTuple):
    name: str
    sql: str
    parameters: tuple[str, ...]

    def arguments(self, values: Mapping[str, object]) -> list[object]:
        return list(map(values.__getitem__, self.parameters))


def read_sql(*path: str) -> str:
    return files("holdfast.stores").joinpath("sql", *path).read_text(encoding="utf-8")


def load(text: str, *, numbered: bool) -> dict[str, Statement]:
    pieces = _NAME.split(text)[1:]
    for name, times in Counter(pieces[::2]).items():
        if times > 1:
            raise ConfigurationError(f"there are {times} statements named {name}")
    blocks = zip(pieces[::2], pieces[1::2], strict=True)
    return {name: _statement(name, sql.strip(), numbered) for name, sql in blocks}


def _statement(name: str, sql: str, numbered: bool) -> Statement:
    parameters = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    if numbered:
        number = {parameter: f"${place}" for place, parameter in enumerate(parameters, 1)}
        sql = _PARAMETER.sub(lambda match: number[match[1]], sql)
    return Statement(name, sql, parameters)
