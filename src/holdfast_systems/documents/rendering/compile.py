"""What runs in a child process: a template and its data become a PDF."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal

import typst

from holdfast_systems.documents.rendering import limits
from holdfast_systems.documents.rendering.errors import MissingGlyphs, RenderError

# Typst silently prints a box for a character that no font has. Only for an archival PDF, which
# can't contain such boxes, does it report them.
ARCHIVAL: Final = "a-3b"
MISSING_GLYPH = "could not be displayed"
MISSING_TEXT = re.compile(r'the text `"((?:(?!the text `").)*?)"` ' + MISSING_GLYPH)


def compile_document(template: Path, data: str, fonts: Sequence[Path]) -> bytes:
    """Make a PDF with Typst's own fonts and those in these folders. The data are JSON."""
    loaded = _load_fonts(tuple(fonts))
    try:
        pdf = _pdf(template, data, loaded, "1.7")
    except typst.TypstError as error:
        message = " ".join(error.message.split())
        raise RenderError(f"template {template.stem!r}: {message}") from None
    try:
        _pdf(template, data, loaded, ARCHIVAL)
    except typst.TypstError as error:
        # The other rules for archives don't matter here.
        if MISSING_GLYPH in error.diagnostic:
            raise _missing(template, error.diagnostic) from None
    if len(pdf) > limits.PDF_BYTES_MAX:
        raise RenderError(f"the PDF has {len(pdf):,} bytes; the limit is {limits.PDF_BYTES_MAX:,}")
    return pdf


@cache
def _load_fonts(folders: tuple[Path, ...]) -> typst.Fonts:
    """Loaded once in each process: that takes longer than most documents."""
    return typst.Fonts(include_system_fonts=False, font_paths=list(folders))


def _pdf(template: Path, data: str, fonts: typst.Fonts, kind: Literal["1.7", "a-3b"]) -> bytes:
    return typst.compile(
        template,
        root=template.parent,
        font_paths=fonts,
        sys_inputs={"data": data},
        pdf_standards=[kind],
    )


def _missing(template: Path, diagnostic: str) -> MissingGlyphs:
    missing = " ".join(dict.fromkeys(MISSING_TEXT.findall(diagnostic)))
    if len(missing) > limits.MISSING_CHARS_MAX:
        missing = missing[: limits.MISSING_CHARS_MAX] + "…"
    return MissingGlyphs(
        f"template {template.stem!r}: no installed font has {missing};"
        " install fonts, or list their folders in DOCUMENTS_FONTS"
    )
