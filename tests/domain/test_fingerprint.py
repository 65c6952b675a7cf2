"""Errors of one shape have one fingerprint, whatever the ids, numbers and paths in them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.fingerprint import FINGERPRINT_CHARS, fingerprint, shape

WORDS = st.text(alphabet="ghijklmnopqrstuvwxyzGHIJ", min_size=1, max_size=8)
INSIDE = st.text(
    alphabet=st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters="\\'\""),
    max_size=20,
)
NAMES = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789._-", min_size=1, max_size=10).filter(
    lambda name: name[-1].isalnum()
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
VALUES = st.one_of(
    st.uuids().map(str),
    st.uuids().map(lambda each: each.hex),
    st.integers().map(str),
    st.integers(min_value=0).map("{:,}".format),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.datetimes().map(datetime.isoformat),
    st.integers(min_value=0, max_value=2**64).map(hex),
    st.text(alphabet="0123456789abcdef", min_size=8, max_size=40),
    st.ip_addresses(v=4).map(str),
    st.integers(min_value=0).map("order-{}".format),
    st.integers(min_value=0).map("{}ms".format),
    INSIDE.map("'{}'".format),
    INSIDE.map('"{}"'.format),
    INSIDE.map(lambda text: f"\u201c{text.replace(chr(0x201D), '')}\u201d"),
    PATHS.map("/{}".format),
    PATHS.map("/srv/{}/".format),
    PATHS.map("https://example.com/{}".format),
)


@given(words=st.lists(WORDS, min_size=2, max_size=6), data=st.data())
def test_the_same_words_around_other_values_have_the_same_fingerprint(
    words: Sequence[str], data: st.DataObject
) -> None:
    def filled() -> str:
        values = [data.draw(VALUES) for _ in words[1:]]
        pairs = zip(words[1:], values, strict=True)
        return " ".join([words[0], *(f"{value} {word}" for word, value in pairs)])

    first, second = filled(), filled()
    assert shape(first) == shape(second) == " * ".join(words)
    assert fingerprint("job", "CODE", first) == fingerprint("job", "CODE", second)


@given(one=st.lists(WORDS, min_size=1, max_size=6), two=st.lists(WORDS, min_size=1, max_size=6))
def test_other_words_have_another_fingerprint(one: Sequence[str], two: Sequence[str]) -> None:
    same = fingerprint("job", None, " ".join(one)) == fingerprint("job", None, " ".join(two))
    assert same == (one == two)


@given(text=st.text(max_size=3000))
def test_every_text_has_a_shape(text: str) -> None:
    assert len(fingerprint("job", None, text)) == FINGERPRINT_CHARS
    assert "\n" not in shape(text)


def test_names_and_codes_are_kept_apart() -> None:
    assert len({fingerprint(n, c, "boom") for n in ("a", "b") for c in (None, "X", "Y")}) == 6


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RuntimeError: boom\n  app.py:3 in crash", "RuntimeError: boom"),
        ("can't open '/srv/a.txt': it doesn't exist", "can't open *: it doesn't exist"),
        ("timeout after 12.5s on db-3.example.com:5432.", "timeout after * on *."),
        ("the workers' lease of 'O'Brien' ran out", "the workers' lease of * ran out"),
        ("rows [1, 2, 3] of ['a', 'b'] are 50% of 1,234", "rows [*] of [*] are * of *"),
        ("no C:\\\\data\\\\a.png, x=5", "no *, x=*"),
        ("commit deadbeef of facade is gone", "commit * of facade is gone"),
        (None, ""),
        ("\n \n", ""),
    ],
)
def test_shapes_can_still_be_read(text: str | None, expected: str) -> None:
    assert shape(text) == expected


@pytest.mark.parametrize("piece", ["a", ' "a', "/", "1,", "-", "'", " '\\\\", "a.", "*, "])
def test_no_text_takes_long(piece: str) -> None:
    began = time.process_time()
    shape(piece * 8000)
    assert time.process_time() - began < 0.5
