"""Queries: the parser reads what was written, and a query finds what plain code finds."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast_systems.documents.salesforce.local.errors import ApiError
from holdfast_systems.documents.salesforce.local.ids import full_id, make_id
from holdfast_systems.documents.salesforce.local.schema import GENERATED_DOCUMENT, Row
from holdfast_systems.documents.salesforce.local.soql import parse, run
from holdfast_systems.documents.salesforce.local.soql.parser import KEYWORDS
from holdfast_systems.documents.salesforce.local.soql.syntax import (
    All,
    Any,
    Comparison,
    Condition,
    Name,
    Not,
    Order,
    Query,
    Value,
)

pytestmark = pytest.mark.heavy

START = datetime(2026, 11, 16, 3, tzinfo=UTC)
ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}

names = st.builds(
    Name,
    st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,12}", fullmatch=True).filter(
        lambda text: text.upper() not in KEYWORDS | {"COUNT"}
    ),
)
moments = st.integers(-(10**9), 10**9).map(lambda seconds: START + timedelta(seconds=seconds))
values: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=20),
    st.integers(-(10**9), 10**9).map(float),
    moments,
)
comparisons = st.one_of(
    st.builds(
        Comparison,
        names,
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        st.tuples(values),
    ),
    st.builds(
        Comparison,
        names,
        st.sampled_from(["IN", "NOT IN"]),
        st.lists(values, min_size=1, max_size=3).map(tuple),
    ),
)


def joined(parts: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    negated = parts.filter(lambda part: not isinstance(part, Not)).map(Not)
    return st.one_of(several.map(All), several.map(Any), negated)


conditions: st.SearchStrategy[Condition] = st.recursive(comparisons, joined, max_leaves=8)
queries = st.builds(
    Query,
    st.lists(names, max_size=3).map(tuple),
    names,
    st.none() | conditions,
    st.lists(st.builds(Order, names, st.booleans(), st.booleans()), max_size=2).map(tuple),
    st.none() | st.integers(0, 5000),
    st.integers(0, 2000),
)


def spell_value(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower() if value is not None else "null"
    if isinstance(value, str):
        return "'" + "".join(ESCAPES.get(letter, letter) for letter in value) + "'"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return f"{value:.1f}"


def spell_condition(condition: Condition) -> str:
    match condition:
        case Comparison(name, operator, (value,)) if "IN" not in operator:
            return f"{name.text} {operator} {spell_value(value)}"
        case Comparison(name, operator, several):
            return f"{name.text} {operator} ({', '.join(map(spell_value, several))})"
        case Not(part):
            return f"NOT ({spell_condition(part)})"
        case All(parts):
            return " AND ".join(f"({spell_condition(part)})" for part in parts)
        case Any(parts):
            return " or ".join(f"({spell_condition(part)})" for part in parts)


def spell(query: Query) -> str:
    fields = ", ".join(name.text for name in query.fields) or "COUNT()"
    text = f"select {fields} FROM {query.entity.text}"
    if query.where is not None:
        text += f" WHERE {spell_condition(query.where)}"
    if query.order:
        text += " ORDER BY " + ", ".join(
            f"{order.name.text} {'DESC' if order.descending else 'ASC'} "
            f"NULLS {'LAST' if order.nulls_last else 'FIRST'}"
            for order in query.order
        )
    text += "" if query.limit is None else f" LIMIT {query.limit}"
    return text + (f" OFFSET {query.offset}" if query.offset else "")


@given(queries)
def test_a_query_is_read_as_it_was_meant(query: Query) -> None:
    assert parse(spell(query)) == query


@given(
    st.text(max_size=60)
    | queries.map(spell).flatmap(lambda text: st.permutations(text.split()).map(" ".join))
)
@example("SELECT Id FROM X WHERE " + "(" * 5000)
@example("SELECT Id FROM X WHERE a = '\\")
@example("SELECT Id FROM X WHERE a = 2026-13-01T00:00:00Z")
@example("SELECT Id FROM X WHERE a = '\\q'")
@example("SELECT Id FROM X LIMIT " + "9" * 5000)
def test_any_other_text_is_refused_and_nothing_worse(text: str) -> None:
    with suppress(ApiError):
        assert parse(text).text == text


def test_and_beside_or_needs_parentheses() -> None:
    with pytest.raises(ApiError, match="unexpected token: 'OR'"):
        parse("SELECT Id FROM X WHERE a = 1 AND b = 2 OR c = 3")


def row(number: int, name: str | None, priority: int | None, minutes: int | None) -> Row:
    empty: Row = dict.fromkeys(each.name for each in GENERATED_DOCUMENT.fields.values())
    moment = None if minutes is None else START + timedelta(minutes=minutes)
    filled: Row = {
        "Id": make_id("a00", number),
        "Name": name,
        "Priority__c": None if priority is None else float(priority),
        "LockedUntil__c": moment,
    }
    return {**empty, **filled}


some_rows = st.lists(
    st.tuples(
        st.none() | st.sampled_from(["a", "A", "b", "Ba", "ab"]),
        st.none() | st.integers(0, 3),
        st.none() | st.integers(-2, 2),
    ),
    max_size=12,
).map(lambda tuples: [row(number, *each) for number, each in enumerate(tuples)])


def numbers(query: str, rows: list[Row]) -> list[int]:
    ids = [each["Id"] for each in rows]
    return [ids.index(each["Id"]) for each in run(GENERATED_DOCUMENT, parse(query), rows).rows]


@given(some_rows, st.integers(0, 3), st.sampled_from(["a", "B"]), st.integers(-2, 2))
def test_a_filter_finds_what_a_plain_reading_finds(
    rows: list[Row], priority: int, name: str, minutes: int
) -> None:
    literal = (START + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = numbers(
        "SELECT Id FROM Generated_Document__c WHERE "
        f"(LockedUntil__c = null OR LockedUntil__c <= {literal}) AND "
        f"(Name != '{name}' OR Priority__c IN ({priority}, null)) AND NOT Name = 'ba'",
        rows,
    )

    def wanted(each: Row) -> bool:
        moment, text = each["LockedUntil__c"], each["Name"]
        due = not isinstance(moment, datetime) or moment <= START + timedelta(minutes=minutes)
        other = not isinstance(text, str) or text.lower() != name.lower()
        listed = each["Priority__c"] in (float(priority), None)
        named = isinstance(text, str) and text.lower() == "ba"
        return due and (other or listed) and not named

    assert found == [number for number, each in enumerate(rows) if wanted(each)]


@given(some_rows, st.integers(0, 5), st.integers(0, 5))
def test_order_limit_and_offset_choose_a_part_of_the_whole(
    rows: list[Row], limit: int, offset: int
) -> None:
    found = numbers(
        "SELECT Id FROM Generated_Document__c ORDER BY Priority__c DESC NULLS LAST, "
        f"LockedUntil__c LIMIT {limit} OFFSET {offset}",
        rows,
    )

    def key(number: int) -> tuple[float, float]:
        priority, moment = rows[number]["Priority__c"], rows[number]["LockedUntil__c"]
        first = -priority if isinstance(priority, float) else float("inf")
        second = moment.timestamp() if isinstance(moment, datetime) else float("-inf")
        return first, second

    assert found == sorted(range(len(rows)), key=key)[offset : offset + limit]


@given(st.integers(0, 62**9 - 1))
def test_an_id_is_found_by_its_short_form(number: int) -> None:
    record_id = make_id("a00", number)

    assert full_id(record_id[:15]) == record_id
    assert full_id(record_id) == record_id
    assert full_id(record_id[:16]) is None
    assert full_id(record_id + "A") is None


def test_the_case_suffix_is_the_one_that_salesforce_gives() -> None:
    # Pairs from Salesforce's own documentation.
    for known in ("001R00000064wdtIAA", "001xx000003DGb2AAG", "003xx000004TmiQAAS"):
        assert full_id(known[:15]) == known
