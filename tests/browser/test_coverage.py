"""Every page of the menu and of every system is visited by a test here, or photographed."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.dashboard.site import MENU
from scripts.screenshots import PAGES, SYSTEMS

ROOT = Path(__file__).parents[2]
SLUG = re.compile(r"^    slug = (\w+|\"[\w-]+\")$", re.M)


def visited() -> set[str]:
    tests = Path(__file__).parent.glob("test_*.py")
    sources = "".join(each.read_text(encoding="utf-8") for each in tests)
    return set(re.findall(r'goto\("([^"?]*)', sources))


def slugs() -> set[str]:
    """Those of all classes that describe pages of a system."""
    found = set()
    for package in ("holdfast/webhooks", "holdfast_systems"):
        for file in (ROOT / "src" / package).rglob("*pages.py"):
            for name in SLUG.findall(source := file.read_text(encoding="utf-8")):
                constant = re.search(rf"{name}: Final = \"([\w-]+)\"", source + _constants())
                found.add(name.strip('"') if constant is None else constant[1])
    return found


def _constants() -> str:
    return (ROOT / "src/holdfast/webhooks/pages.py").read_text(encoding="utf-8")


def test_every_page_of_the_menu_is_photographed_and_most_are_used_by_a_test() -> None:
    menu = {entry.path for _, entries in MENU for entry in entries}
    photographed = {path.partition("?")[0] for path, _ in PAGES.values()}
    photographed |= {path.rpartition("/")[0] for path in photographed}
    assert menu - photographed == set()
    assert menu - visited() <= {"/ui/run"}, "only its form is used: /ui/run/..."


def test_every_system_is_photographed() -> None:
    assert len(slugs()) >= 5
    assert {path.split("/")[3] for path, _ in SYSTEMS.values()} == slugs()
