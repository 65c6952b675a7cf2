"""Values get into a query as literals only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import BadArguments
from holdfast_systems.documents.salesforce.client import bind
from holdfast_systems.documents.salesforce.local.soql.parser import parse
from holdfast_systems.documents.salesforce.local.soql.syntax import Comparison

pytestmark = pytest.mark.heavy

NAIVE = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
QUERY = "SELECT Id FROM Generated_Document__c WHERE Name = :value"


def read_back(value: object, query: str = QUERY) -> Comparison:
    """Return what the local Salesforce reads; its parser shares no code with the client."""
    where = parse(bind(query, {"value": value})).where
    assert isinstance(where, Comparison)
    return where


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_read_back_as_it_was(text: str) -> None:
    assert read_back(text).values == (text,)


@pytest.mark.parametrize(
    "text",
    ["' OR Name != '", "\\' OR Name != \\'", "\\", "'", "a\nb\r\t\b\f", ":value", "%_\\%", "“"],
)
def test_text_that_would_change_a_query_is_only_text(text: str) -> None:
    assert read_back(text).values == (text,)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_lists_are_read_back(texts: list[str]) -> None:
    query = QUERY.replace("= :value", "IN :value")
    assert read_back(texts, query).values == tuple(texts)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3650)))
def test_times_are_whole_seconds_and_never_later(wait: timedelta) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC) + wait
    (read,) = read_back(moment).values
    assert isinstance(read, datetime)
    assert timedelta(0) <= moment - read < timedelta(seconds=1)


def test_times_are_told_in_utc() -> None:
    berlin = timezone(timedelta(hours=1))
    moment = datetime(2026, 11, 16, 4, 0, tzinfo=berlin)
    assert bind(":value", {"value": moment}) == "2026-11-16T03:00:00Z"


def test_plain_values_have_their_literals() -> None:
    values = {"a": None, "b": True, "c": 12, "d": "x"}
    assert bind(":a :b :c :d", values) == "null true 12 'x'"


@pytest.mark.parametrize("value", [[], 1.5, b"x", object(), NAIVE])
def test_what_has_no_literal_is_refused(value: object) -> None:
    with pytest.raises(BadArguments):
        bind(":value", {"value": value})
