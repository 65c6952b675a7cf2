"""A document gives all its facts, or none and the reason."""

from __future__ import annotations

import csv
import io
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_systems.passport import limits
from holdfast_systems.passport.errors import DocumentTooLarge, PassportError, ValidationError
from holdfast_systems.passport.facts import Fact, parse_document
from holdfast_systems.passport.schema import BILL_OF_MATERIALS
from tests.systems.passport.samples import DOCUMENT, TENANT, sample_facts

pytestmark = pytest.mark.heavy

PRINTABLE = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), max_size=20
)
WORDS = PRINTABLE.map(str.strip).filter(bool)
NUMBERS = st.decimals(min_value=-(10**9), max_value=10**9, places=4, allow_nan=False)


def parse(text: str) -> list[Fact]:
    return parse_document(text.encode(), BILL_OF_MATERIALS)


def test_facts_are_typed_filled_and_in_order() -> None:
    facts = sample_facts()
    assert [fact.fact_key for fact in facts] == ["CASE-1", "CELL-1", "PLATE-1"]
    assert facts[0].payload == {
        "material": "aluminium",
        "mass_kg": "18.25",
        "quantity": "1",
        "recycled_percent": "60",
        "origin": "",
        "hazardous": False,
    }
    assert facts[2].payload["recycled_percent"] == "0"
    assert facts[2].payload["hazardous"] is False


def test_the_same_fact_has_the_same_id_however_it_was_written() -> None:
    quoted = DOCUMENT.replace(b"18.250", b' "18.25"'.strip()).replace(b"\n", b"\r\n")
    again = parse_document(b"\xef\xbb\xbf" + quoted, BILL_OF_MATERIALS)
    assert [fact.id(TENANT) for fact in again] == [fact.id(TENANT) for fact in sample_facts()]
    assert again[0].id(TENANT) != again[0].id("other tenant")


@settings(max_examples=30)
@given(st.dictionaries(WORDS, st.tuples(WORDS, NUMBERS, st.booleans()), min_size=1, max_size=8))
def test_what_was_written_is_read(rows: dict[str, tuple[str, Decimal, bool]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["part", "material", "mass_kg", "hazardous"])
    for key, (material, mass, hazardous) in rows.items():
        writer.writerow([key, material, mass, hazardous])
    facts = parse_document(text.getvalue().encode(), BILL_OF_MATERIALS)
    assert {
        fact.fact_key: (
            fact.payload["material"],
            Decimal(fact.payload["mass_kg"]),
            fact.payload["hazardous"],
        )
        for fact in facts
    } == rows


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_give_facts_or_an_error_of_ours(content: bytes) -> None:
    for document in (content, b"part,material,mass_kg\n" + content):
        with suppress(PassportError):
            assert parse_document(document, BILL_OF_MATERIALS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "needs a column"),
        ("part,material,mass_kg\n", "no facts"),
        ("part,material\nA,iron\n", "needs a column 'mass_kg'"),
        ("part,material,mass_kg,color\nA,iron,1,red\n", "no column 'color'"),
        (f"part,material,mass_kg,{'x' * 9999}\nA,iron,1,red\n", "no column 'x{40}'$"),
        ("part,material,mass_kg,part\nA,iron,1,A\n", "twice"),
        ("part,material,mass_kg\nA,iron\n", "line 2 has 2 cells"),
        ("part,material,mass_kg\n,iron,1\n", "no part"),
        ("part,material,mass_kg\nA,,1\n", "no material"),
        ("part,material,mass_kg\nA,iron,1\nA,iron,2\n", "line 3: A occurs twice"),
        ("part,material,mass_kg\nA,iron,1e3\n", "not a plain number"),
        ("part,material,mass_kg\nA,iron,NaN\n", "not a plain number"),
        ("part,material,mass_kg\nA,iron,\u0661\n", "not a plain number"),
        ("part,material,mass_kg\nA,iron,1.2.3\n", "not a plain number"),
        ("part,material,mass_kg,hazardous\nA,iron,1,maybe\n", "not yes or no"),
        ('part,material,mass_kg\n"A\nB",iron,1\n', "on one line"),
        ("part,material,mass_kg\nA,ir\0on,1\n", "on one line"),
        ('part,material,mass_kg\n"A"B,iron,1\n', "not CSV"),
    ],
)
def test_the_reason_names_the_place(text: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        parse(text)


def test_documents_are_limited() -> None:
    with pytest.raises(DocumentTooLarge):
        parse_document(b"x" * (limits.DOCUMENT_BYTES_MAX + 1), BILL_OF_MATERIALS)
    rows = "".join(f"{number},a,1\n" for number in range(limits.FACTS_MAX + 1))
    with pytest.raises(DocumentTooLarge, match="50000 facts"):
        parse("part,material,mass_kg\n" + rows)
    with pytest.raises(ValidationError, match="not UTF-8"):
        parse_document(b"part,material,mass_kg\n\xff,a,1\n", BILL_OF_MATERIALS)
