"""The reference of the HTTP API says what its OpenAPI document says."""

from __future__ import annotations

import re
from collections import Counter

from holdfast.api.problems import KINDS
from scripts import http_reference
from tests.support.forks import ROOT

PAGE = "docs/reference/http.md"
GUIDE = ROOT / "docs" / "guides" / "service.md"


def test_the_page_is_what_the_document_says() -> None:
    is_current = http_reference.PAGE.read_text(encoding="utf-8") == http_reference.page()
    assert is_current, "run: make reference"


def test_every_heading_is_there_once_so_that_links_lead_to_it() -> None:
    titles = re.findall(r"^##+ (.+)$", http_reference.page(), re.MULTILINE)
    anchors = Counter(re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    assert [anchor for anchor, count in anchors.items() if count > 1] == []


def test_every_route_and_every_parameter_is_described() -> None:
    for operations in http_reference.by_tag(http_reference.document()).values():
        for title, operation in operations:
            assert operation["summary"], title
            assert "Other" not in operation.get("tags", ["Other"]), title


def test_the_guide_says_what_to_do_about_every_problem() -> None:
    text = GUIDE.read_text(encoding="utf-8").partition("## Errors")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d{3}) \| (.+?) \|", text, re.MULTILINE)
    told = {code: int(status) for status, codes in rows for code in re.findall(r"`(.+?)`", codes)}
    assert told == {code: kind.status for code, kind in KINDS.items()}
