"""`holdfast jobs`: enqueue, inspect, cancel and retry jobs."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.enqueue import enqueue
from holdfast.cli.operator import operator_options
from holdfast.cli.selection import (
    again_option,
    choice_options,
    filter_options,
    id_argument,
    json_option,
    list_options,
    make_filter,
)
from holdfast.cli.session import Group
from holdfast.cli.show import list_jobs, show_job
from holdfast.cli.target import on_database, on_same_target
from holdfast.domain.states import State
from holdfast.observability.logs import one_line


@click.group(cls=Group)
def jobs() -> None:
    """Enqueue, inspect, cancel and retry jobs.

    \b
    Example:
      holdfast jobs list --state running
    """


jobs.add_command(enqueue)


@jobs.command("list")
@filter_options()
@list_options
@on_database
async def list_command(
    app: Holdfast, limit: int, after: UUID | None, as_json: bool, **filters: Any
) -> None:
    """List jobs, newest first.

    \b
    Examples:
      holdfast jobs list --app app:hf
      holdfast jobs list --state queued --state running --queue mail
      holdfast jobs list --correlation-id order-17
      holdfast jobs list --name resize --limit 1000 --json | jq .id
    """
    chosen = make_filter(filters)
    await list_jobs(app, chosen, limit=limit, after=after, as_json=as_json, dead=False)


@jobs.command()
@id_argument
@json_option
@on_database
async def show(app: Holdfast, job_id: UUID, as_json: bool) -> None:
    """Show one job in full.

    Includes its times, arguments, result, error, attempts, parent and children.

    \b
    Example:
      holdfast jobs show 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    await show_job(app, job_id, as_json=as_json)


@jobs.command()
@id_argument
@json_option
@on_database
async def why(app: Holdfast, job_id: UUID, as_json: bool) -> None:
    """Explain in one sentence why a job is not running.

    \b
    Example:
      holdfast jobs why 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    async with app:
        found = await app.jobs.why(job_id)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        click.echo(on_same_target(one_line(found.sentence)))


@jobs.command()
@choice_options()
@operator_options
@on_database
async def cancel(app: Holdfast, by: str, because: str | None, **choice: Any) -> int:
    """Cancel waiting and running jobs.

    \b
    Examples:
      holdfast jobs cancel 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e --because "wrong file"
      holdfast jobs cancel --all --queue mail --tag newsletter
      holdfast jobs cancel --all --name resize --pace 50/s --yes
    """
    from holdfast.cli.change import Audited, Change, change, describe_cancel

    how = Change(
        "cancel",
        "canceled",
        partial(app.jobs.cancel, by=by, because=because),
        partial(app.jobs.cancel_many, by=by, because=because),
        describe_cancel,
        audit=Audited("job.cancel", by=by, because=because),
    )
    return await change(app, how, choice, (State.QUEUED, State.RUNNING))


@jobs.command()
@choice_options()
@again_option
@operator_options
@on_database
async def retry(app: Holdfast, again: bool, by: str, because: str | None, **choice: Any) -> int:
    """Make waiting jobs due now; enqueue finished ones again.

    A waiting job keeps its attempts and its error; only its due time changes. A finished job does
    not change; the new one starts at attempt 0, without idempotency key or expiry.

    \b
    Examples:
      holdfast jobs retry 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
      holdfast jobs retry --all --state queued --queue mail
      holdfast jobs retry --all --state canceled --since 2h --dry-run
    """
    from holdfast.cli.change import Audited, Change, change, describe_requeue

    if choice["every"] and not choice["states"]:
        raise click.UsageError(
            "--all requires --state: queued jobs become due now, finished ones are enqueued again"
        )
    how = Change(
        "retry",
        "retried",
        partial(app.jobs.retry, again=again),
        partial(app.jobs.retry_many, again=again),
        describe_requeue,
        unless_requeued=not again,
        audit=Audited("job.retry", by=by, because=because),
    )
    return await change(app, how, choice)
