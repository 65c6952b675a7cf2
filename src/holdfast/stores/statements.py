"""SQL from .sql files with named blocks.

A block starts with `-- name: claim` and ends at the next one. Both dialects write parameters as
`:worker`; for PostgreSQL they become `$1`, `$2`, ... in the order of their first appearance.
`{due}` stands for the file `due.sql` in the folder `parts`, without its comments. Parts that all
dialects share, such as column lists, are in the folder `parts` beside this module.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.domain.errors import ConfigurationError
from holdfast.runtime.package_files import files

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_PART = re.compile(r"\{([a-z_]+)\}")
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")


class Statement(NamedTuple):
    name: str
    sql: str
    parameters: tuple[str, ...]

    def arguments(self, values: Mapping[str, object]) -> list[object]:
        return list(map(values.__getitem__, self.parameters))


def read_sql(package: str, *path: str) -> str:
    """Read a file in a package's `sql` folder."""
    return files(package).joinpath("sql", *path).read_text(encoding="utf-8")


def include(sql: str, parts: Mapping[str, str]) -> str:
    """Replace each `{name}` with that part.

    This is the only place that builds SQL from pieces, and all of them are files of ours.
    """
    return _PART.sub(lambda part: include(parts[part[1]].strip(), parts), sql)


def load_folder(package: str, *, numbered: bool, **parts: str) -> dict[str, Statement]:
    """Load all statements in a store's `sql` folder. `parts` add to those in files."""
    folder = files(package).joinpath("sql")
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    for part_folder in (files(__package__).joinpath("parts"), folder.joinpath("parts")):
        for file in part_folder.iterdir():
            text = file.read_text(encoding="utf-8")
            parts[file.name.removesuffix(".sql")] = _COMMENT.sub("", text)
    return load(*(include(read_sql(package, name), parts) for name in names), numbered=numbered)


def load(*texts: str, numbered: bool) -> dict[str, Statement]:
    """Load the statements in these texts; `numbered` makes their parameters PostgreSQL's."""
    pieces = _NAME.split("\n".join(texts))[1:]
    for name, times in Counter(pieces[::2]).items():
        if times > 1:
            raise ConfigurationError(
                f"there are {times} statements named {name}; names must be unique"
            )
    blocks = zip(pieces[::2], pieces[1::2], strict=True)
    return {name: _statement(name, sql.strip(), numbered) for name, sql in blocks}


def _statement(name: str, sql: str, numbered: bool) -> Statement:
    parameters = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    if numbered:
        number = {parameter: f"${place}" for place, parameter in enumerate(parameters, 1)}
        sql = _PARAMETER.sub(lambda match: number[match[1]], sql)
    return Statement(name, sql, parameters)
