"""Rendering: what people read in the PDF, and what can't be rendered."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pypdfium2  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf import PageObject, PdfReader

from holdfast import Context, Holdfast, Permanent, Transient
from holdfast_systems.documents import rendering
from holdfast_systems.documents.rendering import MissingGlyphs, RenderError, RenderStopped
from holdfast_systems.documents.rendering.compile import compile_document
from holdfast_systems.documents.rendering.fonts import font_folders
from holdfast_systems.documents.rendering.render import TEMPLATES
from tests.support.processes import wait_until
from tests.support.running import working
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


def render(name: str, data: dict[str, Any], fonts: list[Path] | None = None) -> bytes:
    """Make a PDF in this process."""
    folders = font_folders() if fonts is None else fonts
    return compile_document(TEMPLATES / f"{name}.typ", msgspec.json.encode(data).decode(), folders)


def letter(text: str) -> str:
    """What a letter with this text shows, in Typst's own fonts."""
    return text_of(render("letter", {**LETTER, "paragraphs": [text]}, fonts=[]))


async def rendered(hf: Holdfast, name: str, data: dict[str, Any], **options: Any) -> bytes:
    """Make a PDF in a handler, whose error is raised here."""
    seen: list[bytes | RenderError | RenderStopped] = []

    async def handler(ctx: Context) -> None:
        try:
            seen.append(await rendering.render(ctx, name, data, **options))
        except (RenderError, RenderStopped) as error:
            seen.append(error)

    await hf.job(name="render")(handler).enqueue()
    await hf.run_due()
    (answer,) = seen
    if isinstance(answer, Exception):
        raise answer
    return answer


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


async def test_a_handler_gets_the_document(local_hf: Holdfast) -> None:
    assert await rendered(local_hf, "letter", LETTER) == render("letter", LETTER)


@pytest.mark.parametrize("name", ["", "memo", "../templates/letter", "letter.typ", "/etc/passwd"])
async def test_a_template_that_is_not_there_is_an_error(local_hf: Holdfast, name: str) -> None:
    with pytest.raises(RenderError, match="there is no template") as refused:
        await rendered(local_hf, name, {})

    assert refused.value.code == "RENDER_ERROR"
    assert isinstance(refused.value, Permanent)


async def test_a_missing_field_is_named(local_hf: Holdfast) -> None:
    data = {name: value for name, value in INVOICE.items() if name != "due"}

    with pytest.raises(RenderError, match=r"template 'invoice': .*\"due\""):
        await rendered(local_hf, "invoice", data)


async def test_too_many_data_are_refused(local_hf: Holdfast) -> None:
    with pytest.raises(RenderError, match="the limit is 1,000,000"):
        await rendered(local_hf, "letter", {**LETTER, "paragraphs": ["x" * 1_000_001]})


async def test_data_that_are_no_json_are_refused(local_hf: Holdfast) -> None:
    with pytest.raises(RenderError, match="JSON"):
        await rendered(local_hf, "letter", {"sender": object()})


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
def test_a_document_with_boxes_in_the_place_of_letters_is_none(text: str) -> None:
    with pytest.raises(MissingGlyphs, match=r"template 'letter': no installed font has") as refused:
        letter(text)

    assert refused.value.code == "MISSING_GLYPHS"
    assert isinstance(refused.value, Permanent)
    assert len(str(refused.value)) < 200


def test_characters_that_are_not_seen_need_no_font() -> None:
    text = "be\u00adgin a\u200bb a\u200db a\ufe0fb \ufeff a\u2060b a\tb \u200ea a\u2028b"
    assert "gin" in letter(text)


def test_folders_of_fonts_are_named_by_the_environment(tmp_path: Path) -> None:
    named = os.pathsep.join(["", str(tmp_path), str(tmp_path / "none")])
    assert font_folders({"DOCUMENTS_FONTS": named}) == [tmp_path]
    assert font_folders({"DOCUMENTS_FONTS": ""}) == []


def template(folder: Path, text: str) -> Path:
    (folder / "own.typ").write_text(text, encoding="utf-8")
    return folder


async def test_a_rendering_that_takes_too_long_is_stopped(
    local_hf: Holdfast, tmp_path: Path
) -> None:
    endless = template(tmp_path, ENDLESS)

    with pytest.raises(RenderStopped, match=r"template 'own': .* longer than 3 s") as stopped:
        await rendered(local_hf, "own", {}, templates=endless, seconds_max=3.0)

    assert isinstance(stopped.value, Transient)


async def test_a_rendering_that_takes_too_much_memory_is_stopped(
    local_hf: Holdfast, tmp_path: Path
) -> None:
    greedy = template(tmp_path, '#let a = "x" * 3000000000\n#a.len()')

    with pytest.raises(RenderStopped, match=r"was killed .* at 1,000,000,000 bytes"):
        await rendered(local_hf, "own", {}, templates=greedy)


async def test_a_template_reads_no_file_outside_its_folder(
    local_hf: Holdfast, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    folder = tmp_path / "templates"
    folder.mkdir()

    with pytest.raises(RenderError, match="template 'own'"):
        await rendered(local_hf, "own", {}, templates=template(folder, '#read("../secret.txt")'))


def children() -> list[Path]:
    """The child processes of this one that have started."""
    lists = Path("/proc/self/task").glob("*/children")
    found = [Path("/proc", pid) for each in lists for pid in each.read_text().split()]
    return [each for each in found if (each / "comm").read_text() == "holdfast-child\n"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody can look")
async def test_a_rendering_sees_no_secrets_of_its_worker(
    local_hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SALESFORCE_URL", "salesforce://id:secret@host")
    endless = template(tmp_path, ENDLESS)

    @local_hf.job
    async def handler(ctx: Context) -> None:
        await rendering.render(ctx, "own", {}, templates=endless)

    await handler.enqueue()
    async with working(local_hf):
        await wait_until(children, "rendering")
        (child,) = children()
        environment = (child / "environ").read_bytes()
    assert b"PATH=" in environment
    assert b"salesforce" not in environment.lower()
