"""PDF files written by hand, for what no library would write."""

from __future__ import annotations

from collections.abc import Sequence

HELVETICA = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
A_FONT, A_STREAM = 4, 5  # their numbers in a file of `one_page`


def raw_pdf(objects: Sequence[str | bytes]) -> bytes:
    """A file of these objects, counted from one; the first is the catalog."""
    content, places = b"%PDF-1.7\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(content))
        body = each if isinstance(each, bytes) else each.encode("latin-1")
        content += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    content_size = len(content)
    content += b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, table)
    return content + b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (
        size,
        content_size,
    )


def stream(content: str | bytes, entries: str = "") -> bytes:
    body = content if isinstance(content, bytes) else content.encode("latin-1")
    return b"<<%s/Length %d>>\nstream\n%s\nendstream" % (entries.encode(), len(body), body)


def one_page(
    content: str,
    page: str = "/MediaBox[0 0 300 200]",
    *,
    above: str = "",
    font: str = HELVETICA,
    catalog: str = "",
    resources: str = "",
    more: Sequence[str | bytes] = (),
) -> bytes:
    """A page with this content; `above` are entries of the node above it, `more` objects from
    number 6 on."""
    return raw_pdf(
        [
            f"<</Type/Catalog/Pages 2 0 R{catalog}>>",
            f"<</Type/Pages/Kids[3 0 R]/Count 1{above}>>",
            f"<</Type/Page/Parent 2 0 R{page}/Contents {A_STREAM} 0 R"
            f"/Resources<</Font<</F {A_FONT} 0 R>>{resources}>>>>",
            font,
            stream(content),
            *more,
        ]
    )


def words_at(places: dict[str, tuple[float, float]], size: float = 10) -> str:
    """Page content that shows each word at its place."""
    return "\n".join(
        f"BT /F {size} Tf 1 0 0 1 {x} {y} Tm ({word}) Tj ET" for word, (x, y) in places.items()
    )
