"""Plots as SVG, drawn by hand: bars to compare subjects, lines to see growth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from bench.figures import Recording
from bench.report import growth_cases, number, subjects
from bench.targets import POSTGRES, SQLITE

WIDTH = 760
MARGIN = 16
NAMES_WIDTH = 200
BAR_HEIGHT = 18
BAR_STEP = 26
HEAD_HEIGHT = 44
CHART_HEIGHT = 260
AXIS_WIDTH = 70
OURS, THEIRS, INK, FAINT = "#0b7285", "#adb5bd", "#212529", "#dee2e6"
COLORS = {POSTGRES: OURS, SQLITE: "#e8590c"}
FONT = 'font-family="system-ui, sans-serif" font-size="13"'
BARS = (
    ("drain", 1.0, "Drain by one process", "jobs/s"),
    ("drain", 2.0, "Drain by two processes", "jobs/s"),
    ("enqueue", 0.0, "Enqueue one by one", "jobs/s"),
    ("bulk", 0.0, "Enqueue in bulk", "jobs/s"),
    ("pick-up p50", 0.0, "Idle pick-up, median (less is better)", "ms"),
    ("memory", 0.0, "Worker's memory (less is better)", "MB"),
)


def plots(recording: Recording) -> dict[str, tuple[str, str]]:
    """By file name: the title and the picture."""
    found = {}
    for case, x, title, unit in BARS:
        values = {
            subject: recording.median(subject, case, x)
            for subject, variant in subjects(recording)
            if variant == "best" and recording.values(subject, case, x)
        }
        if values:
            found[_file(f"{case} {x:g}" if x else case)] = title, bars(title, unit, values)
    units = {each.case: each.unit for each in recording.figures}
    for case in dict.fromkeys(case for _, case in growth_cases(recording)):
        curves = {
            subject: [(x, recording.median(subject, case, x)) for x in recording.xs(subject, case)]
            for subject, each in growth_cases(recording)
            if each == case
        }
        if any(len(points) > 1 for points in curves.values()):
            title = case[0].upper() + case[1:]
            found[_file(case)] = title, lines(title, units[case], curves)
    return found


def _file(name: str) -> str:
    words = "".join(each if each.isalnum() else " " for each in name).split()
    return f"bench-{'-'.join(words)}.svg"


def bars(title: str, unit: str, values: Mapping[str, float]) -> str:
    """Draw the largest first, and ours in color."""
    room = WIDTH - NAMES_WIDTH - 3 * MARGIN - AXIS_WIDTH
    most = max(values.values())
    parts = []
    for place, (name, value) in enumerate(sorted(values.items(), key=lambda item: -item[1])):
        top = HEAD_HEIGHT + place * BAR_STEP
        width = room * value / most if most else 0
        middle = top + BAR_HEIGHT - 5
        left = MARGIN + NAMES_WIDTH
        parts += [
            _text(left - 8, middle, name, "end"),
            f'<rect x="{left}" y="{top}" width="{width:.1f}" height="{BAR_HEIGHT}"'
            f' fill="{COLORS.get(name, THEIRS)}"/>',
            _text(left + width + 6, middle, number(value)),
        ]
    return _picture(f"{title}, {unit}", HEAD_HEIGHT + len(values) * BAR_STEP + MARGIN, parts)


def lines(title: str, unit: str, curves: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Draw from 0 up. The x-axis has the varied quantity, in equal steps if it grows by factors."""
    xs = sorted({x for points in curves.values() for x, _ in points})
    most = max((value for points in curves.values() for _, value in points), default=0.0) or 1.0
    right, bottom = WIDTH - 2 * MARGIN - AXIS_WIDTH, HEAD_HEIGHT + CHART_HEIGHT
    places = _places(xs)

    def spot(x: float, value: float) -> tuple[float, float]:
        return (
            MARGIN + AXIS_WIDTH + places[x] * (right - AXIS_WIDTH),
            bottom - CHART_HEIGHT * value / most,
        )

    parts = []
    for step in range(5):
        value = most * step / 4
        _, y = spot(xs[0], value)
        parts += [
            f'<path d="M{MARGIN + AXIS_WIDTH} {y:.1f}H{MARGIN + right}" stroke="{FAINT}"/>',
            _text(MARGIN + AXIS_WIDTH - 8, y + 4, number(value) if value else "0", "end"),
        ]
    for x in _labeled(xs):
        parts.append(_text(spot(x, 0)[0], bottom + 20, f"{x:,.0f}", "middle"))
    for order, (name, points) in enumerate(curves.items()):
        color = COLORS.get(name, THEIRS)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (spot(*point) for point in points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>'
            for x, y in (spot(*point) for point in points)
        ]
        key = MARGIN + AXIS_WIDTH + order * NAMES_WIDTH
        parts += [
            f'<rect x="{key}" y="{bottom + 34}" width="12" height="12" fill="{color}"/>',
            _text(key + 18, bottom + 45, name),
        ]
    return _picture(f"{title}, {unit}", bottom + 60, parts)


def _places(xs: Sequence[float]) -> dict[float, float]:
    """Where each x stands, from 0 to 1."""
    if len(xs) == 1:
        return {xs[0]: 0.5}
    by_factors = xs[-1] > 20 * max(xs[1], 1e-9) or (xs[0] > 0 and xs[-1] / xs[0] >= 16)
    if by_factors:
        return {x: place / (len(xs) - 1) for place, x in enumerate(xs)}
    return {x: (x - xs[0]) / (xs[-1] - xs[0]) for x in xs}


def _labeled(xs: Sequence[float]) -> Sequence[float]:
    step = math.ceil(len(xs) / 8)
    return xs[::step]


def _text(x: float, y: float, content: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def _picture(title: str, height: float, parts: Sequence[str]) -> str:
    inner = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="{escape(title)}" {FONT} fill="{INK}">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n'
        f'<text x="{MARGIN}" y="26" font-size="15" font-weight="600">{escape(title)}</text>\n'
        f"{inner}\n</svg>\n"
    )
