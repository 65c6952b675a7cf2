"""One statement for every driver: `$1` in the style that each reads."""

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
