"""A PDF's pages as lines of words, each with its place on the page."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pypdfium2 as pdfium  # type: ignore[import-untyped]
import pypdfium2.raw as pdfium_c  # type: ignore[import-untyped]

from holdfast_systems.convert.gateway.pages import Box, Line, NoPdf, NotConverted, Page, Word
from holdfast_systems.convert.limits import PAGES_MAX

_SOFT_HYPHENS = {"\ufffe": "-", "\x02": "-"}


def read_pages(content: bytes) -> list[Page]:
    try:
        document = pdfium.PdfDocument(content)
    except pdfium.PdfiumError as error:
        if error.err_code == pdfium_c.FPDF_ERR_PASSWORD:
            raise NotConverted("the PDF has a password") from error
        raise NoPdf("the file is no PDF that can be read") from error
    if len(document) > PAGES_MAX:
        raise NotConverted(f"the PDF has {len(document)} pages, more than {PAGES_MAX}")
    return [_read_page(document, index) for index in range(len(document))]


def _read_page(document: Any, index: int) -> Page:
    try:
        page = document[index]
        width, height = page.get_size()
        characters = _characters(page.get_textpage(), height)
        return Page(index + 1, width, height, list(_lines(characters)))
    except pdfium.PdfiumError as error:
        raise NotConverted(f"page {index + 1} of the PDF can't be read") from error


@dataclass(frozen=True, slots=True)
class _Character:
    text: str
    box: Box


def _characters(text_page: Any, page_height: float) -> Iterator[_Character]:
    for index in range(text_page.count_chars()):
        text = _text(pdfium_c.FPDFText_GetUnicode(text_page, index))
        left, bottom, right, top = text_page.get_charbox(index)
        box = Box(left, page_height - top, right, page_height - bottom)
        yield _Character(_SOFT_HYPHENS.get(text, text), box)


def _text(code: int) -> str:
    """A font may name its characters as it likes, also with numbers beyond the last one."""
    return chr(code) if code <= sys.maxunicode else "\ufffd"


def _lines(characters: Iterator[_Character]) -> Iterator[Line]:
    """The library itself finds spaces and line ends, and puts them among the characters."""
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
    # The library gives a character beyond the first 65,536 as the two halves of UTF-16.
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return [Word(text, Box.around([letter.box for letter in letters]))]
