"""The page about this system tells every limit."""

from __future__ import annotations

import re

import pytest

from holdfast_systems.convert import limits
from tests.support.processes import ROOT

pytestmark = pytest.mark.heavy


def test_every_limit_is_documented_with_its_value() -> None:
    page = (ROOT / "docs" / "systems" / "convert.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `([A-Z_]+_MAX)` \| ([\d,]+) \|", page, re.MULTILINE))
    named = {name: f"{value:,}" for name, value in vars(limits).items() if name.endswith("_MAX")}
    assert documented == named
