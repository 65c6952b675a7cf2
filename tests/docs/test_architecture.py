"""The architecture page names files that exist, and an afternoon is enough to read the core."""

from __future__ import annotations

import re

from tests.support.forks import ROOT

PAGE = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "holdfast"
AFTERNOON_LINES_MAX = 6250
STARTING_POINT = re.compile(r"`(src/[\w/]+\.py)`")
TO_READ = re.compile(r"`([\w/]+\.(?:py|sql))`")


def lines(path: str) -> int:
    return len((PACKAGE / path).read_text(encoding="utf-8").splitlines())


def test_every_part_starts_at_a_file_that_exists() -> None:
    starts = STARTING_POINT.findall(PAGE)
    assert starts
    assert [start for start in starts if not (ROOT / start).is_file()] == []


def test_the_core_can_be_read_in_an_afternoon() -> None:
    _, _, rest = PAGE.partition("## An afternoon with the code")
    afternoon, _, _ = rest.partition("\n## ")
    paths = TO_READ.findall(afternoon)
    folders = {path.rpartition("/")[0] for path in paths}
    assert {"", "domain", "stores", "stores/sqlite", "stores/sqlite/sql", "worker"} == folders
    assert len(paths) == len(set(paths))
    assert sum(map(lines, paths)) <= AFTERNOON_LINES_MAX
