"""Read a PDF's pages: lines of words with their positions, form fields and annotations."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pypdfium2 as pdfium  # type: ignore[import-untyped]
import pypdfium2.raw as pdfium_c  # type: ignore[import-untyped]

from holdfast_systems.convert.gateway.annotations import read_annotations
from holdfast_systems.convert.gateway.coordinates import Placing
from holdfast_systems.convert.gateway.pages import (
    Box,
    Document,
    Line,
    NoPdf,
    NotConverted,
    NoText,
    Page,
    Word,
    clean,
)
from holdfast_systems.convert.limits import FORM_DEPTH_MAX, PAGES_MAX

_SOFT_HYPHENS = {"\ufffe": "-", "\x02": "-"}


def read_document(content: bytes) -> Document:
    try:
        document = pdfium.PdfDocument(content)
    except pdfium.PdfiumError as error:
        if error.err_code == pdfium_c.FPDF_ERR_PASSWORD:
            raise NotConverted("the PDF has a password") from error
        raise NoPdf("the file is not a readable PDF") from error
    if len(document) > PAGES_MAX:
        raise NotConverted(f"the PDF has {len(document)} pages, more than {PAGES_MAX}")
    document.init_forms()  # before any page is loaded: it gives access to their fields
    is_dynamic = document.get_formtype() == pdfium_c.FORMTYPE_XFA_FULL
    pages = [_read_page(document, index) for index in range(len(document))]
    return Document(pages, NoText.DYNAMIC_XFA if is_dynamic else None)


def _read_page(document: Any, index: int) -> Page:
    try:
        page = document[index]
        placing = Placing(page)
        characters = list(_characters(page.get_textpage(), placing))
        lines = list(_lines(characters))
        fields, annotations = read_annotations(page, document.formenv, placing)
        no_text = None if lines else _why_no_text(page, characters)
        return Page(index + 1, *placing.size, lines, fields, annotations, no_text)
    except pdfium.PdfiumError as error:
        raise NotConverted(f"can't read page {index + 1} of the PDF") from error


def _why_no_text(page: Any, characters: Sequence[_Character]) -> NoText:
    kinds = {each.type for each in page.get_objects(max_depth=FORM_DEPTH_MAX)}
    if pdfium_c.FPDF_PAGEOBJ_IMAGE in kinds:
        return NoText.IMAGE
    if any(not character.text.isspace() for character in characters):
        return NoText.FONTS  # they don't say which characters they show
    if kinds & {pdfium_c.FPDF_PAGEOBJ_PATH, pdfium_c.FPDF_PAGEOBJ_SHADING}:
        return NoText.DRAWING
    return NoText.BLANK


@dataclass(frozen=True, slots=True)
class _Character:
    text: str
    box: Box


def _characters(text_page: Any, placing: Placing) -> Iterator[_Character]:
    for index in range(text_page.count_chars()):
        text = _text(pdfium_c.FPDFText_GetUnicode(text_page, index))
        box = placing.box(*text_page.get_charbox(index))
        yield _Character(_SOFT_HYPHENS.get(text, text), box)


def _text(code: int) -> str:
    """Decode a character. A font may give numbers beyond the last one."""
    return chr(code) if code <= sys.maxunicode else "\ufffd"


def _lines(characters: Sequence[_Character]) -> Iterator[Line]:
    """Split into lines. The library detects spaces and line ends, and adds them as characters."""
    words: list[Word] = []
    letters: list[_Character] = []
    for character in characters:
        if not character.text.isspace():
            letters.append(character)
            continue
        words += _word(letters)
        letters = []
        if character.text in "\r\n" and words:
            yield Line(words)
            words = []
    words += _word(letters)
    if words:
        yield Line(words)


def _word(letters: list[_Character]) -> list[Word]:
    if not letters:
        return []
    text = "".join(letter.text for letter in letters)
    # The library returns characters above U+FFFF as surrogate pairs.
    text = clean(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    return [Word(text, Box.around([letter.box for letter in letters]))] if text else []
