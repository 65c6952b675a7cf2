"""Print bulk changes: as a table, or one in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from holdfast.cli.display import WIDE_COLUMNS, Row, console, print_jobs, print_table
from holdfast.domain.bulk import BulkChange, BulkState
from holdfast.domain.times import distance, exact, relative
from holdfast.observability.logs import one_line
from holdfast.runtime.seam import Seam

STYLES: Final = {
    BulkState.PREVIEWED: "cyan",
    BulkState.RUNNING: "blue",
    BulkState.PAUSED: "yellow",
    BulkState.COMPLETED: "green",
    BulkState.CANCELED: "red",
}


def print_changes(changes: Sequence[BulkChange]) -> None:
    out = console()
    now = Seam().now()
    rows: list[Row] = [
        {
            "ID": str(change.id),
            "ACTION": change.action,
            "STATE": Text(change.state, STYLES[change.state]),
            "DONE": f"{change.done:,}/{change.total:,}{'+' if change.capped else ''}",
            "LEFT": _left(change),
            "MADE": relative(change.created_at, now),
            "BY": change.by or "",
            "BECAUSE": change.because or "",
        }
        for change in changes
    ]
    hidden = () if out.width >= WIDE_COLUMNS else ("BY", "BECAUSE")
    print_table(out, rows, ("BY", "BECAUSE"), hidden)


def print_change(change: BulkChange) -> None:
    out = console()
    state = Text(change.state, STYLES[change.state])
    out.print(Text.assemble((change.action, "bold"), "  ", state))
    for label, value in _facts(change):
        if value:
            out.print(Text.assemble((f"{label:<15}", "dim"), one_line(value)), soft_wrap=True)
    for count in change.counts:
        jobs = f"{count.jobs:,} {count.state} {one_line(count.name)}"
        out.print(Text.assemble((f"{'at first':<15}", "dim"), jobs), soft_wrap=True)
    if change.sample:
        out.print()
        print_jobs(change.sample, dead=True)


def _facts(change: BulkChange) -> list[tuple[str, str | None]]:
    pace = None if change.jobs_per_second is None else f"at most {change.jobs_per_second:g}/s"
    measured = None if change.rate is None else f"{change.rate:.1f}/s now"
    return [
        ("id", str(change.id)),
        ("tenant", change.tenant),
        ("jobs", f"{change.total:,}{' (more match)' if change.capped else ''}"),
        ("left out", _counted(change.requeued_before, "already requeued")),
        ("done", f"{change.done:,}"),
        ("changed", f"{change.changed:,}" if change.done else None),
        ("skipped", _skipped(change)),
        ("rate", ", ".join(filter(None, (pace, measured)))),
        ("time left", _left(change)),
        ("by", change.by),
        ("because", change.because),
        ("created", exact(change.created_at)),
        ("started", None if change.started_at is None else exact(change.started_at)),
        ("ended", None if change.ended_at is None else exact(change.ended_at)),
        ("error", change.error_text),
    ]


def _skipped(change: BulkChange) -> str:
    return ", ".join(
        filter(
            None,
            (
                _counted(change.moved_on, "had changed or were gone"),
                _counted(change.requeued_already, "already requeued"),
                _counted(change.refused, "refused by the database"),
            ),
        )
    )


def _counted(jobs: int, what: str) -> str:
    return f"{jobs:,} {what}" if jobs else ""


def _left(change: BulkChange) -> str:
    if change.seconds_left is None:
        return ""
    return distance(max(1.0, change.seconds_left))
