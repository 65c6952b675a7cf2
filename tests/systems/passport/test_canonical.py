"""Equal values have equal bytes, and only those bytes are accepted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast_systems.passport.canonical import (
    canonical,
    decimal_text,
    id_of,
    read_canonical,
    time_text,
)
from holdfast_systems.passport.errors import ValidationError

pytestmark = pytest.mark.heavy

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=30)
@given(VALUES)
def test_canonical_bytes_are_read_back_as_the_same_value(value: object) -> None:
    assert read_canonical(canonical(value)) == value


@settings(max_examples=30)
@given(st.dictionaries(TEXTS, st.integers(0, 9), min_size=2, max_size=6), st.randoms())
def test_the_order_of_keys_changes_nothing(value: dict[str, int], random: Random) -> None:
    names = list(value)
    random.shuffle(names)
    assert canonical({name: value[name] for name in names}) == canonical(value)


def test_keys_are_sorted_as_the_standard_says_by_utf_16_units() -> None:
    order = ["1", "\x80", "\xf6", "\u20ac", "\U0001f600", "\ufb33"]
    shuffled = dict.fromkeys(sorted(order, reverse=True), 0)
    expected = ",".join(f'"{key}":0' for key in order)
    assert canonical(shuffled).decode() == "{" + expected + "}"


@pytest.mark.parametrize(
    "data",
    [b'{"b":1,"a":2}', b'{"a": 1}', b'{"a":1}\n', b'{"a":1,"a":1}', b'"\\u0041"', b"1.0", b"1e2",
     b"-0", b"12345678901234567890", b"nonsense", b"\xff", b"[" * 100_000],
)  # fmt: skip
def test_json_in_any_other_form_is_refused(data: bytes) -> None:
    with pytest.raises(ValidationError):
        read_canonical(data)


@example(Decimal("-0.00"))
@example(Decimal("1E+3"))
@given(st.decimals(-(10**12), 10**12, places=6))
def test_equal_decimals_have_one_text_without_exponent(value: Decimal) -> None:
    text = decimal_text(value)
    assert Decimal(text) == value
    assert "e" not in text.lower()
    assert text == decimal_text(value.normalize()) == decimal_text(value * Decimal("1.000"))
    assert text != "-0"


def test_times_are_told_in_utc_and_need_a_zone() -> None:
    moment = datetime(2026, 11, 16, 4, 0, 0, 5, tzinfo=timezone(timedelta(hours=1)))
    assert time_text(moment) == time_text(moment.astimezone(UTC)) == "2026-11-16T03:00:00.000005Z"
    with pytest.raises(ValidationError, match="zone"):
        time_text(datetime(2026, 11, 16))  # noqa: DTZ001


@pytest.mark.parametrize("moment", [datetime.min, datetime(999, 12, 31), datetime.max])  # noqa: DTZ001, DTZ901
def test_times_that_machines_write_differently_are_refused(moment: datetime) -> None:
    for hours in (-1, 0, 1):
        with pytest.raises(ValidationError, match="between"):
            time_text(moment.replace(tzinfo=timezone(timedelta(hours=hours))))


def test_an_id_tells_its_parts_apart() -> None:
    assert id_of("a", "bc") == id_of("a", "bc")
    assert len({id_of("a", "bc"), id_of("ab", "c"), id_of("abc"), id_of('a","bc')}) == 4
