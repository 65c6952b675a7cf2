"""Rendering: what people read in the PDF, and what can't be made."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pypdfium2  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf import PdfReader

from holdfast import Permanent, Transient
from holdfast_systems.documents.rendering import (
    RenderError,
    RenderStopped,
    render,
    template_names,
)

INVOICE: dict[str, Any] = {
    "number": "2026-0117",
    "date": "16 November 2026",
    "due": "16 December 2026",
    "currency": "EUR",
    "tax_percent": "19",
    "seller": {
        "name": "Holdfast Marine Supplies",
        "address": ["Kaistrasse 4", "20457 Hamburg"],
        "iban": "DE02 1203 0000 0000 2020 51",
    },
    "customer": {"name": "Søren & Daughters", "address": ["Havnegade 12", "Aarhus"]},
    "items": [
        {"description": "Anchor chain, 10 mm", "quantity": 25, "unit_price": "18.90"},
        {"description": "Mooring line", "quantity": "2.5", "unit_price": "1240"},
    ],
}
LETTER: dict[str, Any] = {
    "sender": {"name": "Ada Lovelace", "address": ["12 St James's Square", "London"]},
    "recipient": {"name": "Charles Babbage", "address": ["1 Dorset Street", "London"]},
    "date": "16 November 2026",
    "subject": "On the Engine",
    "salutation": "Dear Mr Babbage,",
    "paragraphs": ["It holds."],
    "closing": "Yours sincerely,",
}


def text_of(pdf: bytes) -> str:
    pages = PdfReader(io.BytesIO(pdf)).pages
    return " ".join(" ".join(page.extract_text() for page in pages).split())


def test_an_invoice_can_be_read_with_its_sums() -> None:
    text = text_of(render("invoice", INVOICE))

    for part in ("Invoice", "2026-0117", "Søren & Daughters", "Anchor chain, 10 mm", "472.50"):
        assert part in text
    assert "3,572.50" in text
    assert "678.78" in text
    assert "EUR 4,251.28" in text
    assert "DE02 1203 0000 0000 2020 51" in text


def test_sums_are_exact_to_the_cent() -> None:
    items = [{"description": "Pin", "quantity": 3, "unit_price": "0.1"}] * 7
    text = text_of(render("invoice", {**INVOICE, "items": items, "tax_percent": 0}))

    assert "EUR 2.10" in text


def test_a_letter_can_be_read() -> None:
    text = text_of(render("letter", LETTER))

    for part in ("Ada Lovelace", "Dear Mr Babbage,", "It holds.", "Yours sincerely,"):
        assert part in text


def test_every_template_fits_on_paper_and_is_not_empty() -> None:
    data = {"invoice": INVOICE, "letter": LETTER}
    assert template_names() == sorted(data)
    for name, fields in data.items():
        with pypdfium2.PdfDocument(render(name, fields)) as document:
            width, height = document[0].get_size()
            assert (round(width), round(height)) == (595, 842)
            pixels = bytes(document[0].render(scale=0.5).buffer)
        assert len(set(pixels)) > 20


def test_a_long_invoice_goes_over_pages() -> None:
    items = [{"description": f"Item {n}", "quantity": 1, "unit_price": 1} for n in range(120)]
    text = text_of(render("invoice", {**INVOICE, "items": items, "tax_percent": 0}))

    assert [number for number in range(120) if f"Item {number} 1 1.00" not in text] == []
    assert text.count("Unit price") > 2
    assert "EUR 120.00" in text


def test_the_same_data_give_the_same_bytes() -> None:
    assert render("letter", LETTER) == render("letter", LETTER)


@settings(max_examples=25)
@given(st.text("#$*_`@<>[]{}()\\\"'/=-+~x1\n", min_size=1, max_size=40))
def test_nothing_in_the_data_is_run(text: str) -> None:
    shown = text_of(render("letter", {**LETTER, "paragraphs": [f"begin{text}end"]}))

    assert "".join(f"begin{text}end".split()) in "".join(shown.split())


@pytest.mark.parametrize("name", ["", "memo", "../templates/letter", "letter.typ", "/etc/passwd"])
def test_a_template_that_is_not_there_is_an_error(name: str) -> None:
    with pytest.raises(RenderError, match="there is no template") as refused:
        render(name, {})

    assert refused.value.code == "RENDER_ERROR"
    assert isinstance(refused.value, Permanent)


def test_a_missing_field_is_named() -> None:
    data = {name: value for name, value in INVOICE.items() if name != "due"}

    with pytest.raises(RenderError, match=r"template 'invoice': .*\"due\""):
        render("invoice", data)


def test_too_many_data_are_refused() -> None:
    with pytest.raises(RenderError, match=r"are allowed"):
        render("letter", {**LETTER, "paragraphs": ["x" * 1_000_001]})


def test_data_that_are_no_json_are_refused() -> None:
    with pytest.raises(RenderError, match="JSON"):
        render("letter", {"sender": object()})


def template(folder: Path, text: str) -> Path:
    (folder / "own.typ").write_text(text, encoding="utf-8")
    return folder


def test_a_rendering_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    endless = template(tmp_path, "#let n = 0\n#for a in range(100000000) { n = n + 1 }\n#n")

    with pytest.raises(RenderStopped, match=r"longer than 0.3 s") as stopped:
        render("own", {}, templates=endless, seconds_max=0.3)

    assert isinstance(stopped.value, Transient)
    assert "It holds." in text_of(render("letter", LETTER))


def test_a_rendering_that_takes_too_much_memory_is_stopped(tmp_path: Path) -> None:
    greedy = template(tmp_path, '#let a = "x" * 3000000000\n#a.len()')

    with pytest.raises(RenderStopped, match="was killed"):
        render("own", {}, templates=greedy)


def test_a_template_reads_no_file_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    folder = tmp_path / "templates"
    folder.mkdir()

    with pytest.raises(RenderError):
        render("own", {}, templates=template(folder, '#read("../secret.txt")'))
