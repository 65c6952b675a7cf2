"""`holdfast dead`: jobs that ended badly, and how they get another chance."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import click

from holdfast.cli.listing import list_jobs, list_options, show_job
from holdfast.cli.selection import (
    DEAD_STATES,
    UNSUCCESSFUL,
    again_option,
    choice_options,
    filter_options,
    job_id,
    make_filter,
)
from holdfast.cli.session import Group, run
from holdfast.cli.target import find_existing, target_options
from holdfast.domain.errors import WrongState
from holdfast.domain.job import Job
from holdfast.domain.limits import GROUPS_LOOK_MAX


@click.group(cls=Group)
def dead() -> None:
    """See jobs that ended as dead (attempts used up) or failed (permanently), and requeue them.

    \b
    Example:
      holdfast dead list
    """


@dead.command("list")
@filter_options(UNSUCCESSFUL)
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
    """Show all about one job: why it ended, its arguments, its attempts, what it was requeued as.

    \b
    Example:
      holdfast dead show 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    run(show_job(find_existing(app, database), wanted, as_json=as_json))


@dead.command()
@filter_options(UNSUCCESSFUL)
@click.option(
    "--look",
    "look_max",
    type=click.IntRange(min=1),
    default=GROUPS_LOOK_MAX,
    show_default=True,
    help="Look at so many of the newest jobs.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many groups."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@target_options
def groups(
    app: str | None,
    database: str | None,
    look_max: int,
    limit: int,
    as_json: bool,
    **filters: Any,
) -> None:
    """Group dead and failed jobs by what went wrong, largest group first.

    Errors count as the same if name, code and the first line of the text are, whatever the ids,
    numbers, quoted values and paths in it: those are shown as *.

    \b
    Examples:
      holdfast dead groups --since 2h
      holdfast dead requeue --all --fingerprint 3f9c2ab01d77 --dry-run
    """
    from holdfast.cli.grouping import show_groups

    found = find_existing(app, database)
    chosen = make_filter(filters, DEAD_STATES)
    run(show_groups(found, chosen, look_max=look_max, limit=limit, as_json=as_json))


@dead.command()
@choice_options(UNSUCCESSFUL)
@again_option
@click.option(
    "--set",
    "texts",
    multiple=True,
    metavar="NAME=VALUE",
    help="Give this argument another value: a number, true, false, null, or else a text.",
)
@click.option(
    "--set-json",
    "values",
    multiple=True,
    metavar="NAME=JSON",
    help="Give this argument another value, written as JSON.",
)
@click.option("--edit", is_flag=True, help="Edit the arguments in $EDITOR.")
@target_options
def requeue(
    app: str | None,
    database: str | None,
    again: bool,
    texts: tuple[str, ...],
    values: tuple[str, ...],
    edit: bool,
    **choice: Any,
) -> int:
    """Enqueue dead and failed jobs anew; the old ones stay as they are.

    The new job begins at attempt 0, without idempotency key and expiry, and names the old one. What
    has been requeued already is left out unless --again.

    \b
    Examples:
      holdfast dead requeue 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
      holdfast dead requeue 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e --set width=640 --app app:hf
      holdfast dead requeue --all --queue mail --code TIMEOUT --pace 50/s --yes
    """
    from holdfast.cli.changing import Change, change, told_requeue
    from holdfast.cli.editing import Edit

    found = find_existing(app, database)
    editing = Edit(texts, values, edit)
    if editing.wanted and len(choice["job_ids"]) != 1:
        raise click.UsageError("--set, --set-json and --edit are for one job: give its id")

    async def requeue_dead(job_id: UUID) -> Job:
        job = await found.get(job_id)
        if job.state not in UNSUCCESSFUL:
            raise WrongState(
                f"job {job_id} is {job.state}, not dead or failed; see: holdfast jobs retry"
            )
        arguments = editing.apply(found, job) if editing.wanted else None
        return await found.requeue(job_id, arguments=arguments, again=again)

    how = Change(
        "requeue",
        "requeued",
        requeue_dead,
        partial(found.requeue_many, again=again),
        told_requeue,
        unless_requeued=not again,
    )
    return run(change(found, how, choice, DEAD_STATES))
