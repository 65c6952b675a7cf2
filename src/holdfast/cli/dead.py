"""`holdfast dead`: jobs that ended badly, and how they get another chance."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import click

from holdfast.cli.listing import list_jobs, list_options, show_job
from holdfast.cli.selection import DEAD_STATES, choice_options, filter_options, job_id, make_filter
from holdfast.cli.session import Group, run
from holdfast.cli.target import find_existing, target_options
from holdfast.domain.errors import WrongState
from holdfast.domain.job import Job


@click.group(cls=Group)
def dead() -> None:
    """See jobs that ended as dead (attempts used up) or failed (permanently), and requeue them.

    \b
    Example:
      holdfast dead list
    """


@dead.command("list")
@filter_options(DEAD_STATES)
@list_options
@target_options
def list_command(
    app: str | None,
    database: str | None,
    limit: int,
    after: UUID | None,
    as_json: bool,
    **filters: Any,
) -> None:
    """List dead and failed jobs, newest first.

    \b
    Examples:
      holdfast dead list --app app:hf
      holdfast dead list --queue mail --json
    """
    found = find_existing(app, database)
    chosen = make_filter(filters, DEAD_STATES)
    run(list_jobs(found, chosen, limit=limit, after=after, as_json=as_json, dead=True))


@dead.command()
@click.argument("wanted", metavar="ID", type=job_id)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@target_options
def show(app: str | None, database: str | None, wanted: UUID, as_json: bool) -> None:
    """Show all about one job, like `holdfast jobs show`.

    \b
    Example:
      holdfast dead show 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    run(show_job(find_existing(app, database), wanted, as_json=as_json))


@dead.command()
@choice_options(DEAD_STATES)
@target_options
def requeue(app: str | None, database: str | None, **choice: Any) -> int:
    """Enqueue dead and failed jobs anew; the old ones stay as they are.

    \b
    Examples:
      holdfast dead requeue 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
      holdfast dead requeue --all --queue mail --yes
    """
    from holdfast.cli.changing import Change, change

    found = find_existing(app, database)

    async def requeue_dead(job_id: UUID) -> Job:
        job = await found.get(job_id)
        if job.state not in DEAD_STATES:
            raise WrongState(
                f"job {job_id} is {job.state}, not dead or failed; see: holdfast jobs retry"
            )
        return await found.requeue(job_id)

    how = Change(
        "requeue",
        "requeued",
        requeue_dead,
        lambda old_id, job: f"requeued {old_id} as {job.id}",
    )
    return run(change(found, how, choice, DEAD_STATES))
