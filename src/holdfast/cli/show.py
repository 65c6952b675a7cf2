"""Reading commands that `jobs` and `dead` share: a list, and all about one job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.selection import job_id, pages
from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.job import Filter, Job
from holdfast.domain.limits import PAGE_LOOK_MAX, PAGE_STEPS_MAX
from holdfast.domain.states import State
from holdfast.observability.logs import one_line
from holdfast.runtime.seam import Seam


async def list_jobs(
    app: Holdfast, filter: Filter, *, limit: int, after: UUID | None, as_json: bool, dead: bool
) -> None:
    from rich.console import Console

    from holdfast.cli import display

    shown: list[Job] = []
    more: UUID | None = None
    looked_at = 0
    # Rich shows this in a terminal only.
    status = Console(stderr=True).status("")
    parked_by: dict[UUID, BreakerStatus] = {}
    async with app:
        async for page in pages(app, filter, limit, after):
            more = page.after
            if as_json:
                display.print_json_lines(page.jobs)
            else:
                shown.extend(page.jobs)
            looked_at += PAGE_STEPS_MAX * PAGE_LOOK_MAX
            if more and len(shown) < limit:
                status.update(f"examined {looked_at:,} jobs, found {len(shown):,}; Ctrl-C to stop")
                status.start()
        parked_by = await _parked_by(app, shown)
    status.stop()
    if as_json:
        return
    if not shown:
        click.echo("no jobs", err=True)
        return
    display.print_jobs(shown, dead=dead, parked_by=parked_by)
    if more:
        click.echo(f"more jobs: --after {more}", err=True)


async def _parked_by(app: Holdfast, jobs: Sequence[Job]) -> dict[UUID, BreakerStatus]:
    """The open breakers that some of these jobs are parked by."""
    now = Seam().now()
    due = [job for job in jobs if job.breaker and job.state is State.QUEUED and job.run_at <= now]
    if not due:
        return {}
    open_now = {each.key: each for each in await app.breakers.list() if each.is_open}
    return {job.id: open_now[job.breaker] for job in due if job.breaker in open_now}


async def show_job(app: Holdfast, job_id: UUID, *, as_json: bool) -> None:
    from holdfast.cli import display

    async with app:
        job = await app.get(job_id)
        attempts = await app.jobs.attempts(job_id)
        requeued_as = await app.jobs.requeued_as(job_id)
        parked_by = (await _parked_by(app, [job])).get(job_id)
    if as_json:
        display.print_json_object(job, attempts, requeued_as, parked_by)
    else:
        display.print_job(job, attempts, requeued_as, parked_by)


async def explain_job(app: Holdfast, job_id: UUID, *, as_json: bool) -> None:
    async with app:
        why = await app.jobs.why(job_id)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(why), indent=2))
    else:
        click.echo(one_line(why.sentence))


def list_options(command: Any) -> Any:
    """Give the command the options of a list."""
    command = click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object per line."
    )(command)
    command = click.option("--after", type=job_id, help="Continue after this job.")(command)
    return click.option(
        "--limit",
        type=click.IntRange(min=1),
        default=20,
        show_default=True,
        help="Maximum number of jobs.",
    )(command)
