"""Rendering: what people read in the PDF, and what can't be rendered."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pypdfium2  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf import PageObject, PdfReader

from holdfast import Permanent, Transient
from holdfast_systems.documents.rendering import (
    MissingGlyphs,
    RenderError,
    RenderStopped,
    render,
)
from holdfast_systems.documents.rendering.children import CHILD, LENGTH, Children
from holdfast_systems.documents.rendering.fonts import font_folders
from holdfast_systems.documents.rendering.limits import CHILD_MEMORY_BYTES_MAX
from holdfast_systems.documents.rendering.render import TEMPLATES
from tests.support.processes import PROGRAM_SECONDS_MAX
from tests.support.services import missing

pytestmark = pytest.mark.heavy

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


ENDLESS = "#let n = 0\n#for a in range(1000000) { for b in range(1000) { n = n + 1 } }\n#n"


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
    assert {path.stem for path in TEMPLATES.glob("*.typ")} == set(data)
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
    with pytest.raises(RenderError, match="the limit is 1,000,000"):
        render("letter", {**LETTER, "paragraphs": ["x" * 1_000_001]})


def test_data_that_are_no_json_are_refused() -> None:
    with pytest.raises(RenderError, match="JSON"):
        render("letter", {"sender": object()})


SCRIPTS = [
    "請求書です。",
    "안녕하세요",
    "简体中文",
    "สวัสดีครับ น้ำใจ",
    "😀👨‍👩‍👧🇩🇪",
    "Ελληνικά Русский",
]


def test_letters_of_the_world_are_printed() -> None:
    for folder, package in (("opentype", "cjk"), ("truetype", "core"), ("truetype", "color-emoji")):
        if not any(Path(f"/usr/share/fonts/{folder}/noto").glob("Noto*")):
            missing(f"fonts-noto-{package} is not installed")
    pdf = render("letter", {**LETTER, "lang": "ja", "paragraphs": SCRIPTS})

    fonts = {name for page in PdfReader(io.BytesIO(pdf)).pages for name in fonts_of(page)}
    for family in ("Libertinus", "NotoSerifCJKjp", "NotoSerifThai"):
        assert any(family in name for name in fonts), fonts
    text = "".join(text_of(pdf).split())
    for script in SCRIPTS[:3]:
        assert script in text


def fonts_of(page: PageObject) -> set[str]:
    fonts: Any = page["/Resources"]["/Font"]  # type: ignore[index]
    return {str(font.get_object().get("/BaseFont")) for font in fonts.values()}


@pytest.mark.parametrize("text", ["請求書", "สวัสดี", "😀", "a\u0378b"])
def test_a_document_with_boxes_in_the_place_of_letters_is_none(
    children: Children, text: str
) -> None:
    with pytest.raises(MissingGlyphs, match=r"template 'letter': no installed font has") as refused:
        letter(children, text)

    assert refused.value.code == "MISSING_GLYPHS"
    assert isinstance(refused.value, Permanent)
    assert len(str(refused.value)) < 200


def test_characters_that_are_not_seen_need_no_font(children: Children) -> None:
    text = "be\u00adgin a\u200bb a\u200db a\ufe0fb \ufeff a\u2060b a\tb \u200ea a\u2028b"
    assert "gin" in letter(children, text)


def test_folders_of_fonts_are_named_by_the_environment(tmp_path: Path) -> None:
    named = os.pathsep.join(["", str(tmp_path), str(tmp_path / "none")])
    assert font_folders({"DOCUMENTS_FONTS": named}) == [tmp_path]
    assert font_folders({"DOCUMENTS_FONTS": ""}) == []


def template(folder: Path, text: str) -> Path:
    (folder / "own.typ").write_text(text, encoding="utf-8")
    return folder


def test_a_rendering_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    endless = template(tmp_path, ENDLESS)

    with pytest.raises(RenderStopped, match=r"longer than 0.3 s") as stopped:
        render("own", {}, templates=endless, seconds_max=0.3)

    assert isinstance(stopped.value, Transient)
    assert "It holds." in text_of(render("letter", LETTER))


def processes() -> set[int]:
    pid = os.getpid()
    return {int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


@pytest.fixture
def children() -> Iterator[Children]:
    children = Children()
    yield children
    children.close()


def letter(children: Children, text: str = "It holds.", seconds_max: float = 20.0) -> str:
    data = msgspec.json.encode({**LETTER, "paragraphs": [text]})
    return text_of(children.render(TEMPLATES / "letter.typ", data, seconds_max))


def kept(children: Children) -> int:
    """Render once; return the process that is kept for the next rendering."""
    before = processes()
    letter(children)
    (pid,) = processes() - before
    return pid


def test_a_process_that_does_not_read_is_stopped(children: Children) -> None:
    os.kill(kept(children), signal.SIGSTOP)

    with pytest.raises(RenderStopped, match=r"longer than 0.3 s"):
        letter(children, "x" * 900_000, seconds_max=0.3)

    assert "It holds." in letter(children)


def test_a_process_that_was_killed_is_replaced(children: Children) -> None:
    pid = kept(children)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    assert "It holds." in letter(children)


def test_a_rendering_that_nobody_waits_for_ends(tmp_path: Path) -> None:
    endless = template(tmp_path, ENDLESS) / "own.typ"
    parts = (str(endless).encode(), b"{}")
    request = b"".join(LENGTH.pack(len(part)) + part for part in parts)
    command = [sys.executable, "-P", str(CHILD), str(CHILD_MEMORY_BYTES_MAX), "0.2"]

    ended = subprocess.run(
        command, input=request, capture_output=True, timeout=PROGRAM_SECONDS_MAX, check=False
    )

    assert ended.returncode == -signal.SIGALRM


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
