"""The page about this system tells every limit."""

from __future__ import annotations

import re

import pytest

from holdfast_systems.compute import limits
from tests.support.processes import ROOT

pytestmark = pytest.mark.heavy


def test_every_limit_is_documented_with_its_value() -> None:
    page = (ROOT / "docs" / "systems" / "compute.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `([A-Z_]+)` \| ([\d,]+) \|", page, re.MULTILINE))
    named = {name: f"{value:,.0f}" for name, value in vars(limits).items() if name.isupper()}
    del named["PRIORITY_DEFAULT"]  # no limit
    assert {name: documented.get(name) for name in named} == named
