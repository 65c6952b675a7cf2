"""From a PDF's pages to XML, by one of the mappings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from holdfast_systems.convert.gateway.invoice import read_invoice
from holdfast_systems.convert.gateway.pages import Box, NotConverted, Page
from holdfast_systems.convert.limits import MIB, XML_BYTES_MAX

# All that XML 1.0 has no place for, in any form.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_xml(mapping: str, pages: Sequence[Page]) -> bytes:
    root = Element("document", mapping=mapping, pages=str(len(pages)))
    _WRITERS[mapping](root, pages)
    xml: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    if len(xml) > XML_BYTES_MAX:
        raise NotConverted(f"the XML would be larger than {XML_BYTES_MAX // MIB} MiB")
    return xml


def clean(text: str) -> str:
    return _FORBIDDEN.sub("", text)


def _write_text(root: Element, pages: Sequence[Page]) -> None:
    for page in pages:
        element = SubElement(root, "page", number=str(page.number))
        element.text = clean("\n".join(line.text for line in page.lines))


def _write_layout(root: Element, pages: Sequence[Page]) -> None:
    for page in pages:
        element = SubElement(root, "page", number=str(page.number))
        element.attrib |= {"width": f"{page.width:.2f}", "height": f"{page.height:.2f}"}
        for line in page.lines:
            box = Box.around([word.box for word in line.words])
            row = SubElement(element, "line", _attributes(box))
            for word in line.words:
                SubElement(row, "word", _attributes(word.box)).text = clean(word.text)


def _attributes(box: Box) -> dict[str, str]:
    return {
        "left": f"{box.left:.2f}",
        "top": f"{box.top:.2f}",
        "width": f"{box.right - box.left:.2f}",
        "height": f"{box.bottom - box.top:.2f}",
    }


def _write_invoice(root: Element, pages: Sequence[Page]) -> None:
    invoice = read_invoice([line.text for page in pages for line in page.lines])
    if invoice.number is None or invoice.total is None:
        raise NotConverted("the PDF has no invoice number with a total")
    element = SubElement(root, "invoice")
    for name in ("number", "date", "currency", "subtotal", "tax", "total"):
        value = getattr(invoice, name)
        if value is not None:
            SubElement(element, name).text = clean(str(value))


_WRITERS: dict[str, Callable[[Element, Sequence[Page]], None]] = {
    "text": _write_text,
    "layout": _write_layout,
    "invoice": _write_invoice,
}
