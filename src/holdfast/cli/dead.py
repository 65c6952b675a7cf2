"""`holdfast dead`: inspect and requeue jobs that failed or died."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import click

from holdfast.app import Holdfast
from holdfast.cli.operator import operator_options
from holdfast.cli.selection import (
    again_option,
    choice_options,
    filter_options,
    id_argument,
    json_lines_option,
    json_option,
    limit_option,
    list_options,
    make_filter,
)
from holdfast.cli.session import Group, say
from holdfast.cli.show import list_jobs, show_job
from holdfast.cli.target import on_database
from holdfast.domain.job import Job
from holdfast.domain.limits import GROUPS_LOOK_MAX
from holdfast.domain.states import DEAD_STATES, UNSUCCESSFUL


@click.group(cls=Group)
def dead() -> None:
    """Inspect and requeue dead and failed jobs.

    A dead job has used up its attempts; a failed one ended with a permanent error.

    \b
    Example:
      holdfast dead list
    """


@dead.command("list")
@filter_options(UNSUCCESSFUL)
@list_options
@on_database
async def list_command(
    app: Holdfast, limit: int, after: UUID | None, as_json: bool, **filters: Any
) -> None:
    """List dead and failed jobs, newest first.

    \b
    Examples:
      holdfast dead list --app app:hf
      holdfast dead list --queue mail --json
    """
    chosen = make_filter(filters, DEAD_STATES)
    await list_jobs(app, chosen, limit=limit, after=after, as_json=as_json, dead=True)


@dead.command()
@id_argument
@json_option
@on_database
async def show(app: Holdfast, job_id: UUID, as_json: bool) -> None:
    """Show one job in full.

    Includes why it ended, its arguments and attempts, and the job that it was requeued as.

    \b
    Example:
      holdfast dead show 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    await show_job(app, job_id, as_json=as_json)


@dead.command()
@filter_options(UNSUCCESSFUL)
@click.option(
    "--look",
    "look_max",
    type=click.IntRange(min=1),
    metavar="N",
    default=GROUPS_LOOK_MAX,
    show_default=True,
    help="How many of the newest jobs to examine.",
)
@limit_option("groups")
@json_lines_option
@on_database
async def groups(app: Holdfast, look_max: int, limit: int, as_json: bool, **filters: Any) -> None:
    """Group dead and failed jobs by error, largest group first.

    Jobs are in one group if their names, error codes and first lines of the message match. IDs,
    numbers, quoted values and paths in the message are ignored and shown as *.

    \b
    Examples:
      holdfast dead groups --since 2h
      holdfast dead requeue --all --fingerprint 3f9c2ab01d77 --dry-run
    """
    from holdfast.cli import display

    async with app:
        found = await app.dead.groups(make_filter(filters, DEAD_STATES), look_max=look_max)
    display.print_all(found.groups[:limit], display.print_groups, "no jobs", as_json=as_json)
    if not found.is_all:
        say(
            f"examined only the newest {found.looked_at:,} jobs; raise --look to examine more,"
            " or narrow the search with --since"
        )
    if (hidden := len(found.groups) - limit) > 0:
        say(f"{hidden:,} smaller group{'s' if hidden > 1 else ''} not shown; raise --limit")


@dead.command()
@choice_options(UNSUCCESSFUL)
@again_option
@click.option(
    "--set",
    "texts",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change an argument: a number, true, false, null, or text.",
)
@click.option(
    "--set-json",
    "values",
    multiple=True,
    metavar="NAME=JSON",
    help="Change an argument; the value is JSON.",
)
@click.option("--edit", "in_editor", is_flag=True, help="Edit the arguments in $EDITOR.")
@operator_options
@on_database
async def requeue(
    app: Holdfast,
    again: bool,
    texts: tuple[str, ...],
    values: tuple[str, ...],
    in_editor: bool,
    by: str,
    because: str | None,
    **choice: Any,
) -> int:
    """Enqueue dead and failed jobs again, as new jobs.

    The new job starts at attempt 0, without idempotency key or expiry, and refers to the old one,
    which does not change. Jobs that were already requeued are skipped unless you pass --again.

    \b
    Examples:
      holdfast dead requeue 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
      holdfast dead requeue 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e --set width=640 --app app:hf
      holdfast dead requeue --all --queue mail --code TIMEOUT --pace 50/s --yes
    """
    from holdfast.cli.change import Audited, Change, change, describe_requeue
    from holdfast.cli.edit import edited

    edits = texts or values or in_editor
    if edits and len(choice["job_ids"]) != 1:
        raise click.UsageError("--set, --set-json and --edit work on one job; give its ID")

    async def requeue_one(job_id: UUID) -> Job:
        arguments = None
        if edits:
            arguments = edited(app, await app.get(job_id), texts, values, in_editor=in_editor)
        return await app.dead.requeue(job_id, arguments=arguments, again=again)

    how = Change(
        "requeue",
        "requeued",
        requeue_one,
        partial(app.dead.requeue_many, again=again),
        describe_requeue,
        unless_requeued=not again,
        audit=Audited("job.requeue", by=by, because=because),
    )
    return await change(app, how, choice, DEAD_STATES)
