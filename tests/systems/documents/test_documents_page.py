"""The page of the documents system has the limits of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast_systems.documents import limits as system
from holdfast_systems.documents.salesforce.client import limits as client
from holdfast_systems.documents.salesforce.store import limits as store
from holdfast_systems.documents.system import SETTINGS

pytestmark = pytest.mark.heavy

PAGE = Path(__file__).parent.parent.parent.parent / "docs/systems/documents.md"
SETTINGS_OF_THE_ENGINE = {"LOCK_SECONDS", "POLL_SECONDS", "CONCURRENCY", "ATTEMPTS_MAX"}


def test_every_limit_is_on_the_page_with_its_value() -> None:
    page = PAGE.read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `([A-Z_]+)` \| ([\d,.]+) \|", page, re.MULTILINE))
    limits = {
        name: f"{value:,g}" if isinstance(value, float) else f"{value:,}"
        for module in (client, store, system)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, int | float)
    }
    assert told == {
        name: value for name, value in limits.items() if name not in SETTINGS_OF_THE_ENGINE
    }


def test_every_default_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| (\d+) \|", page, re.MULTILINE)
    told = {name: int(value) for names, value in rows for name in re.findall(r"[a-z_]+", names)}
    assert told == SETTINGS
