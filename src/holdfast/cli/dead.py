"""`holdfast dead`: inspect and requeue jobs that failed or died."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import click

from holdfast.app import Holdfast
from holdfast.cli.operator import operator_option, operator_options
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
from holdfast.cli.session import Group
from holdfast.cli.show import list_jobs, show_job
from holdfast.cli.target import on_database
from holdfast.domain.groups import GroupOrder, GroupState
from holdfast.domain.job import Job
from holdfast.domain.limits import GROUPS_LOOK_MAX
from holdfast.domain.states import DEAD_STATES, UNSUCCESSFUL

fingerprints_argument = click.argument(
    "fingerprints", metavar="FINGERPRINT...", nargs=-1, required=True
)
note_option = click.option("--note", metavar="TEXT", help="Note, shown to other operators.")


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
    "--group-state",
    type=click.Choice([state.value for state in GroupState]),
    help="Only groups in this state.",
)
@click.option("--text", help="Only groups with this text in their name, code or error.")
@click.option(
    "--order",
    type=click.Choice([order.value for order in GroupOrder]),
    default=GroupOrder.LARGEST.value,
    show_default=True,
    help="Which groups to show first.",
)
@click.option(
    "--look",
    "look_max",
    type=click.IntRange(min=1),
    metavar="N",
    help="Examine only the newest N jobs that match the filters. Default with filters for jobs:"
    f" {GROUPS_LOOK_MAX:,}.",
)
@limit_option("groups")
@json_lines_option
@on_database
async def groups(
    app: Holdfast, look_max: int | None, limit: int, as_json: bool, **options: Any
) -> None:
    """Group dead and failed jobs by error.

    Jobs are in one group if their names, error codes and first lines of the message match. IDs,
    numbers, quoted values and paths in the message are ignored and shown as *.

    A group is new until you acknowledge or resolve it. When a job of a resolved group fails, the
    group is back. With filters for jobs, such as --since, this counts only the jobs that match.

    \b
    Examples:
      holdfast dead groups
      holdfast dead groups --since 2h
      holdfast dead requeue --all --fingerprint 3f9c2ab01d77 --dry-run
    """
    from holdfast.cli.groups import JOB_FILTERS, list_groups, list_groups_of_jobs

    async with app:
        if look_max is None and not any(options[name] for name in JOB_FILTERS):
            await list_groups(app, options, limit=limit, as_json=as_json)
        else:
            await list_groups_of_jobs(
                app, options, look_max or GROUPS_LOOK_MAX, limit=limit, as_json=as_json
            )


@dead.command()
@fingerprints_argument
@note_option
@operator_option
@on_database
async def acknowledge(
    app: Holdfast, fingerprints: tuple[str, ...], note: str | None, by: str
) -> None:
    """Note that somebody works on groups of errors.

    \b
    Example:
      holdfast dead acknowledge 3f9c2ab01d77 --note "the mail server is down"
    """
    from holdfast.cli.groups import change_groups

    await change_groups(app, "acknowledge", app.dead.acknowledge, fingerprints, by, note)


@dead.command()
@fingerprints_argument
@click.option("--version", metavar="V", help="The version of the app that fixes it, like 2.4.1.")
@note_option
@operator_option
@on_database
async def resolve(
    app: Holdfast, fingerprints: tuple[str, ...], version: str | None, note: str | None, by: str
) -> None:
    """Note that the cause of groups of errors is gone.

    A job that fails later brings its group back, unless it ran in an older version of the app.

    \b
    Example:
      holdfast dead resolve 3f9c2ab01d77 --version 2.4.1
    """
    from holdfast.cli.groups import change_groups

    change = partial(app.dead.resolve, version=version)
    await change_groups(app, "resolve", change, fingerprints, by, note)


@dead.command()
@fingerprints_argument
@note_option
@operator_option
@on_database
async def reopen(app: Holdfast, fingerprints: tuple[str, ...], note: str | None, by: str) -> None:
    """Make groups of errors new again.

    \b
    Example:
      holdfast dead reopen 3f9c2ab01d77
    """
    from holdfast.cli.groups import change_groups

    await change_groups(app, "reopen", app.dead.reopen, fingerprints, by, note)


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
