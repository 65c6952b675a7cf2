"""What is on a page but not part of its text: form fields and annotations."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pypdfium2.raw as pdfium_c  # type: ignore[import-untyped]

from holdfast_systems.convert.gateway.coordinates import Placing
from holdfast_systems.convert.gateway.pages import Annotation, Box, Field, clean

_UNSEEN: Final = pdfium_c.FPDF_ANNOT_FLAG_HIDDEN | pdfium_c.FPDF_ANNOT_FLAG_NOVIEW
_PASSWORD: Final = 1 << 13  # the flag of a password field
_FIELDS: Final = {
    pdfium_c.FPDF_FORMFIELD_CHECKBOX: "checkbox",
    pdfium_c.FPDF_FORMFIELD_RADIOBUTTON: "radio",
    pdfium_c.FPDF_FORMFIELD_COMBOBOX: "choice",
    pdfium_c.FPDF_FORMFIELD_LISTBOX: "choice",
    pdfium_c.FPDF_FORMFIELD_TEXTFIELD: "text",
    pdfium_c.FPDF_FORMFIELD_SIGNATURE: "signature",
}
# These are visible even without text.
_SHOWN: Final = {pdfium_c.FPDF_ANNOT_FREETEXT: "text", pdfium_c.FPDF_ANNOT_STAMP: "stamp"}
_COMMENTS: Final = {
    pdfium_c.FPDF_ANNOT_TEXT: "note",
    pdfium_c.FPDF_ANNOT_LINK: "link",
    pdfium_c.FPDF_ANNOT_HIGHLIGHT: "highlight",
    pdfium_c.FPDF_ANNOT_UNDERLINE: "underline",
    pdfium_c.FPDF_ANNOT_SQUIGGLY: "underline",
    pdfium_c.FPDF_ANNOT_STRIKEOUT: "strikeout",
    pdfium_c.FPDF_ANNOT_FILEATTACHMENT: "attachment",
    pdfium_c.FPDF_ANNOT_REDACT: "redaction",
}
# A popup repeats the text of its annotation.
_SKIPPED: Final = {pdfium_c.FPDF_ANNOT_POPUP, pdfium_c.FPDF_ANNOT_XFAWIDGET}


def read_annotations(
    page: Any, form: Any, placing: Placing
) -> tuple[list[Field], list[Annotation]]:
    """Read the visible ones. `form` is None in a document without fields."""
    fields: list[Field] = []
    annotations: list[Annotation] = []
    for index in range(pdfium_c.FPDFPage_GetAnnotCount(page)):
        with _annotation(page, index) as handle:
            if not handle or pdfium_c.FPDFAnnot_GetFlags(handle) & _UNSEEN:
                continue
            kind = pdfium_c.FPDFAnnot_GetSubtype(handle)
            box = _box(handle, placing)
            if kind == pdfium_c.FPDF_ANNOT_WIDGET:
                fields += _field(form, handle, box)
            elif kind not in _SKIPPED:
                annotations += _comment(handle, kind, box)
    return fields, annotations


@contextmanager
def _annotation(page: Any, index: int) -> Iterator[Any]:
    handle = pdfium_c.FPDFPage_GetAnnot(page, index)
    try:
        yield handle
    finally:
        if handle:
            pdfium_c.FPDFPage_CloseAnnot(handle)


def _field(form: Any, handle: Any, box: Box) -> list[Field]:
    kind = _FIELDS.get(pdfium_c.FPDFAnnot_GetFormFieldType(form, handle)) if form else None
    if kind is None:
        return []
    name = _text(pdfium_c.FPDFAnnot_GetFormFieldName, form, handle)
    label = _text(pdfium_c.FPDFAnnot_GetFormFieldAlternateName, form, handle)
    value, is_checked = "", None
    if kind in ("checkbox", "radio"):
        is_checked = bool(pdfium_c.FPDFAnnot_IsChecked(form, handle))
        value = _text(pdfium_c.FPDFAnnot_GetFormFieldExportValue, form, handle)
    elif kind == "choice":
        value = _chosen(form, handle)
    elif kind == "text" and not pdfium_c.FPDFAnnot_GetFormFieldFlags(form, handle) & _PASSWORD:
        value = _text(pdfium_c.FPDFAnnot_GetFormFieldValue, form, handle)
    return [Field(kind, name, label, value, box, is_checked)]


def _chosen(form: Any, handle: Any) -> str:
    """What the reader sees: the labels of the selected options, or the text typed instead."""
    chosen = [
        _text(pdfium_c.FPDFAnnot_GetOptionLabel, form, handle, index)
        for index in range(pdfium_c.FPDFAnnot_GetOptionCount(form, handle))
        if pdfium_c.FPDFAnnot_IsOptionSelected(form, handle, index)
    ]
    return "\n".join(chosen) or _text(pdfium_c.FPDFAnnot_GetFormFieldValue, form, handle)


def _comment(handle: Any, kind: int, box: Box) -> list[Annotation]:
    text = _text(pdfium_c.FPDFAnnot_GetStringValue, handle, b"Contents")
    if kind in _SHOWN or text.strip():
        name = _SHOWN.get(kind) or _COMMENTS.get(kind, "drawing")
        return [Annotation(name, text, box)]
    return []


def _box(handle: Any, placing: Placing) -> Box:
    found = pdfium_c.FS_RECTF()
    pdfium_c.FPDFAnnot_GetRect(handle, found)
    return placing.box(found.left, found.bottom, found.right, found.top)


def _text(read: Callable[..., int], *about: Any) -> str:
    """Read a text. The library writes zero-terminated UTF-16 into a buffer of the caller."""
    size = read(*about, None, 0)
    room = ctypes.create_string_buffer(max(size, 2))
    read(*about, ctypes.cast(room, ctypes.POINTER(pdfium_c.FPDF_WCHAR)), size)
    text = room.raw[: max(size, 2) - 2].decode("utf-16-le", "replace")
    return clean(text.replace("\r\n", "\n").replace("\r", "\n"))
