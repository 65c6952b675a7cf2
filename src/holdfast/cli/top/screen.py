"""Draw the screen: an overview and a view of it, as lines for a terminal of this size."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import compress
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.cli.display import as_text, worker_row
from holdfast.cli.top.view import TABS, Tab, View
from holdfast.domain.diagnosis.vitals import LATELY_SECONDS
from holdfast.domain.job import Job
from holdfast.domain.limits import OVERVIEW_FAILURES_MAX
from holdfast.domain.messenger_overview import messenger_overviews
from holdfast.domain.overview import Meter, Overview
from holdfast.domain.queues import QueueStatus
from holdfast.domain.times import distance, relative
from holdfast.domain.workers import WorkerStatus
from holdfast.observability.logs import one_line

BARS = "▁▂▃▄▅▆▇█"
FIXED_LINES = 5
MESSENGERS_SHOWN_MAX = 5
NARROW_COLUMNS = 72
KEYS = {
    Tab.QUEUES: "s sort  p pause",
    Tab.WORKERS: "",
    Tab.FAILURES: "enter show",
}
HELP = """\
1 2 3, tab     queues, workers, failures
up down, j k   move; page up and page down move faster, g goes to the top
s              sort queues by name, ready, oldest, done/s, failed/s
p              pause or resume the selected queue
/              filter by text; escape clears the filter
enter          show the selected failure; escape goes back
space          freeze or unfreeze the screen
q              quit

READY   due and waiting             DONE/s  succeeded, over the last minute
SCHED   due later                   FAIL/s  failed or dead; -: not yet known
PARKED  by an open breaker          WAIT    from due to started, 95th percentile
RUN     running/cap                 TOOK    from start to end, 95th percentile
OLDEST  longest wait of a ready job"""


class Column(NamedTuple):
    """A column. With a `share`, it gets that share of the width that the others leave, and is
    truncated to it. A narrow terminal leaves out those that are `spared`."""

    header: str
    is_number: bool = True
    share: int = 0
    spared: bool = False


COLUMNS = {
    Tab.QUEUES: (
        Column("QUEUE", is_number=False, share=1),
        Column("READY"),
        Column("SCHED", spared=True),
        Column("PARKED", spared=True),
        *map(Column, ("RUN", "DONE/s", "FAIL/s", "OLDEST")),
        Column("WAIT", spared=True),
        Column("TOOK", spared=True),
    ),
    Tab.WORKERS: (
        Column("WORKER", is_number=False, share=2),
        Column("PID", spared=True),
        Column("APP", is_number=False, share=1, spared=True),
        Column("HOLDFAST", is_number=False, spared=True),
        Column("QUEUES", is_number=False, share=1),
        Column("LOAD"),
        Column("UP", spared=True),
        Column("SEEN"),
    ),
    Tab.FAILURES: (
        Column("WHEN", is_number=False),
        Column("NAME", is_number=False, share=2),
        Column("QUEUE", is_number=False),
        Column("CODE", is_number=False, share=2),
        Column("ERROR", is_number=False, share=4),
    ),
}


class Place(NamedTuple):
    """Where the numbers come from, how often they are read, and what went wrong."""

    address: str
    interval_seconds: float | None
    trouble: str | None = None


class Size(NamedTuple):
    columns: int
    lines: int


def draw(
    view: View, seen: Overview | None, meter: Meter, place: Place, size: Size, *, live: bool = True
) -> Group:
    """Draw all lines, at most as many as the terminal has. Tabs and keys appear only if live."""
    parts: list[RenderableType] = [_header(view, seen, place, size)]
    if seen is None:
        return Group(*parts, _trouble(place, size) if place.trouble else Text("loading ...", "dim"))
    parts.append(_totals(seen, meter, size))
    room = size.lines - FIXED_LINES
    if seen.breakers:
        parts.append(_breakers(seen, size))
        room -= 1
    for line in _messengers(seen, size):
        parts.append(line)
        room -= 1
    if seen.untold:
        untold = textwrap.wrap(seen.untold, size.columns)
        parts += (Text(line, "dim") for line in untold)
        room -= len(untold)
    if not live:
        room = len(seen.queues) + 1
    body = _body(view, seen, meter, Size(size.columns, max(2, room)))
    if not live:
        return Group(*parts, Text(""), *body)
    return Group(*parts, _tabs(view, size), _trouble(place, size), *body, _footer(view, size))


def _body(view: View, seen: Overview, meter: Meter, size: Size) -> list[RenderableType]:
    if view.help:
        lines: list[RenderableType] = [_cut(Text(line), size) for line in HELP.splitlines()]
        return _filled(lines[: size.lines], size.lines)
    if view.detail is not None:
        shown = view.detail[view.row : view.row + size.lines]
        return _filled([_cut(Text.from_ansi(line), size) for line in shown], size.lines)
    rows = view.rows(seen, meter)
    if not rows:
        noun = view.tab.value.lower()
        empty = "no matches" if view.filter else f"no {noun}"
        if view.tab is Tab.WORKERS and seen.workers is None:
            empty = f"{noun} unknown"
        return _filled([Text(empty, "dim")], size.lines)
    first = max(0, view.row - (size.lines - 2))
    shown_rows = rows[first : first + size.lines - 1]
    table = _table(view, shown_rows, seen, meter, size, view.row - first)
    return [table, *_filled([], size.lines - 1 - len(shown_rows))]


def _filled(lines: list[RenderableType], count: int) -> list[RenderableType]:
    return lines + [Text("")] * (count - len(lines))


def _header(view: View, seen: Overview | None, place: Place, size: Size) -> Text:
    left = Text.assemble(("holdfast top", "bold"), "  ", (one_line(place.address), "dim"))
    if place.trouble is not None:
        right = Text("can't read the database", "bold red")
    elif view.frozen:
        right = Text("frozen", "bold yellow")
    elif seen is not None:
        often = place.interval_seconds
        every = "" if often is None else f", every {often:g} s"
        right = Text(f"{seen.now:%H:%M:%S} UTC{every}", "dim")
    else:
        right = Text("")
    return _ends(left, right, size)


def _totals(seen: Overview, meter: Meter, size: Size) -> Text:
    rate = meter.rate()
    ready = sum(each.ready for each in seen.queues)
    running = sum(each.running for each in seen.queues)
    live = None if seen.workers is None else sum(not each.lost for each in seen.workers)
    left = Text.assemble(
        (per_second(rate and rate.done), "bold green"),
        "/s done  ",
        (per_second(rate and rate.failed), "bold red" if rate and rate.failed else ""),
        "/s failed",
        (_failed_lately(seen), "bold red"),
        "  ",
        (short(ready), "bold"),
        " ready  ",
        (short(running), "bold"),
        " running  ",
        ("-" if live is None else short(live), "bold red" if live == 0 else "bold"),
        " worker" if live == 1 else " workers",
    )
    room = size.columns - left.cell_len - 2
    if line := sparkline(meter.line()[-room:] if room > 0 else []):
        left.append(f"  {line}", "green")
    return _cut(left, size)


def _failed_lately(seen: Overview) -> str:
    """Count recent failures, which a rate doesn't show right after they happened."""
    since = seen.now - timedelta(seconds=LATELY_SECONDS)
    jobs = sum(each.finished_at is not None and each.finished_at >= since for each in seen.failures)
    more = "+" if jobs == OVERVIEW_FAILURES_MAX else ""
    return f" ({jobs}{more} in 1 h)" if jobs else ""


def _breakers(seen: Overview, size: Size) -> Text:
    described = []
    for each in seen.breakers:
        what = "unparking" if each.unparking else "open"
        if each.opened_by is not None:
            what = f"opened by {each.opened_by}"
        elif each.next_probe_at is not None:
            what = f"open, next probe {relative(each.next_probe_at, seen.now)}"
        described.append(f"{each.key} ({what}, {short(each.parked)} parked)")
    return _cut(Text(one_line("breakers: " + "; ".join(described)), "yellow"), size)


def _messengers(seen: Overview, size: Size) -> list[Text]:
    return [
        _cut(Text(one_line(each.brief), "yellow" if each.down else "dim"), size)
        for each in messenger_overviews(seen.workers or ())[:MESSENGERS_SHOWN_MAX]
    ]


def _tabs(view: View, size: Size) -> Text:
    left = Text()
    for number, tab in enumerate(TABS, 1):
        style = "reverse bold" if tab is view.tab else ""
        left.append(f" {number} {tab.value} ", style)
        left.append(" ")
    right = Text()
    if view.tab is Tab.QUEUES:
        right.append(f"by {view.order}  ", "dim")
    if view.typing or view.filter:
        right.append(f"/{one_line(view.filter)}{'_' if view.typing else ''}", "bold")
    return _ends(left, right, size)


def _trouble(place: Place, size: Size) -> Text:
    return _cut(Text(one_line(place.trouble or ""), "red"), size)


def _footer(view: View, size: Size) -> Text:
    if view.question is not None:
        return _cut(Text(f"{one_line(view.question)} y/n", "bold yellow"), size)
    if view.typing:
        words = "enter apply  escape clear"
    elif view.help:
        words = "press any key to go back"
    elif view.detail is not None:
        words = "escape back  up down scroll  q quit"
    else:
        own = KEYS[view.tab]
        words = f"q quit  tab view  {own + '  ' if own else ''}/ filter  space freeze  ? help"
    return _cut(Text(words, "dim"), size)


def _table(
    view: View, rows: Sequence[object], seen: Overview, meter: Meter, size: Size, selected: int
) -> Table:
    table = Table(
        box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", width=size.columns
    )
    columns = COLUMNS[view.tab]
    unused = "" if any(each.app_version for each in seen.workers or ()) else "APP"
    kept = [
        column.header != unused and (size.columns >= NARROW_COLUMNS or not column.spared)
        for column in columns
    ]
    for column in compress(columns, kept):
        table.add_column(
            column.header,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if column.is_number else "left",
            ratio=column.share or None,
        )
    for number, row in enumerate(rows):
        cells = compress(_cells(row, seen, meter), kept)
        if number == selected:
            # Without colors, which are hard to read in reverse.
            table.add_row(*(Text(cell.plain) for cell in cells), style="reverse")
        else:
            table.add_row(*cells)
    return table


def _cells(row: object, seen: Overview, meter: Meter) -> list[Text]:
    match row:
        case QueueStatus():
            return _queue(row, seen, meter)
        case WorkerStatus():
            cells = worker_row(row)
            return [as_text(cells[column.header]) for column in COLUMNS[Tab.WORKERS]]
        case Job():
            return _failure(row, seen.now)
    raise TypeError(row)


def _queue(queue: QueueStatus, seen: Overview, meter: Meter) -> list[Text]:
    rate = meter.rate(queue.name)
    latency = seen.latency_by_queue.get(queue.name)
    cap = "" if queue.running_max is None else f"/{short(queue.running_max)}"
    name = as_text(queue.name)
    if queue.paused:
        name.append(" paused", "bold yellow")
    return [
        name,
        Text(short(queue.ready), "" if queue.ready else "dim"),
        Text(short(queue.scheduled), "" if queue.scheduled else "dim"),
        Text(short(queue.parked), "yellow" if queue.parked else "dim"),
        Text(f"{short(queue.running)}{cap}", "" if queue.running else "dim"),
        Text(per_second(rate and rate.done), "green" if rate and rate.done else "dim"),
        Text(per_second(rate and rate.failed), "red" if rate and rate.failed else "dim"),
        Text("" if queue.oldest_ready_seconds is None else took(queue.oldest_ready_seconds)),
        Text(took(latency.wait.p95) if latency else ""),
        Text(took(latency.run.p95) if latency else ""),
    ]


def _failure(job: Job, now: datetime) -> list[Text]:
    error = (job.error_text or "").strip().partition("\n")[0]
    return [
        Text(relative(job.finished_at or job.created_at, now)),
        as_text(job.name),
        as_text(job.queue),
        Text(one_line(job.error_code or ""), "red"),
        as_text(error),
    ]


def sparkline(values: Sequence[float]) -> str:
    """Draw the values as bars; the largest fills the line."""
    most = max(values, default=0.0)
    if not most or len(values) < 2:
        return ""
    steps = len(BARS) - 1
    return "".join(BARS[round(value / most * steps)] for value in values)


def short(number: int) -> str:
    """Write a number in at most six characters."""
    if number < 100_000:
        return f"{number:,}"
    unit, size = ("M", 1e6) if number >= 999_500 else ("k", 1e3)
    return f"{number / size:.3g}{unit}"


def per_second(rate: float | None) -> str:
    """Write a rate in at most seven characters, or `-` if it is not known yet."""
    if rate is None:
        return "-"
    if 0 < rate < 0.05:
        return "<0.1"
    if 0 < rate < 9.95:
        return f"{rate:.1f}"
    return short(round(rate))


def took(seconds: float) -> str:
    """Write a duration in at most six characters."""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms" if seconds >= 0.001 else "<1 ms"
    return f"{seconds:.1f} s" if seconds < 9.95 else distance(seconds)


def _ends(left: Text, right: Text, size: Size) -> Text:
    """Put both at the ends of one line; only the left one is truncated."""
    width = size.columns - right.cell_len - 1
    left.truncate(max(0, width), overflow="ellipsis", pad=True)
    return _cut(Text.assemble(left, " ", right), size)


def _cut(line: Text, size: Size) -> Text:
    line.truncate(size.columns, overflow="ellipsis")
    line.no_wrap = True
    return line
