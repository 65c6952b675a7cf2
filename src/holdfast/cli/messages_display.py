"""Print the messages of a broker, beside the state of their jobs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from holdfast.cli.display import (
    WIDE_COLUMNS,
    WIDE_IDS_COLUMNS,
    Row,
    console,
    print_table,
    state_text,
)
from holdfast.domain.messages import MessageStatus, Replayed
from holdfast.domain.times import relative
from holdfast.runtime.seam import Seam


def print_messages(found: Sequence[MessageStatus]) -> None:
    out = console()
    hidden = [] if out.width >= WIDE_COLUMNS else ["DELIVERIES", "TRIES"]
    hidden += [] if out.width >= WIDE_IDS_COLUMNS else ["BECAUSE"]
    hidden += [] if len({each.messenger for each in found}) > 1 else ["MESSENGER"]
    print_table(out, [*map(_row, found)], ("MESSENGER", "BECAUSE"), hidden)


def print_replayed(done: Sequence[Replayed], *, dry_run: bool) -> None:
    sent = "would be sent" if dry_run else "sent"
    rows: list[Row] = [
        {
            "NUMBER": str(each.message.number),
            "JOB": str(each.message.job_id or ""),
            "OUTCOME": Text(sent, "green") if each.sent else Text("stays", "yellow"),
            "BECAUSE": each.because,
        }
        for each in done
    ]
    print_table(console(), rows, ("BECAUSE",))


def _row(each: MessageStatus) -> Row:
    now = Seam().now()
    sent_at, due_at = each.sent_at, each.due_at
    when = due_at or sent_at
    return {
        "NUMBER": str(each.number),
        "MESSAGE": Text("dead", "red") if each.box == "dead" else each.state,
        "JOB": str(each.job_id or ""),
        "JOB STATE": _job_state(each),
        "TRIES": "" if each.job_attempts is None else str(each.job_attempts),
        "DELIVERIES": str(each.deliveries),
        "WHEN": "" if when is None else relative(when, now),
        "BECAUSE": ": ".join(filter(None, (each.reason, each.description))),
        "MESSENGER": each.messenger,
    }


def _job_state(each: MessageStatus) -> Text:
    if each.job_state is not None:
        return state_text(each.job_state)
    return Text("unknown" if each.job_id else "names no job", "dim")
