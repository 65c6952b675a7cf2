"""Charts tell the truth: gaps stay gaps, no shape leaves its plot, and no name becomes markup."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dashboard.charts import (
    Line,
    Scale,
    Times,
    bar_chart,
    counts,
    durations,
    line_chart,
    meter,
    sparkline,
    stacked,
)
from holdfast.dashboard.format import number

SINCE = datetime(2026, 11, 18, 20, 0, tzinfo=UTC)
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\x1b[31m\u202e"
VALUES = st.lists(st.none() | st.floats(0, 1e9), min_size=1, max_size=40)


def times(values: list[float | None]) -> Times:
    return Times(SINCE, 30, len(values))


def strokes(markup: str) -> list[list[tuple[float, float]]]:
    """The lines that are drawn, as points."""
    (path,) = re.findall(r'class="stroke[^"]*" d="([^"]*)"', markup) or [""]
    runs = [each for each in path.split("M") if each]
    return [
        [(float(x), float(y)) for x, y in (point.split() for point in run.split("L"))]
        for run in runs
    ]


@given(VALUES)
def test_a_gap_interrupts_the_line_and_every_value_is_drawn_inside_the_plot(
    values: list[float | None],
) -> None:
    scale = counts([values])
    drawn = strokes(line_chart("Waiting", [Line("ready", "main", values)], times(values), scale))
    runs = "".join("-" if each is None else "x" for each in values).split("-")
    lengths = [max(len(run), 2) for run in runs if run]
    assert [len(run) for run in drawn] == lengths
    for run in drawn:
        assert all(0 <= x <= len(values) and 0 <= y <= 100 for x, y in run)
        assert [x for x, _ in run] == sorted(x for x, _ in run)


@given(st.lists(VALUES, min_size=1, max_size=3))
def test_a_scale_is_at_least_as_high_as_every_value(lines: list[list[float | None]]) -> None:
    highest = max((each for line in lines for each in line if each is not None), default=0)
    for scale in (counts(lines), durations(lines)):
        assert scale.top >= highest
        assert scale.top > 0
        assert scale.y(0) == 100
        assert 0 <= scale.y(highest) <= 100


@pytest.mark.parametrize(
    ("highest", "top"),
    [(0, "4"), (3, "4"), (4.5, "6"), (7, "8"), (9, "10"), (11, "20"), (250, "300"), (450, "500"),
     (9_001, "10,000")],
)  # fmt: skip
def test_counts_end_at_round_numbers_with_a_round_half(highest: float, top: str) -> None:
    scale = counts([[highest]])
    assert scale.show(scale.top) == top
    assert scale.show(scale.top / 2).replace(",", "").isdigit()


@pytest.mark.parametrize(
    ("highest", "top", "half"),
    [
        (0, "10 ms", "5 ms"),
        (0.03, "40 ms", "20 ms"),
        (0.5, "600 ms", "300 ms"),
        (0.9, "1.0 s", "500 ms"),
        (45, "1 min", "30 s"),
        (5000, "2 h", "1 h"),
        (200_000, "3 d", "1 d 12 h"),
    ],
)
def test_lengths_of_time_end_at_round_units(highest: float, top: str, half: str) -> None:
    scale = durations([[highest]])
    assert (scale.show(scale.top), scale.show(scale.top / 2)) == (top, half)


def test_bars_are_stacked_and_end_at_their_sum() -> None:
    parts = [Line("succeeded", "main", [2, 0, None]), Line("failed", "bad", [2, 4, None])]
    scale = Scale(4, number)
    assert stacked(parts) == [[4, 4, 0]]
    markup = bar_chart("Throughput", parts, Times(SINCE, 60, 3), scale)
    (good,) = re.findall(r'class="bars main" d="([^"]*)"', markup)
    (bad,) = re.findall(r'class="bars bad" d="([^"]*)"', markup)
    assert re.findall(r"M\S+ (\S+)h\S+v([^h]+)h", good) == [("50", "50")]
    assert re.findall(r"M\S+ (\S+)h\S+v([^h]+)h", bad) == [("0", "50"), ("0", "100")]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.script = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script":
            self.script += data


@given(st.text(max_size=40) | st.just(HOSTILE))
def test_no_name_becomes_markup_and_nothing_has_a_style(name: str) -> None:
    lines = [Line(name, "main", [1.0, None, 3.0], is_area=True)]
    span = Times(SINCE, 30, 3)
    for markup in (
        line_chart(name, lines, span, counts([[3.0]])),
        bar_chart(name, lines, span, counts([[3.0]])),
        sparkline(name, [1.0, None, 3.0]),
        meter(1, 4, name),
    ):
        found = _Tags()
        found.feed(markup)
        assert set(found.tags) <= {"div", "span", "svg", "path", "script"}
        assert not {each for each in found.attributes if each == "style" or each.startswith("on")}
        for svg in re.findall(r"<svg.*?</svg>", markup):
            ElementTree.fromstring(svg)
        for character in "\x1b\u202e":
            assert character not in markup


def test_the_read_out_gets_the_numbers_as_they_are_shown() -> None:
    values = [1.0, None, 12_000.0]
    markup = line_chart(HOSTILE, [Line(HOSTILE, "main", values)], times(values), counts([values]))
    found = _Tags()
    found.feed(markup)
    data = json.loads(found.script)
    assert data["lines"][0]["texts"] == ["1", None, "12,000"]
    assert (data["since"], data["step"]) == (int(SINCE.timestamp()), 30)
    assert data["lines"][0]["name"].startswith("</script><img")  # as text
    assert markup.count("</script>") == 1


def test_a_chart_says_its_numbers_to_those_who_cannot_see_it() -> None:
    values = [3.0, None, 7.0]
    markup = line_chart("Waiting", [Line("ready", "main", values)], times(values), counts([values]))
    assert 'aria-label="Waiting. ready: now 7, from 3 to 7"' in markup
    empty = line_chart("Waiting", [Line("ready", "main", [None])], times([None]), counts([[None]]))
    assert "ready: no data" in empty


def test_a_line_without_data_is_a_dash() -> None:
    assert "<svg" not in sparkline("mail", [None, None])
    assert "<path" in sparkline("mail", [None, 0.0])


@given(st.floats(-10, 1e6), st.floats(0, 1e6))
def test_a_meter_is_between_empty_and_full(value: float, most: float) -> None:
    (width,) = re.findall(r'load-used main" d="M0 0h([\d.]+)v', meter(value, most, "slots"))
    assert 0 <= float(width) <= 100
