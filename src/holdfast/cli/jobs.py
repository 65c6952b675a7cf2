"""`holdfast jobs`: inspect, cancel and retry jobs."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import click

from holdfast.cli.selection import again_option, choice_options, filter_options, job_id, make_filter
from holdfast.cli.session import Group, run
from holdfast.cli.show import explain_job, list_jobs, list_options, show_job
from holdfast.cli.target import find_existing, target_options
from holdfast.domain.states import State


@click.group(cls=Group)
def jobs() -> None:
    """Inspect, cancel and retry jobs.

    \b
    Example:
      holdfast jobs list --state running
    """


@jobs.command("list")
@filter_options()
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
    """List jobs, newest first.

    \b
    Examples:
      holdfast jobs list --app app:hf
      holdfast jobs list --state queued --state running --queue mail
      holdfast jobs list --name resize --limit 1000 --json | jq .id
    """
    found = find_existing(app, database)
    chosen = make_filter(filters)
    run(list_jobs(found, chosen, limit=limit, after=after, as_json=as_json, dead=False))


@jobs.command()
@click.argument("wanted", metavar="ID", type=job_id)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@target_options
def show(app: str | None, database: str | None, wanted: UUID, as_json: bool) -> None:
    """Show one job in full: times, arguments, result, error and failed attempts.

    \b
    Example:
      holdfast jobs show 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    run(show_job(find_existing(app, database), wanted, as_json=as_json))


@jobs.command()
@click.argument("wanted", metavar="ID", type=job_id)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@target_options
def why(app: str | None, database: str | None, wanted: UUID, as_json: bool) -> None:
    """Explain in one sentence why a job is not running.

    \b
    Example:
      holdfast jobs why 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    run(explain_job(find_existing(app, database), wanted, as_json=as_json))


@jobs.command()
@choice_options()
@target_options
def cancel(app: str | None, database: str | None, **choice: Any) -> int:
    """Cancel waiting and running jobs.

    \b
    Examples:
      holdfast jobs cancel 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
      holdfast jobs cancel --all --queue mail --tag newsletter
      holdfast jobs cancel --all --name resize --pace 50/s --yes
    """
    from holdfast.cli.change import Change, change

    found = find_existing(app, database)
    how = Change(
        "cancel",
        "canceled",
        found.jobs.cancel,
        found.jobs.cancel_many,
        lambda old_id, _: f"canceled {old_id}",
    )
    return run(change(found, how, choice, (State.QUEUED, State.RUNNING)))


@jobs.command()
@choice_options()
@again_option
@target_options
def retry(app: str | None, database: str | None, again: bool, **choice: Any) -> int:
    """Make waiting jobs due now; enqueue finished ones again.

    A waiting job keeps its attempts and its error; only its due time changes. A finished job stays
    as it is; the new one starts at attempt 0, without idempotency key or expiry.

    \b
    Examples:
      holdfast jobs retry 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
      holdfast jobs retry --all --state queued --queue mail
      holdfast jobs retry --all --state canceled --since 2h --dry-run
    """
    from holdfast.cli.change import Change, change, told_requeue

    if choice["every"] and not choice["states"]:
        raise click.UsageError(
            "--all requires --state: queued jobs become due now, finished ones are enqueued again"
        )
    found = find_existing(app, database)
    how = Change(
        "retry",
        "retried",
        partial(found.jobs.retry, again=again),
        partial(found.jobs.retry_many, again=again),
        told_requeue,
        unless_requeued=not again,
    )
    return run(change(found, how, choice))
