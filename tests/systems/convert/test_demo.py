"""The demonstration, with the real gateway off and back on."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pypdf
import pytest

from holdfast_systems.demos import convert
from holdfast_systems.demos.frame import open_stage

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("store_url", ["sqlite", "pg15"], indirect=True)
async def test_invoices_are_converted_by_themselves_once_their_gateway_is_back(
    store_url: str, tmp_path: Path
) -> None:
    async with open_stage("convert", tmp_path / "out", store_url) as stage:
        await convert.run(stage)
        assert [step.failures for step in stage.steps if step.failures] == []
    assert stage.succeeded
    assert {made.path.name for made in stage.files} == {"invoice.pdf", "layout.xml", "invoice.xml"}
    text = pypdf.PdfReader(tmp_path / "out" / "invoice.pdf").pages[0].extract_text()
    invoice = ElementTree.parse(tmp_path / "out" / "invoice.xml")
    found = {element.tag: element.text for element in invoice.iterfind("invoice/*")}
    assert found["number"] == "INV-2026-0042"
    assert found["number"] in text
    assert (found["total"], found["currency"]) == ("1190.00", "EUR")
    layout = ElementTree.parse(tmp_path / "out" / "layout.xml")
    assert {word.text for word in layout.iter("word")} >= {
        "INV-2026-0042",
        "“Dover”",
        "<",
        "&",
    }
