"""What the pages for contributors name is there."""

from __future__ import annotations

import re

import pytest

from tests.support.forks import ROOT
from tests.support.pages import assert_documented, assert_listed

PAGES = [
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/internals/architecture.md",
    "docs/internals/service.md",
]
TASKS = ["store", "wake-up", "system", "command", "setting", "doctor finding"]
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:md|toml|py))`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = [path for path in PATH.findall(text) if not path.startswith("sql/")]
    below = ROOT / "src/holdfast" if "Paths are below `src/holdfast`" in text else ROOT
    named = [ROOT / path if (ROOT / path).exists() else below / path for path in paths]
    linked = [(ROOT / page).parent / path for path in LINK.findall(text)]
    assert len(named) > 1
    assert [str(path) for path in [*named, *linked] if not path.exists()] == []


def test_every_task_is_a_list_of_files() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## Add an? ([\w -]+)\n(.*?)(?=^## |\Z)", text, re.M | re.S))
    assert list(sections) == TASKS
    for task, section in sections.items():
        assert re.findall(r"^1\. ", section, re.MULTILINE), task
        assert len(PATH.findall(section)) >= 3, task


def test_decisions_are_numbered_and_dated() -> None:
    text = (ROOT / "docs/internals/decisions.md").read_text(encoding="utf-8")
    numbers = re.findall(r"^## (\d+)\. \S.*\n\n\*\d{4}-\d\d-\d\d\*$", text, re.MULTILINE)
    assert len(re.findall(r"^## ", text, re.MULTILINE)) == len(numbers)
    assert list(map(int, numbers)) == list(range(1, len(numbers) + 1))
    assert "\n**" not in text, "a decision without a number"


def test_a_page_that_is_out_of_date_names_what_to_change() -> None:
    with pytest.raises(AssertionError, match="page is out of date; add new; remove old; change"):
        assert_documented("page", {"old": "1", "same": "1"}, {"new": "1", "same": "2"})
    with pytest.raises(AssertionError, match="page: keep the order of the code"):
        assert_listed("page", ["b", "a"], ["a", "b"])
