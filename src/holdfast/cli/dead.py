"""`holdfast dead`: inspect and requeue jobs that failed or died."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import click

from holdfast.cli.selection import (
    again_option,
    choice_options,
    filter_options,
    job_id,
    make_filter,
)
from holdfast.cli.session import Group, run
from holdfast.cli.show import list_jobs, list_options, show_job
from holdfast.cli.target import find_existing, target_options
from holdfast.domain.job import Job
from holdfast.domain.limits import GROUPS_LOOK_MAX
from holdfast.domain.states import DEAD_STATES, UNSUCCESSFUL


@click.group(cls=Group)
def dead() -> None:
    """Inspect and requeue jobs that are dead (out of attempts) or failed (permanent error).

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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@target_options
def show(app: str | None, database: str | None, wanted: UUID, as_json: bool) -> None:
    """Show one job in full: why it ended, its arguments and attempts, what it was requeued as.

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
    help="How many of the newest jobs to examine.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Maximum number of groups.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@target_options
def groups(
    app: str | None,
    database: str | None,
    look_max: int,
    limit: int,
    as_json: bool,
    **filters: Any,
) -> None:
    """Group dead and failed jobs by error, largest group first.

    Errors are the same if job name, error code and the first line of the message match. IDs,
    numbers, quoted values and paths in the message are ignored and shown as *.

    \b
    Examples:
      holdfast dead groups --since 2h
      holdfast dead requeue --all --fingerprint 3f9c2ab01d77 --dry-run
    """
    from holdfast.cli.groups import show_groups

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
    help="Change an argument: a number, true, false, null, or text.",
)
@click.option(
    "--set-json",
    "values",
    multiple=True,
    metavar="NAME=JSON",
    help="Change an argument; the value is JSON.",
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
    """Enqueue dead and failed jobs again as new jobs; the old ones stay as they are.

    The new job starts at attempt 0, without idempotency key or expiry, and refers to the old one.
    Jobs that were already requeued are skipped unless you pass --again.

    \b
    Examples:
      holdfast dead requeue 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
      holdfast dead requeue 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e --set width=640 --app app:hf
      holdfast dead requeue --all --queue mail --code TIMEOUT --pace 50/s --yes
    """
    from holdfast.cli.change import Change, change, told_requeue
    from holdfast.cli.edit import Edit

    found = find_existing(app, database)
    editing = Edit(texts, values, edit)
    if editing.wanted and len(choice["job_ids"]) != 1:
        raise click.UsageError("--set, --set-json and --edit work on one job; give its ID")

    async def requeue_dead(job_id: UUID) -> Job:
        arguments = editing.apply(found, await found.get(job_id)) if editing.wanted else None
        return await found.dead.requeue(job_id, arguments=arguments, again=again)

    how = Change(
        "requeue",
        "requeued",
        requeue_dead,
        partial(found.dead.requeue_many, again=again),
        told_requeue,
        unless_requeued=not again,
    )
    return run(change(found, how, choice, DEAD_STATES))
