"""Print jobs, queues, workers and the like: as tables for people, as JSON for scripts.

Text in jobs comes from elsewhere: characters that could move the cursor or forge a line are
escaped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.domain.audit import AuditEntry
from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.encryption import SecretCount
from holdfast.domain.groups import ErrorGroup, GroupState
from holdfast.domain.job import Job
from holdfast.domain.keys import Key
from holdfast.domain.limits import PARKED_COUNTED_MAX
from holdfast.domain.messenger_overview import messenger_overviews
from holdfast.domain.queues import QueueStatus
from holdfast.domain.states import State
from holdfast.domain.times import distance, relative
from holdfast.domain.workers import ALL_QUEUES, WorkerStatus
from holdfast.observability.logs import one_line
from holdfast.runtime.seam import Seam

T = TypeVar("T")
Row = dict[str, str | Text]

PIPE_COLUMNS = 1000
WIDE_COLUMNS = 100
WIDE_IDS_COLUMNS = 140
GAP = 2

STATE_STYLES = {
    State.QUEUED: "cyan",
    State.RUNNING: "blue",
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.DEAD: "bold red",
    State.CANCELED: "yellow",
}

GROUP_STYLES = {
    GroupState.NEW: "red",
    GroupState.BACK: "bold red",
    GroupState.ACKNOWLEDGED: "yellow",
    GroupState.RESOLVED: "green",
}


def console() -> Console:
    """Make a console; in a pipe, it has no colors and is wide enough to truncate nothing."""
    terminal = sys.stdout.isatty()
    return Console(width=None if terminal else PIPE_COLUMNS, highlight=False, soft_wrap=False)


def print_json_lines(found: Iterable[object]) -> None:
    for each in found:
        click.echo(msgspec.json.encode(each, enc_hook=str))


def print_all(
    found: Sequence[T], printing: Callable[[Sequence[T]], None], none: str, *, as_json: bool
) -> None:
    """Print a list as JSON lines or as a table, or say on stderr that there is nothing."""
    if as_json:
        print_json_lines(found)
    elif found:
        printing(found)
    else:
        click.echo(none, err=True)


def print_jobs(
    jobs: Sequence[Job],
    *,
    dead: bool,
    parked_by: Mapping[UUID, BreakerStatus] | None = None,
    requeued: Mapping[UUID, UUID] | None = None,
) -> None:
    out = console()
    now = Seam().now()
    wide, requeued = out.width >= WIDE_COLUMNS, requeued or {}
    rows: list[Row] = []
    for job in jobs:
        breaker = parked_by.get(job.id) if parked_by else None
        when = f"parked: {breaker.key}" if breaker else relative(_when(job), now)
        if job.id in requeued:
            when = f"{when}, requeued" if wide else "requeued"
        rows.append(
            {
                "ID": str(job.id),
                "STATE": state_text(job.state),
                "NAME": _name(job, queue_beside=not wide),
                "QUEUE": job.queue,
                "TRIES": f"{job.attempts}/{job.max_attempts}",
                "ERROR": _red(job.error_code),
                "WHEN": when,
                "REQUEUED AS": str(requeued.get(job.id, "")),
            }
        )
    hidden = [*([] if wide else ["QUEUE"]), *([] if wide or not dead else ["TRIES"])]
    hidden += [] if dead else ["ERROR"]
    hidden += [] if requeued and out.width >= WIDE_IDS_COLUMNS else ["REQUEUED AS"]
    flexible = ("NAME", "QUEUE", "ERROR", *(["WHEN"] if parked_by else []))
    print_table(out, rows, flexible, hidden)


def print_groups(groups: Sequence[ErrorGroup]) -> None:
    out = console()
    now = Seam().now()
    rows: list[Row] = [
        {
            "JOBS": f"{group.jobs:,}",
            "STATE": Text(group.state, GROUP_STYLES[group.state]),
            "FINGERPRINT": group.fingerprint,
            "NAME": group.name,
            "CODE": _red(group.error_code),
            "ERROR": group.shape,
            "LAST": relative(group.last_seen, now),
            "FIRST": relative(group.first_seen, now),
            "QUEUE": ", ".join(group.queues),
            "EXAMPLE": str(group.example_id),
        }
        for group in groups
    ]
    hidden = () if out.width >= WIDE_IDS_COLUMNS else ("FIRST", "QUEUE", "EXAMPLE")
    print_table(out, rows, ("NAME", "CODE", "ERROR", "QUEUE"), hidden)


def print_workers(workers: Sequence[WorkerStatus]) -> None:
    out = console()
    hidden = [] if out.width >= WIDE_COLUMNS else ["HOST", "PID"]
    hidden += [] if any(each.app_version for each in workers) else ["APP"]
    print_table(out, [*map(worker_row, workers)], ("WORKER", "HOST", "APP", "QUEUES"), hidden)
    for each in messenger_overviews(workers):
        out.print(Text(one_line(f"messenger {each.sentence}"), "yellow" if each.down else "dim"))


def worker_row(worker: WorkerStatus) -> Row:
    now = worker.seen_at + timedelta(seconds=worker.unseen_seconds)  # by the database's clock
    seen = relative(worker.seen_at, now)
    return {
        "WORKER": worker.id,
        "HOST": worker.host,
        "PID": str(worker.pid),
        "APP": worker.app_version,
        "HOLDFAST": worker.version,
        "QUEUES": _served(worker),
        "LOAD": "HTTP" if worker.is_server else f"{worker.running}/{worker.concurrency}",
        "UP": distance((now - worker.started_at).total_seconds()),
        "SEEN": _red(f"lost, {seen}") if worker.lost else seen,
    }


def _served(worker: WorkerStatus) -> str:
    """The worker's queues, as written for `holdfast worker --queues`."""
    queues = {ALL_QUEUES: None} if worker.queues is None else worker.queues
    written = ",".join(name if cap is None else f"{name}:{cap}" for name, cap in queues.items())
    return f"{written} (suspects)" if worker.suspects_only else written


def print_queues(queues: Sequence[QueueStatus]) -> None:
    now = Seam().now()
    rows: list[Row] = []
    for queue in queues:
        oldest = queue.oldest_ready_seconds
        cap = "" if queue.running_max is None else f"/{queue.running_max:,}"
        full = queue.running_max is not None and queue.running >= queue.running_max
        rows.append(
            {
                "QUEUE": queue.name,
                "READY": f"{queue.ready:,}",
                "SCHEDULED": f"{queue.scheduled:,}",
                "PARKED": Text(f"{queue.parked:,}", "yellow" if queue.parked else ""),
                "RUNNING": Text(f"{queue.running:,}{cap}", "yellow" if full else ""),
                "OLDEST": "" if oldest is None else distance(oldest),
                "PAUSED": _red(_paused(queue, now)),
            }
        )
    print_table(console(), rows, ("QUEUE", "PAUSED"))


def _paused(queue: QueueStatus, now: datetime) -> str:
    if queue.paused_at is None:
        return ""
    by = f"by {queue.paused_by}, " if queue.paused_by else ""
    because = f": {queue.paused_because}" if queue.paused_because else ""
    return f"{by}{relative(queue.paused_at, now)}{because}"


def print_breakers(breakers: Sequence[BreakerStatus]) -> None:
    now = Seam().now()
    rows: list[Row] = []
    for breaker in breakers:
        opened, probe = breaker.opened_at, breaker.next_probe_at
        more = "+" if breaker.parked >= PARKED_COUNTED_MAX else ""
        by = f"by {breaker.opened_by}" if breaker.opened_by else ""
        rows.append(
            {
                "KEY": breaker.key,
                "STATE": _breaker_state(breaker),
                "SINCE": "" if opened is None else relative(opened, now),
                "PARKED": f"{breaker.parked:,}{more}",
                "FAILURES": f"{breaker.failures:,}",
                "NEXT PROBE": "" if probe is None else relative(probe, now),
                "BECAUSE": ": ".join(filter(None, (by, breaker.opened_because))),
            }
        )
    print_table(console(), rows, ("KEY", "BECAUSE"))


def _breaker_state(breaker: BreakerStatus) -> Text:
    if breaker.is_open:
        return Text("open", "bold red")
    return Text("unparking", "yellow") if breaker.unparking else Text("closed", "green")


def print_keys(keys: Sequence[Key]) -> None:
    out = console()
    now = Seam().now()
    rows: list[Row] = [
        {
            "ID": key.id,
            "NAME": key.name,
            "TENANT": Text("all", "dim") if key.tenant is None else key.tenant,
            "SCOPES": ", ".join(key.scopes),
            "STATE": _key_state(key.state(now)),
            "EXPIRES": "" if key.expires_at is None else relative(key.expires_at, now),
            "CREATED": relative(key.created_at, now),
            "BY": key.created_by or "",
            "RATE": "" if key.requests_per_second is None else f"{key.requests_per_second:g}/s",
        }
        for key in keys
    ]
    hidden = [] if out.width >= WIDE_COLUMNS else ["CREATED", "BY", "RATE"]
    print_table(out, rows, ("NAME", "TENANT", "SCOPES", "BY"), hidden)


def _key_state(state: str) -> Text:
    return Text(state, {"active": "green", "rotated": "yellow"}.get(state, "red"))


def print_secrets(counts: Sequence[SecretCount]) -> None:
    rows: list[Row] = [
        {
            "KIND": each.kind,
            "KEY": "" if each.key_id is None else each.key_id,
            "SECRETS": str(each.count),
            "STATE": _secret_state(each),
        }
        for each in counts
    ]
    print_table(console(), rows, ("KIND", "KEY"), [])


def _secret_state(each: SecretCount) -> Text:
    if each.key_id is None:
        return Text("plaintext", "red")
    if each.is_current:
        return Text("current", "green")
    return Text("old", "yellow") if each.is_known else Text("unknown here", "red")


def print_audit_log(entries: Sequence[AuditEntry]) -> None:
    out = console()
    rows: list[Row] = [
        {
            "TIME (UTC)": f"{entry.at:%Y-%m-%d %H:%M:%S}",
            "ACTOR": entry.actor,
            "ACTION": entry.action,
            "TARGET": entry.target or "",
            "JOBS": f"{entry.jobs:,}",
            "OUTCOME": Text(entry.outcome, "" if entry.outcome == "allowed" else "red"),
            "FROM": entry.address or "",
            "KEY": entry.key_id or "",
            "TENANT": entry.tenant or "",
            "BECAUSE": entry.because or "",
        }
        for entry in entries
    ]
    hidden = [] if out.width >= WIDE_IDS_COLUMNS else ["FROM", "KEY", "TENANT", "BECAUSE"]
    print_table(out, rows, ("ACTOR", "ACTION", "TARGET", "FROM", "TENANT", "BECAUSE"), hidden)


def _when(job: Job) -> datetime:
    if job.finished_at:
        return job.finished_at
    return job.started_at if job.state is State.RUNNING and job.started_at else job.run_at


def print_table(
    out: Console, rows: Sequence[Row], flexible: Sequence[str], hidden: Sequence[str] = ()
) -> None:
    """Print a table that truncates only the flexible columns, the widest of them first."""
    headers = [header for header in rows[0] if header not in hidden]
    cells = [[as_text(row[header]) for header in headers] for row in rows]
    widths = {
        header: max(len(header), *(cell.cell_len for cell in column))
        for header, column in zip(headers, zip(*cells, strict=True), strict=True)
    }
    shrinking = sorted((name for name in headers if name in flexible), key=widths.__getitem__)
    left = out.width - GAP * (len(headers) - 1)
    left -= sum(width for name, width in widths.items() if name not in flexible)
    for place, name in enumerate(shrinking):
        widths[name] = min(widths[name], max(1, left // (len(shrinking) - place)))
        left -= widths[name]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for header in headers:
        table.add_column(header, no_wrap=True, overflow="ellipsis", width=widths[header])
    for row in cells:
        table.add_row(*row)
    out.print(table)


def as_text(cell: str | Text) -> Text:
    return cell if isinstance(cell, Text) else Text(one_line(cell))


def _red(text: str | None) -> Text:
    return Text(one_line(text or ""), "red")


def state_text(state: State) -> Text:
    return Text(state.value, STATE_STYLES[state])


def _name(job: Job, *, queue_beside: bool) -> Text:
    name = as_text(job.name)
    if queue_beside and job.queue != "default":
        name.append(f" {one_line(job.queue)}", "dim")
    return name
