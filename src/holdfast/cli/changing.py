"""Commands that change jobs: by id, or all that match, after asking."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.app import Holdfast
from holdfast.cli import display
from holdfast.cli.selection import make_filter, pages
from holdfast.cli.session import FAILED_CODE, interactive, say
from holdfast.domain.errors import JobNotFound, WrongState
from holdfast.domain.job import Filter, Job
from holdfast.domain.states import State
from holdfast.seam import Seam

TOGETHER = 50
PROGRESS_AFTER_SECONDS = 1.0


@dataclass(frozen=True)
class Change:
    """What is done to each job, and how it is told."""

    verb: str
    done: str
    apply: Callable[[UUID], Awaitable[Job]]
    told: Callable[[UUID, Job], str]


async def change(
    app: Holdfast, how: Change, choice: dict[str, Any], states: Sequence[State] = ()
) -> int:
    """Change the jobs of `choice_options`; with --all only those in `states`, unless named."""
    job_ids, as_json = choice["job_ids"], choice["as_json"]
    filtered = any(choice[name] for name in ("states", "queue", "name", "tenant", "tag"))
    if choice["every"]:
        if job_ids:
            raise click.UsageError("give ids or --all, not both")
        chosen = make_filter(choice, states)
        return await _change_all(app, how, chosen, sure=choice["sure"], as_json=as_json)
    if filtered and job_ids:
        raise click.UsageError("give ids or filters with --all, not both")
    if not job_ids:
        raise click.UsageError(
            f"add --all to {how.verb} all that match"
            if filtered
            else "which jobs? Give ids, or --all"
        )
    return await _change_ids(app, how, job_ids, as_json=as_json)


async def _change_ids(
    app: Holdfast, change: Change, job_ids: Sequence[UUID], *, as_json: bool
) -> int:
    """Change these jobs, one after the other, and go on behind those that can't be changed."""
    code = 0
    async with app:
        for job_id in job_ids:
            try:
                job = await change.apply(job_id)
            except (JobNotFound, WrongState) as error:
                say(str(error))
                code = FAILED_CODE
                continue
            if as_json:
                display.print_json_lines([job])
            else:
                click.echo(change.told(job_id, job))
    return code


async def _change_all(
    app: Holdfast, change: Change, filter: Filter, *, sure: bool, as_json: bool
) -> int:
    """Change all that match now, in batches; those that moved on meanwhile are left alone."""
    async with app:
        ids = [job.id async for page in pages(app, filter) for job in page.jobs]
        if not ids:
            say(f"there are no jobs to {change.verb}")
            return 0
        _confirm(f"{change.verb} {_jobs(len(ids))} in {app.url_shown}?", sure)
        changed: list[Job] = []
        with _Bar(change.verb, len(ids)) as bar:
            for start in range(0, len(ids), TOGETHER):
                batch = ids[start : start + TOGETHER]
                changed += await _change_batch(change, batch)
                bar.advance(len(batch))
    if as_json:
        display.print_json_lines(changed)
    left = len(ids) - len(changed)
    say(f"{change.done} {_jobs(len(changed))}" + (f"; {left} had moved on" if left else ""))
    return 0


async def _change_batch(change: Change, job_ids: Sequence[UUID]) -> list[Job]:
    answers = await asyncio.gather(*map(change.apply, job_ids), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, JobNotFound | WrongState):
            raise answer
    return [answer for answer in answers if isinstance(answer, Job)]


def _confirm(question: str, sure: bool) -> None:
    if sure:
        return
    if not interactive():
        raise click.UsageError(f"{question} Nobody can be asked here: add --yes")
    # The event loop would keep Ctrl-C for itself, and wait for an answer all the same.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        agreed = click.confirm(question, err=True)
    finally:
        signal.signal(signal.SIGINT, handler)
    if not agreed:
        raise click.ClickException("nothing was changed")


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


class _Bar:
    """A progress bar that appears only when the work takes longer than a moment."""

    def __init__(self, title: str, total: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(title, total=total)
        self._seam = Seam()
        self._began = self._seam.monotonic()
        self._shown = False

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._shown:
            self._progress.stop()

    def advance(self, count: int) -> None:
        self._progress.advance(self._task, count)
        waited = self._seam.monotonic() - self._began
        if not self._shown and waited > PROGRESS_AFTER_SECONDS and interactive():
            self._progress.start()
            self._shown = True
