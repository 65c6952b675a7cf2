"""Print one job in full: as text for people, as one JSON object for scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.text import Text

from holdfast.cli.display import console, state_text
from holdfast.cli.show import CHILDREN_COUNTED_MAX, Details
from holdfast.cli.target import on_same_target
from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.encrypted_jobs import EncryptedValue
from holdfast.domain.endings import error_line, why_it_ended
from holdfast.domain.groups import fingerprint_of
from holdfast.domain.job import Attempt, Job
from holdfast.domain.states import State
from holdfast.domain.times import exact
from holdfast.observability.logs import one_line


def print_json_object(details: Details) -> None:
    job = details.job
    why = why_it_ended(job)
    parked_by = details.parked_by
    whole = msgspec.to_builtins(job, enc_hook=str) | {
        "why": why,
        "fingerprint": fingerprint_of(job) if why else None,
        "requeued_as": None if details.requeued_as is None else str(details.requeued_as),
        "children": [str(child.id) for child in details.children],
        "parked_by": None if parked_by is None else parked_by.key,
        "history": msgspec.to_builtins(details.attempts),
    }
    click.echo(json.dumps(whole, indent=2))


def print_job(details: Details, out: Console | None = None) -> None:
    job, out = details.job, out or console()
    out.print(Text.assemble((one_line(job.name), "bold"), "  ", state_text(job.state)))
    for label, value in [
        ("why", why_it_ended(job)),
        *_facts(job),
        ("requeued as", details.requeued_as),
        ("parent", job.parent_id),
        ("children", _children(details)),
        ("parked by", _parked_by(details.parked_by)),
    ]:
        if value not in (None, ""):
            line = Text.assemble((f"{label:<15}", "dim"), one_line(str(value)))
            out.print(line, soft_wrap=True)  # a command can be pasted
    _print_value(out, "arguments", job.arguments)
    if job.progress is not None:
        _print_value(out, "progress", job.progress)
    if job.state is State.SUCCEEDED:
        _print_value(out, "result", job.result)
    if job.error_code:
        _print_error(out, job)
    if details.attempts:
        _print_attempts(out, details.attempts)


def _children(details: Details) -> str | None:
    count = len(details.children)
    if not count:
        return None
    more = " or more" if count == CHILDREN_COUNTED_MAX else ""
    listing = on_same_target("holdfast jobs list")
    return f"{count}{more}; to list them: {listing} --parent {details.job.id}"


def _parked_by(breaker: BreakerStatus | None) -> str | None:
    if breaker is None or breaker.opened_at is None:
        return None
    by = f" by {breaker.opened_by}" if breaker.opened_by else ""
    because = f": {breaker.opened_because}" if breaker.opened_because else ""
    return f"breaker {breaker.key}, opened {exact(breaker.opened_at)}{by}{because}"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _facts(job: Job) -> list[tuple[str, Any]]:
    started, finished = job.started_at, job.finished_at
    took = None
    # A job canceled while it waited may have the start of an earlier attempt.
    if started and finished and job.state is not State.CANCELED:
        took = _duration((finished - started).total_seconds())
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
        ("started", _exact(started)),
        ("finished", _exact(finished)),
        ("took", took),
        ("worker", job.lease_owner),
        ("lease expires", _exact(job.lease_expires_at)),
        ("requeued from", job.requeued_from),
        ("fingerprint", fingerprint_of(job) if why_it_ended(job) else None),
    ]


def _print_value(out: Console, title: str, value: Any) -> None:
    out.print(Text(f"\n{title}", "bold"))
    if isinstance(value, EncryptedValue):
        out.print(Text(str(value), "dim"))
        return
    pretty = json.dumps(msgspec.to_builtins(value, enc_hook=str), indent=2, ensure_ascii=False)
    out.print(JSONHighlighter()(Text("\n".join(map(one_line, pretty.split("\n"))))))


def _print_error(out: Console, job: Job) -> None:
    out.print(Text("\nerror", "bold"))
    first, *others = _error(job.error_code, job.error_text).splitlines() or [""]
    out.print(Text(one_line(first), "red"))
    for line in others:
        out.print(Text(one_line(line)))


def _error(code: str | None, text: str | None) -> str:
    """Code and text. The text of an exception often begins with the code already."""
    if not text or not code:
        return text or code or ""
    return text if text.startswith(code) else f"{code}: {text}"


def _print_attempts(out: Console, attempts: Sequence[Attempt]) -> None:
    """Two lines for each, because ids, times and errors don't fit beside each other."""
    out.print(Text("\nattempts", "bold"))
    number = len(str(attempts[-1].attempt))
    for each in attempts:
        began, ended = each.started_at, each.ended_at
        outcome = Text(f"{each.outcome:<9}", "green" if each.outcome == "succeeded" else "")
        times = exact(ended)
        if began is not None:
            times = f"{exact(began)}, took {_duration((ended - began).total_seconds())}"
        _print_line(out, Text.assemble(f"{each.attempt:>{number}}  ", outcome, f"  {times}"))
        margin = " " * (number + 2)
        worker = f", worker {each.worker}" if each.worker else ""
        _print_line(out, Text(f"{margin}fence {each.fence}{one_line(worker)}", "dim"))
        if each.error_code or each.error_text:
            error = error_line(each.error_code, each.error_text)
            _print_line(out, Text(f"{margin}{one_line(error)}", "red"))


def _print_line(out: Console, line: Text) -> None:
    out.print(line, no_wrap=True, overflow="ellipsis")


def _exact(moment: datetime | None) -> str | None:
    return None if moment is None else exact(moment)
