"""How values are shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.dashboard.format import (
    duration,
    exact,
    iso,
    number,
    plain,
    pretty,
    sentence,
    size,
    utc,
    with_commands,
    with_times,
    without_command,
)

DASH = "\N{EN DASH}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Grüße, 世界 👩‍💻"[:9], "Grüße, 世界"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("a\u2066b\u2069", "a\\u2066b\\u2069"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("bell\x07\x00\x7f\x9b", "bell\\x07\\x00\\x7f\\x9b"),
        ("lines\nand\ttabs", "lines\nand\ttabs"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("<b>&", "<b>&"),  # the template escapes it
        (17, "17"),
    ],
)
def test_characters_that_deceive_the_eye_are_shown_as_escapes(text: object, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, DASH), (0, "0"), (1234, "1,234"), (0.5, "0.5"), (2.0, "2"), (12.3456, "12.3"),
     (1234567.8, "1,234,568")],
)  # fmt: skip
def test_numbers(value: float | None, shown: str) -> None:
    assert number(value) == shown


def test_a_capped_number_says_so() -> None:
    assert number(10_000, is_capped=True) == "10,000+"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, DASH), (0, "0 s"), (0.0004, "0 ms"), (0.34, "340 ms"), (0.9994, "999 ms"),
     (0.9999, "1.0 s"), (4.24, "4.2 s"), (9.96, "10 s"), (59.6, "1 min"), (200, "3 min 20 s"),
     (3600, "1 h"), (7500, "2 h 5 min"), (86399.9, "1 d"), (273600, "3 d 4 h"), (-5, "-5.0 s")],
)  # fmt: skip
def test_durations_have_two_units_at_most(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


def test_times_are_in_utc_whatever_their_zone() -> None:
    at = datetime(2026, 11, 18, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=5)))
    assert iso(at) == "2026-11-17T22:04:05.678901Z"
    assert utc(at) == "2026-11-17 22:04:05 UTC"
    assert exact(at) == "2026-11-17 22:04:05.678 UTC"
    assert iso(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    "text",
    ["9007199254740993", "0.10000000000000000000000001", "1E400", "-0.0", "1.0",
     "123456789012345678901234567890"],
)  # fmt: skip
def test_numbers_in_json_stay_byte_for_byte(text: str) -> None:
    assert pretty(f'{{"a":[{text}]}}') == f'{{\n  "a": [\n    {text}\n  ]\n}}'
    assert pretty(text.encode()) == text


def test_hostile_texts_in_json_are_escaped() -> None:
    assert pretty({"a": "\u202e\x1b</pre>"}) == '{\n  "a": "\\u202e\\u001b</pre>"\n}'


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_345_678, "2.35 MB"), (5 * 10**9, "5 GB")],
)
def test_sizes(count: int, shown: str) -> None:
    assert size(count) == shown


def test_an_error_becomes_a_sentence() -> None:
    assert sentence("the job is running") == "The job is running."
    assert sentence("Really?") == "Really?"
    assert sentence("") == "."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "paused since 2026-11-19T04:32:30.701Z (<b>)",
            'paused since <time datetime="2026-11-19T04:32:30.701000Z"'
            ' title="2026-11-19 04:32:30.701 UTC" data-clock>2026-11-19 04:32:30 UTC</time>'
            " (&lt;b&gt;)",
        ),
        ("2026-99-19T04:32:30.701Z", "2026-99-19T04:32:30.701Z"),
        ("\x1b[31m&", "\\x1b[31m&amp;"),
    ],
)
def test_times_in_a_sentence_are_marked_up_and_the_rest_is_escaped(text: str, shown: str) -> None:
    assert str(with_times(text)) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "requeue them with holdfast dead requeue --queue 'a;<b>'; to see all",
            "requeue them with <code>holdfast dead requeue --queue &#39;a;&lt;b&gt;&#39;</code>;"
            " to see all",
        ),
        (
            "list them with `holdfast roles check`; <b>",
            "list them with <code>holdfast roles check</code>; &lt;b&gt;",
        ),
        ("start a worker", "start a worker"),
    ],
)
def test_commands_in_advice_are_marked_up_and_the_rest_is_escaped(text: str, shown: str) -> None:
    assert str(with_commands(text)) == shown


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("queue a is paused; resume it with: holdfast queues resume a", "queue a is paused"),
        ("it is due; to run it now: holdfast jobs retry 1", "it is due"),
        ("parked until you close it: holdfast breakers close a", "parked until you close it"),
        ("use holdfast serve; then wait", "use holdfast serve; then wait"),
    ],
)
def test_pages_leave_out_the_command_that_a_sentence_ends_with(sentence: str, shown: str) -> None:
    assert without_command(sentence) == shown
