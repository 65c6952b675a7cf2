"""Change jobs by ID, or all that match, after asking for confirmation."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import click
import msgspec
from rich import progress as rich_progress
from rich.console import Console

from holdfast.app import Holdfast
from holdfast.cli import display
from holdfast.cli.operator import recorded
from holdfast.cli.selection import FILTERS, make_filter
from holdfast.cli.session import FAILED_CODE, interactive, say
from holdfast.domain.errors import AlreadyRequeued, JobNotFound, WrongState
from holdfast.domain.job import Filter, Job
from holdfast.domain.states import State
from holdfast.operations.steps import Choice, Progress
from holdfast.runtime.seam import Seam

PROGRESS_AFTER_SECONDS = 1.0


@dataclass(frozen=True)
class Audited:
    """What the audit log says about a change; without a target, the job's ID or the filter."""

    action: str
    target: str | None = None
    by: str | None = None
    because: str | None = None

    def recorded(self, app: Holdfast, target: str, jobs: int) -> AbstractAsyncContextManager[None]:
        named = self.target or target
        return recorded(app, self.action, named, jobs=jobs, by=self.by, because=self.because)


@dataclass(frozen=True)
class Change:
    """What to do to jobs, one by one or in bulk, and how to describe it."""

    verb: str
    done: str
    one: Callable[[UUID], Awaitable[Job]]
    many: Callable[..., AsyncIterator[Progress]]
    describe: Callable[[UUID, Job], str]
    audit: Audited
    unless_requeued: bool = False
    where: str = ""  # such as " in queue mail"


async def change(
    app: Holdfast, how: Change, choice: dict[str, Any], states: Sequence[State] = ()
) -> int:
    """Change the jobs that `choice_options` chose; `states` applies if --state is not given."""
    job_ids = choice["job_ids"]
    filtered = any(choice[name] for name in ("states", *FILTERS))
    if choice["every"]:
        if job_ids:
            raise click.UsageError("pass job IDs or --all, not both")
        return await change_all(app, how, make_filter(choice, states), choice)
    if filtered and job_ids:
        raise click.UsageError("pass job IDs, or --all with filters, not both")
    if not job_ids:
        raise click.UsageError(
            f"add --all to {how.verb} every matching job"
            if filtered
            else "no jobs given; pass job IDs or --all"
        )
    if choice["dry_run"] or choice["pace"]:
        raise click.UsageError("--dry-run and --pace require --all")
    return await _change_ids(app, how, job_ids, as_json=choice["as_json"])


async def _change_ids(
    app: Holdfast, change: Change, job_ids: Sequence[UUID], *, as_json: bool
) -> int:
    """Change these jobs one by one; report those that can't be changed, and continue."""
    code = 0
    async with app:
        for job_id in job_ids:
            try:
                async with change.audit.recorded(app, str(job_id), 1):
                    job = await change.one(job_id)
            except (JobNotFound, WrongState) as error:
                again = isinstance(error, AlreadyRequeued)
                say(f"{error} (use --again to requeue it anyway)" if again else str(error))
                code = FAILED_CODE
                continue
            if as_json:
                display.print_json_lines([job])
            else:
                click.echo(change.describe(job_id, job))
    return code


async def change_all(app: Holdfast, change: Change, filter: Filter, choice: dict[str, Any]) -> int:
    """Change all jobs that match now, in steps; skip those that have changed in the meantime."""
    async with app:
        chosen = await app.jobs.choose(filter, unless_requeued=change.unless_requeued)
        skipped = _skipped(chosen.requeued_already)
        what = f"{change.verb} {count_jobs(len(chosen.ids))}{change.where} on {app.url_shown}"
        if choice["dry_run"]:
            _preview(f"would {what}{skipped}; nothing was changed", change, chosen, choice)
            return 0
        if not chosen.ids:
            say(f"no jobs{change.where} to {change.verb}{skipped}")
            return 0
        if not choice["sure"]:
            confirm(f"{what}{skipped}?")
        async with change.audit.recorded(app, _all_that(filter), len(chosen.ids)):
            progress = await _follow(change, chosen, choice["pace"], as_json=choice["as_json"])
    changed = f"{change.done} {count_jobs(progress.changed)}{change.where}"
    moved_on = f"; {progress.moved_on:,} had changed in the meantime" if progress.moved_on else ""
    say(changed + moved_on + _skipped(chosen.requeued_already + progress.requeued_already))
    return 0


async def _follow(
    change: Change, chosen: Choice, jobs_per_second: float | None, *, as_json: bool
) -> Progress:
    """Make the change and show its progress; if interrupted, say how far it came."""
    progress = Progress(len(chosen.ids))
    with Bar(change.verb, len(chosen.ids)) as bar:
        try:
            async for progress in change.many(chosen.ids, jobs_per_second=jobs_per_second):
                if as_json:
                    display.print_json_lines(progress.jobs)
                bar.show(progress.done)
        except asyncio.CancelledError:
            say(
                f"{change.done} at least {progress.changed:,} of {count_jobs(progress.total)};"
                " run the same command again to continue"
            )
            raise
    return progress


def _all_that(filter: Filter) -> str:
    """The filter for the audit log, for example "all with states=queued,running queue=mail"."""
    words = []
    for name, value in msgspec.structs.asdict(filter).items():
        if value:
            written = ",".join(value) if name == "states" else value
            words.append(f"{name}={written}")
    return " ".join(["all with", *words])


def _preview(summary: str, change: Change, chosen: Choice, choice: dict[str, Any]) -> None:
    if choice["as_json"]:
        would = {
            "would": change.verb,
            "jobs": len(chosen.ids),
            "requeued_already": chosen.requeued_already,
            "sample": [str(job.id) for job in chosen.sample],
        }
        click.echo(json.dumps(would))
        return
    if chosen.sample:
        display.print_jobs(chosen.sample, dead=True)
    say(summary)


def _skipped(requeued_already: int) -> str:
    if not requeued_already:
        return ""
    return f"; {requeued_already:,} already requeued (use --again to include them)"


def confirm(question: str) -> None:
    if not interactive():
        raise click.UsageError(f"{question} Not a terminal; pass --yes to confirm")
    # The event loop's handler for Ctrl-C would not interrupt the prompt.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        agreed = click.confirm(question, err=True)
    finally:
        signal.signal(signal.SIGINT, handler)
    if not agreed:
        raise click.ClickException("nothing was changed")


def count_jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


class Bar:
    """A progress bar that appears only if the work takes longer than a second."""

    def __init__(self, title: str, total: int) -> None:
        self._progress = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(title, total=total)
        self._seam = Seam()
        self._began = self._seam.monotonic()
        self._shown = False

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._shown:
            self._progress.stop()

    def show(self, done: int, total: int | None = None) -> None:
        self._progress.update(self._task, completed=done, total=total)
        waited = self._seam.monotonic() - self._began
        if not self._shown and waited > PROGRESS_AFTER_SECONDS and interactive():
            self._progress.start()
            self._shown = True


def describe_cancel(job_id: UUID, _job: Job) -> str:
    return f"canceled {job_id}"


def describe_requeue(old_id: UUID, job: Job) -> str:
    """Name the new job of a requeue; say how many attempts are used."""
    used = f"{job.attempts} of {job.max_attempts} attempts used"
    if job.id == old_id:
        return f"{old_id} is due now; {used} (unchanged)"
    return f"requeued {old_id} as {job.id}: {used}, due now, no idempotency key or expiry"
