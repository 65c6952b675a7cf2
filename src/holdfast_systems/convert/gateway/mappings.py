"""Write a PDF's pages as XML, by one of the mappings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from holdfast_systems.convert.gateway.invoice import read_invoice
from holdfast_systems.convert.gateway.pages import Box, Document, NotConverted, Page, clean
from holdfast_systems.convert.limits import MIB, XML_BYTES_MAX


def write_xml(mapping: str, document: Document) -> bytes:
    root = Element("document", mapping=mapping, pages=str(len(document.pages)))
    if document.no_text:
        root.set("no-text", document.no_text)
    _WRITERS[mapping](root, document)
    xml: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    if len(xml) > XML_BYTES_MAX:
        raise NotConverted(f"the XML would be larger than {XML_BYTES_MAX // MIB} MiB")
    return xml


def _write_text(root: Element, document: Document) -> None:
    for page in document.pages:
        element = _page(root, page)
        element.text = clean("\n".join(line.text for line in page.lines))
        _write_marks(element, page, with_places=False)


def _write_layout(root: Element, document: Document) -> None:
    for page in document.pages:
        element = _page(root, page)
        element.attrib |= {"width": f"{page.width:.2f}", "height": f"{page.height:.2f}"}
        for line in page.lines:
            box = Box.around([word.box for word in line.words])
            row = SubElement(element, "line", _attributes(box))
            for word in line.words:
                SubElement(row, "word", _attributes(word.box)).text = clean(word.text)
        _write_marks(element, page, with_places=True)


def _page(root: Element, page: Page) -> Element:
    element = SubElement(root, "page", number=str(page.number))
    if page.no_text:
        element.set("no-text", page.no_text)
    return element


def _write_marks(element: Element, page: Page, *, with_places: bool) -> None:
    """Write fields and annotations after the text, because they are not part of it."""
    for field in page.fields:
        attributes = {"type": field.kind, "name": field.name}
        if field.label:
            attributes["label"] = field.label
        if field.is_checked is not None:
            attributes["checked"] = "true" if field.is_checked else "false"
        places = _attributes(field.box) if with_places else {}
        SubElement(element, "field", attributes | places).text = field.value
    for note in page.annotations:
        places = _attributes(note.box) if with_places else {}
        SubElement(element, "annotation", {"type": note.kind} | places).text = note.text


def _attributes(box: Box) -> dict[str, str]:
    return {
        "left": f"{box.left:.2f}",
        "top": f"{box.top:.2f}",
        "width": f"{box.right - box.left:.2f}",
        "height": f"{box.bottom - box.top:.2f}",
    }


def _write_invoice(root: Element, document: Document) -> None:
    invoice = read_invoice([text for page in document.pages for text in _texts(page)])
    if invoice.number is None or invoice.total is None:
        raise NotConverted(f"the PDF has no invoice number and total{_why(document)}")
    element = SubElement(root, "invoice")
    for name in ("number", "date", "currency", "subtotal", "tax", "total"):
        value = getattr(invoice, name)
        if value is not None:
            SubElement(element, name).text = clean(str(value))


def _texts(page: Page) -> Iterator[str]:
    """The lines as a reader sees them, with the form fields that are filled in."""
    left = [field for field in page.fields if field.is_checked is None and field.value]
    for line in page.lines:
        box = Box.around([word.box for word in line.words])
        beside = [field for field in left if field.box.is_beside(box)]
        left = [field for field in left if field not in beside]
        parts = [(word.box.left, word.text) for word in line.words]
        parts += [(field.box.left, field.value) for field in beside]
        yield " ".join(text for _, text in sorted(parts, key=lambda part: part[0]))
    for field in left:
        yield f"{field.label or field.name}: {field.value}"


def _why(document: Document) -> str:
    reasons = {document.no_text} if document.no_text else {page.no_text for page in document.pages}
    named = sorted(reason for reason in reasons if reason)
    return f"; it has no text ({', '.join(named)})" if None not in reasons and named else ""


_WRITERS: dict[str, Callable[[Element, Document], None]] = {
    "text": _write_text,
    "layout": _write_layout,
    "invoice": _write_invoice,
}
