"""Convert the placeholder `$1` to the style of each driver."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

_NUMBERED = re.compile(r"\$(\d+)")


@lru_cache(maxsize=256)
def percent_style(sql: str) -> str:
    return _NUMBERED.sub(r"%(p\1)s", sql.replace("%", "%%"))


@lru_cache(maxsize=256)
def colon_style(sql: str) -> str:
    return _NUMBERED.sub(r":p\1", sql)


def named(values: Sequence[str | None]) -> dict[str, str | None]:
    return {f"p{number}": value for number, value in enumerate(values, 1)}
