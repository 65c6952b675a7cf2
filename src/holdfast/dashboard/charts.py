"""Charts as HTML and SVG: pure functions of numbers.

The plot is an SVG that stretches; its labels are HTML beside it, so that they keep their size. No
geometry is in a style, which the page's policy forbids. `charts.js` adds the read-out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec
from markupsafe import Markup

from holdfast.dashboard.format import duration, number, plain

HEIGHT: Final = 100.0  # of the plot, in units of its own
GAP: Final = 0.16  # of a bar's width, between two bars
_DURATIONS: Final = (
    *(0.01, 0.02, 0.04, 0.06, 0.1, 0.2, 0.4, 0.6, 1, 2, 4, 6, 10, 20, 30, 60, 120, 240),
    *(600, 1200, 1800, 3600, 7200, 14400, 28800, 43200, 86400),
)
_NO_DATA: Final = Markup('<p class="plot-none"><span>No data</span></p>')

Values = Sequence[float | None]
Format = Callable[[float], str]


class Line(NamedTuple):
    """A named series. Its `tone` is a class of the style sheet; None is a gap."""

    name: str
    tone: str
    values: Values
    is_area: bool = False


class Times(NamedTuple):
    """When the values are: the first one begins at `since`, and each next one a step later."""

    since: datetime
    step_seconds: int
    points: int

    @property
    def seconds(self) -> int:
        return self.step_seconds * self.points


class Scale(NamedTuple):
    """The highest value of an axis that begins at 0, and how to show values."""

    top: float
    show: Format

    def y(self, value: float) -> float:
        return HEIGHT - HEIGHT * min(value, self.top) / self.top


def counts(values: Iterable[Values]) -> Scale:
    """A scale for numbers of jobs: 4, 6, 8, 10, 20, 30, 40, 50, 60, 80, 100... The half of each is
    a whole number."""
    highest = max(_highest(values), 4.0)
    size = 10.0 ** math.floor(math.log10(highest))
    tops = (size * step for step in (1, 2, 3, 4, 5, 6, 8, 10))
    return Scale(next(top for top in tops if top >= highest and top % 2 == 0), number)


def durations(values: Iterable[Values]) -> Scale:
    """A scale for lengths of time, up to a round one."""
    highest = _highest(values)
    top = next((float(each) for each in _DURATIONS if each >= highest), 0.0)
    return Scale(top or math.ceil(highest / 86400) * 86400.0, duration)


def _highest(values: Iterable[Values]) -> float:
    known = [value for line in values for value in line if value is not None]
    return max(known, default=0.0)


def line_chart(name: str, lines: Sequence[Line], times: Times, scale: Scale) -> Markup:
    """Lines over time, interrupted where nothing is known."""
    shapes = Markup().join(shape for line in lines for shape in _line(line, scale))
    return _chart(name, lines, times, scale, shapes)


def bar_chart(name: str, parts: Sequence[Line], times: Times, scale: Scale) -> Markup:
    """A bar for each point, made of parts, the first one at the bottom."""
    heights: list[float] = [0.0] * times.points
    shapes = []
    for part in parts:
        path = []
        for place, value in enumerate(part.values):
            if value:
                path.append(_bar(place, heights[place], heights[place] + value, scale))
                heights[place] += value
        shapes.append(_path(f"bars {part.tone}", "".join(path)))
    return _chart(name, parts, times, scale, Markup().join(shapes))


def stacked(parts: Sequence[Line]) -> list[Values]:
    """The heights of bars made of these parts, for their scale."""
    columns = zip(*(part.values for part in parts), strict=True)
    return [[sum(value or 0.0 for value in column) for column in columns]]


def sparkline(name: str, values: Values, tone: str = "main", show: Format = number) -> Markup:
    """A line without axes, as high as its highest value. It has a name for those who can't see
    it."""
    known = [value for value in values if value is not None]
    if not known:
        return Markup('<span class="none">\N{EN DASH}</span>')
    scale = Scale(max(known) or 1.0, show)
    label = f"{name}: now {show(known[-1])}, at most {show(max(known))}"
    shapes = Markup().join(_line(Line(name, tone, values, is_area=True), scale))
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="{}">{}</svg>'
    ).format(max(len(values), 1), _shown(HEIGHT), plain(label), shapes)


def meter(value: float, most: float, label: str, tone: str = "main") -> Markup:
    """How much of something is in use, as a bar."""
    share = min(max(value / most, 0.0), 1.0) if most > 0 else 0.0
    return Markup(
        '<svg class="load" viewBox="0 0 100 6" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><path class="load-all" d="M0 0h100v6h-100z"/>'
        '<path class="load-used {}" d="M0 0h{}v6h-{}z"/></svg>'
    ).format(plain(label), tone, _shown(100 * share), _shown(100 * share))


def _line(line: Line, scale: Scale) -> Iterator[Markup]:
    strokes, areas = [], []
    for run in _runs(line.values):
        points = [(place + 0.5, scale.y(value)) for place, value in run]
        if len(points) == 1:  # a point alone would not be seen
            ((x, y),) = points
            points = [(x - 0.5, y), (x + 0.5, y)]
        path = "L".join(f"{_shown(x)} {_shown(y)}" for x, y in points)
        strokes.append(f"M{path}")
        first, last = points[0][0], points[-1][0]
        areas.append(f"M{_shown(first)} {_shown(HEIGHT)}L{path}L{_shown(last)} {_shown(HEIGHT)}z")
    if line.is_area:
        yield _path(f"area {line.tone}", "".join(areas))
    yield _path(f"stroke {line.tone}", "".join(strokes))


def _runs(values: Values) -> Iterator[list[tuple[int, float]]]:
    """The values between two gaps, with their places."""
    run: list[tuple[int, float]] = []
    for place, value in enumerate(values):
        if value is not None:
            run.append((place, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _bar(place: int, low: float, high: float, scale: Scale) -> str:
    width = _shown(1 - GAP)
    top, bottom = scale.y(high), scale.y(low)
    return f"M{_shown(place + GAP / 2)} {_shown(top)}h{width}v{_shown(bottom - top)}h-{width}z"


def _path(kind: str, path: str) -> Markup:
    return Markup('<path class="{}" d="{}"/>').format(kind, path) if path else Markup()


def _shown(value: float) -> str:
    return f"{abs(value):.2f}".rstrip("0").rstrip(".") or "0"  # none is below 0, but -0.0 may come


def _chart(name: str, lines: Sequence[Line], times: Times, scale: Scale, shapes: Markup) -> Markup:
    return Markup(
        '<div class="plot" data-chart>'
        '<div class="plot-y" aria-hidden="true"><span>{top}</span><span>{half}</span>'
        "<span>0</span></div>"
        '<div class="plot-area"><svg viewBox="0 0 {count} {height}" preserveAspectRatio="none"'
        ' role="img" aria-label="{summary}">{grid}{shapes}</svg>{none}</div>'
        '<div class="plot-x" aria-hidden="true">{ticks}</div>'
        '<script type="application/json">{data}</script></div>'
    ).format(
        top=scale.show(scale.top),
        half=scale.show(scale.top / 2),
        count=times.points,
        height=_shown(HEIGHT),
        summary=plain(f"{name}. {'; '.join(_summary(line, scale) for line in lines)}"),
        grid=_grid(times.points),
        shapes=shapes,
        none=Markup() if _has_values(lines) else _NO_DATA,
        ticks=Markup().join(_ticks(times)),
        data=_data(lines, times, scale),
    )


def _has_values(lines: Sequence[Line]) -> bool:
    return any(value is not None for line in lines for value in line.values)


def _summary(line: Line, scale: Scale) -> str:
    known = [value for value in line.values if value is not None]
    if not known:
        return f"{line.name}: no data"
    least, most = scale.show(min(known)), scale.show(max(known))
    return f"{line.name}: now {scale.show(known[-1])}, from {least} to {most}"


def _grid(count: int) -> Markup:
    path = "".join(f"M0 {_shown(y)}H{count}" for y in (0.0, HEIGHT / 2, HEIGHT))
    return Markup('<path class="gridlines" d="{}"/>').format(path)


def _ticks(times: Times) -> Iterator[Markup]:
    """The times at the start, in the middle and at the end; a script shows them in the viewer's
    zone."""
    shape = "%H:%M" if times.seconds <= 2 * 86400 else "%b %d"
    kind = "clock" if times.seconds <= 2 * 86400 else "day"
    begins = times.since.timestamp()
    for share in (0.0, 0.5, 1.0):
        at = begins + times.seconds * share
        text = datetime.fromtimestamp(at, UTC).strftime(shape)
        yield Markup('<span data-{}="{}">{}</span>').format(Markup(kind), _shown(at), text)


def _data(lines: Sequence[Line], times: Times, scale: Scale) -> Markup:
    """What the read-out shows. The text of a script can't end it: every < is escaped."""
    content = {
        "since": int(times.since.timestamp()),
        "step": times.step_seconds,
        "top": scale.top,
        "lines": [
            {
                "name": plain(line.name),
                "tone": line.tone,
                "texts": [None if each is None else scale.show(each) for each in line.values],
            }
            for line in lines
        ],
    }
    return Markup(msgspec.json.encode(content).decode().replace("<", "\\u003c"))
