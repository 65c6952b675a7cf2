"""Jobs for people (tables, colors in a terminal) and for scripts (JSON).

What a job carries is text from elsewhere: whatever could move the cursor or forge a line is shown
escaped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import click
import msgspec
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.table import Table
from rich.text import Text

from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.endings import why_it_ended
from holdfast.domain.groups import ErrorGroup, fingerprint_of
from holdfast.domain.job import Attempt, Job
from holdfast.domain.limits import PARKED_COUNTED_MAX
from holdfast.domain.queues import QueueStatus
from holdfast.domain.states import State
from holdfast.domain.times import distance, exact, relative
from holdfast.domain.workers import ALL_QUEUES, WorkerStatus
from holdfast.observability.logs import one_line
from holdfast.runtime.seam import Seam

PIPE_COLUMNS = 1000
WIDE_COLUMNS = 100
GAP = 2

STATE_STYLES = {
    State.QUEUED: "cyan",
    State.RUNNING: "blue",
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.DEAD: "bold red",
    State.CANCELED: "yellow",
}


def console() -> Console:
    """Rich's console; in a pipe without colors, and wide enough to cut nothing off."""
    terminal = sys.stdout.isatty()
    return Console(width=None if terminal else PIPE_COLUMNS, highlight=False, soft_wrap=False)


def print_json_lines(jobs: Sequence[Job]) -> None:
    for job in jobs:
        click.echo(msgspec.json.encode(job, enc_hook=str))


def print_json_object(
    job: Job, attempts: Sequence[Attempt], requeued_as: UUID | None, parked_by: BreakerStatus | None
) -> None:
    whole = msgspec.to_builtins(job, enc_hook=str)
    why = why_it_ended(job)
    whole |= {
        "why": why,
        "fingerprint": fingerprint_of(job) if why else None,
        "requeued_as": None if requeued_as is None else str(requeued_as),
        "parked_by": None if parked_by is None else parked_by.key,
        "history": msgspec.to_builtins(attempts),
    }
    click.echo(json.dumps(whole, indent=2))


def print_jobs(
    jobs: Sequence[Job], *, dead: bool, parked_by: Mapping[UUID, BreakerStatus] | None = None
) -> None:
    out = console()
    now = Seam().now()
    wide = out.width >= WIDE_COLUMNS
    headers = ["ID", "STATE", "NAME"]
    headers += ["QUEUE"] if wide else []
    headers += ["TRIES"] if wide or not dead else []
    headers += ["ERROR"] if dead else []
    rows = []
    for job in jobs:
        cells = {
            "ID": _plain(str(job.id)),
            "STATE": _state(job.state),
            "NAME": _name(job, queue_beside=not wide),
            "QUEUE": _plain(job.queue),
            "TRIES": _plain(f"{job.attempts}/{job.max_attempts}"),
            "ERROR": Text(one_line(job.error_code or ""), "red"),
        }
        breaker = parked_by.get(job.id) if parked_by else None
        when = f"parked: {breaker.key}" if breaker else relative(_when(job), now)
        rows.append([*(cells[header] for header in headers), _plain(when)])
    flexible = ("NAME", "QUEUE", "ERROR", *(["WHEN"] if parked_by else []))
    out.print(_table(out, [*headers, "WHEN"], rows, flexible=flexible))


def print_groups(groups: Sequence[ErrorGroup]) -> None:
    out = console()
    now = Seam().now()
    wide = out.width >= WIDE_COLUMNS
    headers = ["JOBS", "FINGERPRINT", "NAME", "CODE", "ERROR", "LAST"]
    headers += ["FIRST", "QUEUE", "EXAMPLE"] if wide else []
    rows = []
    for group in groups:
        cells = {
            "JOBS": _plain(f"{group.jobs:,}"),
            "FINGERPRINT": _plain(group.fingerprint),
            "NAME": _plain(group.name),
            "CODE": Text(one_line(group.error_code or ""), "red"),
            "ERROR": _plain(group.shape),
            "LAST": _plain(relative(group.last_seen, now)),
            "FIRST": _plain(relative(group.first_seen, now)),
            "QUEUE": _plain(", ".join(group.queues)),
            "EXAMPLE": _plain(str(group.example_id)),
        }
        rows.append([cells[header] for header in headers])
    out.print(_table(out, headers, rows, flexible=("NAME", "CODE", "ERROR", "QUEUE")))


def print_workers(workers: Sequence[WorkerStatus]) -> None:
    out = console()
    wide = out.width >= WIDE_COLUMNS
    headers = ["WORKER", *(["HOST", "PID"] if wide else []), "VERSION", "QUEUES", "LOAD", "UP"]
    rows = []
    for worker in workers:
        now = worker.seen_at + timedelta(seconds=worker.unseen_seconds)  # the database's
        seen = relative(worker.seen_at, now)
        cells = {
            "WORKER": _plain(worker.id),
            "HOST": _plain(worker.host),
            "PID": _plain(str(worker.pid)),
            "VERSION": _plain(worker.version),
            "QUEUES": _plain(served(worker)),
            "LOAD": _plain(f"{worker.running}/{worker.concurrency}"),
            "UP": _plain(distance((now - worker.started_at).total_seconds())),
        }
        sight = Text(f"lost, {seen}", "red") if worker.lost else _plain(seen)
        rows.append([*(cells[header] for header in headers), sight])
    out.print(_table(out, [*headers, "SEEN"], rows, flexible=("WORKER", "HOST", "QUEUES")))


def served(worker: WorkerStatus) -> str:
    """The queues, as they are given to `holdfast worker --queues`."""
    queues = {ALL_QUEUES: None} if worker.queues is None else worker.queues
    told = ",".join(name if cap is None else f"{name}:{cap}" for name, cap in queues.items())
    return f"{told} (suspects)" if worker.suspects_only else told


def print_queues(queues: Sequence[QueueStatus]) -> None:
    out = console()
    now = Seam().now()
    headers = ["QUEUE", "READY", "SCHEDULED", "PARKED", "RUNNING", "OLDEST", "PAUSED"]
    rows = []
    for queue in queues:
        oldest = queue.oldest_ready_seconds
        cap = "" if queue.running_max is None else f"/{queue.running_max:,}"
        full = queue.running_max is not None and queue.running >= queue.running_max
        rows.append(
            [
                _plain(queue.name),
                _plain(f"{queue.ready:,}"),
                _plain(f"{queue.scheduled:,}"),
                Text(f"{queue.parked:,}", "yellow" if queue.parked else ""),
                Text(f"{queue.running:,}{cap}", "yellow" if full else ""),
                _plain("" if oldest is None else distance(oldest)),
                Text(_paused(queue, now), "red"),
            ]
        )
    out.print(_table(out, headers, rows, flexible=("QUEUE", "PAUSED")))


def _paused(queue: QueueStatus, now: datetime) -> str:
    if queue.paused_at is None:
        return ""
    by = f"by {queue.paused_by}, " if queue.paused_by else ""
    because = f": {queue.paused_because}" if queue.paused_because else ""
    return one_line(f"{by}{relative(queue.paused_at, now)}{because}")


def print_breakers(breakers: Sequence[BreakerStatus]) -> None:
    out = console()
    now = Seam().now()
    headers = ["KEY", "STATE", "SINCE", "PARKED", "FAILURES", "NEXT PROBE", "BECAUSE"]
    rows = []
    for breaker in breakers:
        opened, probe = breaker.opened_at, breaker.next_probe_at
        more = "+" if breaker.parked >= PARKED_COUNTED_MAX else ""
        rows.append(
            [
                _plain(breaker.key),
                _breaker_state(breaker),
                _plain("" if opened is None else relative(opened, now)),
                _plain(f"{breaker.parked:,}{more}"),
                _plain(f"{breaker.failures:,}"),
                _plain("" if probe is None else relative(probe, now)),
                _plain(_because(breaker)),
            ]
        )
    out.print(_table(out, headers, rows, flexible=("KEY", "BECAUSE")))


def _breaker_state(breaker: BreakerStatus) -> Text:
    if breaker.is_open:
        return Text("open", "bold red")
    return Text("unparking", "yellow") if breaker.unparking else Text("closed", "green")


def _because(breaker: BreakerStatus) -> str:
    by = f"by {breaker.opened_by}" if breaker.opened_by else ""
    return ": ".join(filter(None, (by, breaker.opened_because)))


def print_job(
    job: Job,
    attempts: Sequence[Attempt],
    requeued_as: UUID | None,
    parked_by: BreakerStatus | None,
    out: Console | None = None,
) -> None:
    out = out or console()
    out.print(Text.assemble((one_line(job.name), "bold"), "  ", _state(job.state)))
    if why := why_it_ended(job):
        out.print(Text.assemble((f"{'why':<15}", "dim"), one_line(why)))
    for label, value in [
        *_facts(job),
        ("requeued as", requeued_as),
        ("parked by", _parked_by(parked_by)),
    ]:
        if value not in (None, ""):
            out.print(Text.assemble((f"{label:<15}", "dim"), one_line(str(value))))
    _print_value(out, "arguments", job.arguments)
    if job.progress is not None:
        _print_value(out, "progress", job.progress)
    if job.state is State.SUCCEEDED:
        _print_value(out, "result", job.result)
    if job.error_code:
        _print_error(out, job)
    if attempts:
        _print_attempts(out, attempts)


def _parked_by(breaker: BreakerStatus | None) -> str | None:
    if breaker is None or breaker.opened_at is None:
        return None
    because = _because(breaker)
    return f"breaker {breaker.key}, open since {exact(breaker.opened_at)}" + (
        f": {because}" if because else ""
    )


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _when(job: Job) -> datetime:
    if job.finished_at:
        return job.finished_at
    return job.started_at if job.state is State.RUNNING and job.started_at else job.run_at


def _facts(job: Job) -> list[tuple[str, Any]]:
    last_start = job.started_at
    end = job.finished_at
    # One that was canceled while it waited has a start too, that of an earlier attempt.
    took = None
    if end and last_start and job.state is not State.CANCELED:
        took = duration((end - last_start).total_seconds())
    return [
        ("id", job.id),
        ("queue", job.queue),
        ("priority", job.priority),
        ("tenant", job.tenant),
        ("correlation", job.correlation_id),
        ("tags", ", ".join(job.tags)),
        ("key", job.idempotency_key),
        ("breaker", job.breaker),
        ("attempts", f"{job.attempts} of {job.max_attempts}"),
        ("snoozes", job.snoozes or None),
        ("releases", job.releases or None),
        ("crashes", job.crashes or None),
        ("fence", job.fence),
        ("created", _exact(job.created_at)),
        ("due", _exact(job.run_at)),
        ("expires", _exact(job.expires_at)),
        ("started", _exact(last_start)),
        ("finished", _exact(end)),
        ("took", took),
        ("worker", job.lease_owner),
        ("lease expires", _exact(job.lease_expires_at)),
        ("requeued from", job.requeued_from),
        ("fingerprint", fingerprint_of(job) if why_it_ended(job) else None),
    ]


def _print_value(out: Console, title: str, value: Any) -> None:
    out.print(Text(f"\n{title}", "bold"))
    pretty = json.dumps(msgspec.to_builtins(value, enc_hook=str), indent=2, ensure_ascii=False)
    out.print(JSONHighlighter()(Text("\n".join(map(one_line, pretty.split("\n"))))))


def _print_error(out: Console, job: Job) -> None:
    out.print(Text("\nerror", "bold"))
    first, *others = _error(job.error_code, job.error_text).splitlines() or [""]
    out.print(Text(one_line(first), "red"))
    for line in others:
        out.print(Text(one_line(line)))


def _error(code: str | None, text: str | None) -> str:
    """Code and text; the text of an exception begins with its type, which often is the code."""
    if not text or not code:
        return text or code or ""
    return text if text.startswith(code) else f"{code}: {text}"


def _print_attempts(out: Console, attempts: Sequence[Attempt]) -> None:
    out.print(Text("\nunsuccessful attempts", "bold"))
    rows = []
    for attempt in attempts:
        error = _error(attempt.error_code, attempt.error_text).split("\n")[0]
        began = attempt.started_at
        took = duration((attempt.ended_at - began).total_seconds()) if began else ""
        ended = _exact(attempt.ended_at) or ""
        words = (str(attempt.attempt), attempt.outcome, ended, took, error.strip())
        rows.append([_plain(word) for word in words])
    headers = ["#", "OUTCOME", "ENDED", "TOOK", "ERROR"]
    out.print(_table(out, headers, rows, flexible=("ERROR",)))


def _table(
    out: Console, headers: Sequence[str], rows: Sequence[Sequence[Text]], flexible: Sequence[str]
) -> Table:
    """A table in which only the flexible columns are cut to fit, the widest of them first."""
    widths = {
        header: max(len(header), *(row[place].cell_len for row in rows))
        for place, header in enumerate(headers)
    }
    yielding = sorted((name for name in headers if name in flexible), key=lambda name: widths[name])
    room = out.width - GAP * (len(headers) - 1)
    room -= sum(width for name, width in widths.items() if name not in flexible)
    for place, name in enumerate(yielding):
        widths[name] = min(widths[name], max(1, room // (len(yielding) - place)))
        room -= widths[name]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for header in headers:
        table.add_column(header, no_wrap=True, overflow="ellipsis", width=widths[header])
    for row in rows:
        table.add_row(*row)
    return table


def _state(state: State) -> Text:
    return Text(state.value, STATE_STYLES[state])


def _name(job: Job, *, queue_beside: bool) -> Text:
    name = Text(one_line(job.name))
    if queue_beside and job.queue != "default":
        name.append(f" {one_line(job.queue)}", "dim")
    return name


def _plain(text: str) -> Text:
    return Text(one_line(text))


def _exact(moment: datetime | None) -> str | None:
    return None if moment is None else exact(moment)
