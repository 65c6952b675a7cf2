"""The commands that `jobs` and `dead` share: list jobs, and show one in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.errors import NotInThisStore
from holdfast.domain.job import Attempt, Filter, Job
from holdfast.domain.limits import PAGE_LOOK_MAX, PAGE_ROWS_MAX, PAGE_STEPS_MAX
from holdfast.domain.states import State
from holdfast.operations.jobs import pages
from holdfast.runtime.seam import Seam

CHILDREN_COUNTED_MAX = 100


async def list_jobs(
    app: Holdfast, filter: Filter, *, limit: int, after: UUID | None, as_json: bool, dead: bool
) -> None:
    from rich.console import Console

    from holdfast.cli import display

    shown: list[Job] = []
    requeued: dict[UUID, UUID] = {}
    more: UUID | None = None
    examined = 0
    status = Console(stderr=True).status("")  # visible in a terminal only
    async with app:
        async for page in pages(app.jobs, filter, limit, after, rows_max=PAGE_ROWS_MAX):
            more = page.after
            requeued |= await app.jobs.requeued(page.jobs)
            if as_json:
                display.print_json_lines(_with_copies(page.jobs, requeued))
            else:
                shown.extend(page.jobs)
            examined += PAGE_STEPS_MAX * PAGE_LOOK_MAX
            if more and len(shown) < limit:
                status.update(f"examined {examined:,} jobs, found {len(shown):,}; Ctrl-C to stop")
                status.start()
        parked_by = await _parked_by(app, shown)
    status.stop()
    if as_json:
        return
    if not shown:
        click.echo("no jobs", err=True)
        return
    display.print_jobs(shown, dead=dead, parked_by=parked_by, requeued=requeued)
    if more:
        click.echo(f"more jobs: --after {more}", err=True)


def _with_copies(jobs: Sequence[Job], requeued: Mapping[UUID, UUID]) -> list[dict[str, object]]:
    return [
        msgspec.to_builtins(job, enc_hook=str) | {"requeued_as": requeued.get(job.id)}
        for job in jobs
    ]


async def _parked_by(app: Holdfast, jobs: Sequence[Job]) -> dict[UUID, BreakerStatus]:
    """Map the parked ones among these jobs to their open breakers."""
    now = Seam().now()
    due = [job for job in jobs if job.breaker and job.state is State.QUEUED and job.run_at <= now]
    if not due:
        return {}
    try:
        open_now = {each.key: each for each in await app.breakers.list() if each.is_open}
    except NotInThisStore:
        return {}
    return {job.id: open_now[job.breaker] for job in due if job.breaker in open_now}


class Details(NamedTuple):
    """A job, and what belongs to it; of its children, the newest."""

    job: Job
    attempts: Sequence[Attempt]
    requeued_as: UUID | None
    children: Sequence[Job]
    parked_by: BreakerStatus | None = None


async def read_details(app: Holdfast, job_id: UUID) -> Details:
    job = await app.get(job_id)
    children = await app.jobs.list(Filter(parent_id=job_id), CHILDREN_COUNTED_MAX)
    return Details(
        job=job,
        attempts=await app.jobs.attempts(job_id),
        requeued_as=(await app.jobs.requeued([job])).get(job_id),
        children=children.jobs,
        parked_by=(await _parked_by(app, [job])).get(job_id),
    )


async def show_job(app: Holdfast, job_id: UUID, *, as_json: bool) -> None:
    from holdfast.cli.details import print_job, print_json_object

    async with app:
        details = await read_details(app, job_id)
    (print_json_object if as_json else print_job)(details)
