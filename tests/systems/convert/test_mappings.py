"""From pages to XML, and from lines to an invoice."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_systems.convert.files import check_xml
from holdfast_systems.convert.gateway.invoice import (
    Invoice,
    last_amount,
    parse_amount,
    parse_date,
    read_invoice,
)
from holdfast_systems.convert.gateway.mappings import write_xml
from holdfast_systems.convert.gateway.pages import (
    Box,
    Document,
    Field,
    Line,
    NotConverted,
    NoText,
    Page,
    Word,
)

pytestmark = pytest.mark.heavy

amounts = st.decimals(0, 10**9, places=2, allow_nan=False)
lines = st.lists(st.text(max_size=60), max_size=20)


def page(*words: str) -> Page:
    return Page(1, 100, 200, [Line([Word(word, Box(1, 2, 3, 4)) for word in words])])


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_whatever_a_pdf_says_the_xml_is_well_formed(text: str) -> None:
    for mapping in ("text", "layout"):
        check_xml(write_xml(mapping, Document([page("x", text)])))


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"])))
def test_what_xml_can_say_comes_out_as_it_went_in(text: str) -> None:
    root = ElementTree.fromstring(write_xml("layout", Document([page("x", text)])))
    assert [word.text or "" for word in root.iter("word")] == ["x", text]


def test_control_characters_are_left_out() -> None:
    root = ElementTree.fromstring(
        write_xml("text", Document([page("a\x00\x0b\x1fb\ufffe\uffffc")]))
    )
    assert root.findtext("page") == "abc"


@given(amounts)
def test_amounts_are_read_as_written_in_either_style(amount: Decimal) -> None:
    english = f"{amount:,.2f}"
    german = english.translate(str.maketrans(",.", ".,"))
    assert parse_amount(english) == parse_amount(german) == amount
    assert last_amount(f"Total (19 %) EUR {german}") == amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [("12", "12.00"), ("1'000.50", "1000.50"), ("1 000,50", "1000.50"), ("-3.20", "-3.20")],
)
def test_other_ways_to_write_an_amount(text: str, amount: str) -> None:
    assert parse_amount(text) == Decimal(amount)


@given(st.dates(date(1, 1, 1)))
def test_dates_are_read_in_three_ways(day: date) -> None:
    month = "January February March April May June July August September October November December"
    written = f"{day.day} {month.split()[day.month - 1]} {day.year:04}"
    dotted = f"{day.day}.{day.month}.{day.year:04}"
    assert parse_date(day.isoformat()) == parse_date(dotted) == parse_date(written) == day


@pytest.mark.parametrize("text", ["03/04/2026", "2026-13-01", "31.02.2026", "1 Foo 2026", ""])
def test_what_is_no_date_or_could_be_two_is_none(text: str) -> None:
    assert parse_date(text) is None


def test_an_invoice_is_read_by_its_labels() -> None:
    found = read_invoice(
        [
            "Invoice number: 2026/77 Date: soon",
            "Invoice date 2026-11-16",
            "Total weight 12 kg",
            "Net amount $ 100.00",
            "Tax (10 %) $ 10.00",
            "Total including tax $ 110.00",
        ]
    )
    assert found == Invoice(
        number="2026/77",
        date=date(2026, 11, 16),
        currency="USD",
        subtotal=Decimal("100.00"),
        tax=Decimal("10.00"),
        total=Decimal("110.00"),
    )


@given(lines)
def test_no_text_can_break_the_reading_of_an_invoice(found: list[str]) -> None:
    invoice = read_invoice([*found, "Invoice No. 1", "Total 2.00"])
    assert invoice.number is not None
    assert invoice.total == 2


def test_an_invoice_is_read_from_the_fields_of_a_form() -> None:
    labels = [
        Line([Word("Invoice", Box(10, 20, 40, 28)), Word("number", Box(42, 20, 70, 28))]),
        Line([Word("Total", Box(10, 52, 40, 60)), Word("EUR", Box(200, 52, 220, 60))]),
    ]
    fields = [
        Field("text", "b", "", "1,190.00", Box(100, 45, 190, 65)),
        Field("text", "a", "", "2026/78", Box(100, 15, 190, 35)),
        Field("text", "date", "Date", "2026-11-17", Box(100, 100, 190, 120)),
        Field("checkbox", "paid", "", "Total 5", Box(100, 45, 190, 65), is_checked=True),
    ]
    written = write_xml("invoice", Document([Page(1, 300, 200, labels, fields)]))
    (invoice,) = ElementTree.fromstring(written)
    assert {element.tag: element.text for element in invoice} == {
        "number": "2026/78",
        "date": "2026-11-17",
        "currency": "EUR",
        "total": "1190.00",
    }


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (Document([Page(1, 9, 9, [], no_text=NoText.IMAGE)]), r"no text \(image\)"),
        (Document([page("Wait")], no_text=NoText.DYNAMIC_XFA), r"no text \(dynamic-xfa\)"),
        (Document([page("Hello"), Page(2, 9, 9, [], no_text=NoText.IMAGE)]), "total$"),
    ],
)
def test_a_pdf_without_text_has_no_invoice_and_says_why(document: Document, reason: str) -> None:
    with pytest.raises(NotConverted, match=reason):
        write_xml("invoice", document)
