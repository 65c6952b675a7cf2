"""What is read of a PDF, and where it is: compared with what others see in the same file."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from holdfast_systems.convert.gateway.mappings import write_xml
from holdfast_systems.convert.gateway.pages import Box, NoText
from holdfast_systems.convert.gateway.reader import read_document
from tests.support.services import missing
from tests.systems.convert.raw_pdf import one_page, stream, words_at

pytestmark = pytest.mark.heavy

PLACES: dict[str, tuple[float, float]] = {"alpha": (40, 50), "beta": (150, 120)}
MEDIA = "/MediaBox[0 0 300 200]"
BOXES = {
    "the media box alone": MEDIA,
    "a media box that begins elsewhere": "/MediaBox[10 20 310 220]",
    "a media box that begins below zero": "/MediaBox[-50 -30 250.5 170]",
    "swapped corners": "/MediaBox[300 200 0 0]",
    "a crop box": f"{MEDIA}/CropBox[20 30 280 180]",
    "a crop box with swapped corners": f"{MEDIA}/CropBox[280 180 20 30]",
    "a crop box within a shifted media box": "/MediaBox[10 20 310 220]/CropBox[20 30 280 180]",
    "a unit of its own": f"{MEDIA}/CropBox[20 30 280 180]/UserUnit 2",
}
WORD = re.compile(r'<word xMin="(.+?)" yMin="(.+?)" xMax="(.+?)" yMax="(.+?)">(.+?)</word>')


def seen_by_poppler(pdf: bytes, folder: Path) -> dict[str, Box]:
    if shutil.which("pdftotext") is None:
        missing("poppler-utils is not installed")
    (folder / "a.pdf").write_bytes(pdf)
    command = ["pdftotext", "-bbox", "-cropbox", str(folder / "a.pdf"), "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {
        text: Box(float(left), float(top), float(right), float(bottom))
        for left, top, right, bottom, text in WORD.findall(done.stdout)
    }


def seen_by_us(pdf: bytes) -> tuple[dict[str, Box], tuple[float, float]]:
    (page,) = read_document(pdf).pages
    words = {word.text: word.box for line in page.lines for word in line.words}
    return words, (page.width, page.height)


def middle(box: Box) -> tuple[float, float]:
    return (box.left + box.right) / 2, (box.top + box.bottom) / 2


def compare(pdf: bytes, folder: Path) -> tuple[float, float]:
    """Ours are as large as the letters, theirs as the font: the middles are close."""
    ours, size = seen_by_us(pdf)
    theirs = seen_by_poppler(pdf, folder)
    assert ours.keys() == theirs.keys() == PLACES.keys()
    for text, box in ours.items():
        assert middle(box) == pytest.approx(middle(theirs[text]), abs=3)
        assert 0 <= box.left < box.right <= size[0]
        assert 0 <= box.top < box.bottom <= size[1]
    return size


@pytest.mark.parametrize("rotation", [0, 90, 180, 270, -90, 450])
@pytest.mark.parametrize("boxes", BOXES.values(), ids=BOXES)
def test_words_are_where_people_see_them(boxes: str, rotation: int, tmp_path: Path) -> None:
    pdf = one_page(words_at(PLACES), f"{boxes}/Rotate {rotation}")
    width, height = compare(pdf, tmp_path)
    assert (width < height) == (rotation % 180 == 90)


@pytest.mark.parametrize("rotation", [0, 270])
def test_boxes_and_rotation_may_be_inherited(rotation: int, tmp_path: Path) -> None:
    above = f"/MediaBox[10 20 310 220]/CropBox[20 30 280 180]/Rotate {rotation}"
    size = compare(one_page(words_at(PLACES), "", above=above), tmp_path)
    assert sorted(size) == [150, 260]


def test_a_crop_box_beside_the_page_does_not_count() -> None:
    pdf = one_page(words_at(PLACES), f"{MEDIA}/CropBox[500 500 600 600]/Rotate 90")
    words, size = seen_by_us(pdf)
    assert size == (200, 300)
    assert middle(words["alpha"]) == pytest.approx((52, 52), abs=3)


def test_a_turned_page_with_upright_text_has_its_lines() -> None:
    upright = "\n".join(
        f"BT /F 10 Tf 0 1 -1 0 {x} {y} Tm ({text}) Tj ET"
        for text, (x, y) in {"first line": (40, 50), "second": (60, 50)}.items()
    )
    (page,) = read_document(one_page(upright, f"{MEDIA}/Rotate 90")).pages
    assert [line.text for line in page.lines] == ["first line", "second"]
    first, second = (Box.around([word.box for word in line.words]) for line in page.lines)
    assert first.left == pytest.approx(50, abs=2)
    assert first.right - first.left > first.bottom - first.top
    assert second.top - first.top == pytest.approx(20, abs=2)


FORM = "/AcroForm<</Fields[6 0 R 7 0 R 8 0 R 9 0 R 10 0 R]/DA(/F 9 Tf)/DR<</Font<</F 4 0 R>>>>>>"
WIDGET = "<</Type/Annot/Subtype/Widget"
MARKS = [
    f"{WIDGET}/FT/Tx/T(name)/TU(Your name)/V<FEFF0041006400610020674E>/Rect[100 100 200 120]>>",
    f"{WIDGET}/FT/Btn/T(agree)/V/Yes/AS/Yes/Rect[10 10 20 20]/AP<</N<</Yes 5 0 R/Off 5 0 R>>>>>>",
    f"{WIDGET}/FT/Ch/Ff 131072/T(country)/V(DE)/Opt[[(DE)(Germany)][(FR)(France)]]"
    "/Rect[30 10 80 20]>>",
    f"{WIDGET}/FT/Tx/Ff 8192/T(code)/V(hidden)/Rect[1 1 2 2]>>",
    f"{WIDGET}/FT/Tx/F 2/T(unseen)/V(hidden)/Rect[1 1 2 2]>>",
    "<</Type/Annot/Subtype/FreeText/Contents(Please\\rpay)/Rect[100 150 200 160]/DA(/F 9 Tf)>>",
    "<</Type/Annot/Subtype/Text/Contents<FEFF65E5>/Rect[5 5 25 25]>>",
    "<</Type/Annot/Subtype/Stamp/Rect[5 5 25 25]>>",
    "<</Type/Annot/Subtype/Popup/Contents(again)/Rect[5 5 25 25]>>",
    "<</Type/Annot/Subtype/Link/Rect[5 5 25 25]>>",
]
ANNOTS = f"/Annots[{' '.join(f'{number} 0 R' for number in range(6, 16))}]"
FORM_PDF = one_page(words_at({"Name": (40, 105)}), MEDIA + ANNOTS, catalog=FORM, more=MARKS)


def test_fields_and_annotations_are_told_with_the_text() -> None:
    written = write_xml("text", read_document(FORM_PDF))
    (page,) = ElementTree.fromstring(written)
    assert page.text == "Name"
    assert [(each.tag, each.attrib, each.text) for each in page] == [
        ("field", {"type": "text", "name": "name", "label": "Your name"}, "Ada 李"),
        ("field", {"type": "checkbox", "name": "agree", "checked": "true"}, "Yes"),
        ("field", {"type": "choice", "name": "country"}, "Germany"),
        ("field", {"type": "text", "name": "code"}, None),
        ("annotation", {"type": "text"}, "Please\npay"),
        ("annotation", {"type": "note"}, "日"),
        ("annotation", {"type": "stamp"}, None),
    ]


def test_fields_are_told_where_they_are() -> None:
    root = ElementTree.fromstring(write_xml("layout", read_document(FORM_PDF)))
    field = root.find("page/field")
    assert field is not None
    places = {name: float(field.attrib[name]) for name in ("left", "top", "width", "height")}
    assert places == {"left": 100, "top": 80, "width": 100, "height": 20}


IMAGE = stream(
    b"\x80", "/Type/XObject/Subtype/Image/Width 1/Height 1/ColorSpace/DeviceGray/BitsPerComponent 8"
)
NO_NAMES = (
    "<</Type/Font/Subtype/Type3/FontBBox[0 0 1 1]/FontMatrix[1 0 0 1 0 0]/CharProcs<</a 6 0 R>>"
    "/Encoding<</Differences[1/a]>>/FirstChar 1/LastChar 1/Widths[1]>>"
)


@pytest.mark.parametrize(
    ("pdf", "reason"),
    [
        (one_page(""), NoText.BLANK),
        (one_page("BT /F 9 Tf (  ) Tj ET"), NoText.BLANK),
        (one_page("0 0 50 50 re f"), NoText.DRAWING),
        (
            one_page("300 0 0 200 0 0 cm /I Do", resources="/XObject<</I 6 0 R>>", more=[IMAGE]),
            NoText.IMAGE,
        ),
        (
            one_page("BT /F 9 Tf (\x01) Tj ET", font=NO_NAMES, more=[stream("0 0 1 1 re f")]),
            NoText.FONTS,
        ),
    ],
)
def test_a_page_without_text_says_why(pdf: bytes, reason: NoText) -> None:
    for mapping in ("text", "layout"):
        (page,) = ElementTree.fromstring(write_xml(mapping, read_document(pdf)))
        assert page.get("no-text") == reason
        assert (page.text or "", list(page)) == ("", [])


def test_a_page_with_text_gives_no_reason() -> None:
    root = ElementTree.fromstring(write_xml("text", read_document(one_page(words_at(PLACES)))))
    assert [element.get("no-text") for element in root.iter()] == [None, None]


def test_a_dynamic_form_says_that_its_text_is_not_on_its_pages() -> None:
    def root_of(catalog: str) -> ElementTree.Element:
        pdf = one_page(words_at({"Wait": (9, 9)}), catalog=catalog, more=[stream("<xdp/>")])
        return ElementTree.fromstring(write_xml("text", read_document(pdf)))

    form = "/AcroForm<</Fields[]/XFA 6 0 R>>"
    assert root_of(f"/NeedsRendering true{form}").get("no-text") == "dynamic-xfa"
    assert root_of(form).get("no-text") is None
