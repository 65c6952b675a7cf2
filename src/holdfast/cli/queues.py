"""`holdfast queues`: list, pause, cap, drain and purge queues."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.operator import operator_options
from holdfast.cli.selection import pace
from holdfast.cli.session import ListingGroup, run, say
from holdfast.cli.target import find_existing, target_options
from holdfast.domain.job import Filter
from holdfast.domain.limits import QUEUE_RUNNING_MAX
from holdfast.domain.queues import QueueStatus
from holdfast.domain.states import State
from holdfast.domain.texts import pasted

NO_CAP = "none"


@click.group(cls=ListingGroup)
def queues() -> None:
    """List, pause, cap, drain and purge queues. Lists them if no command is given.

    \b
    Examples:
      holdfast queues
      holdfast queues pause images --because "the disk is full"
    """


@queues.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@target_options
def list_command(app: str | None, database: str | None, as_json: bool) -> None:
    """List queues: jobs waiting and running, the oldest wait, and who paused them.

    \b
    Examples:
      holdfast queues list --app app:hf
      holdfast queues --json | jq .ready
    """
    run(_list_queues(find_existing(app, database), as_json=as_json))


@queues.command()
@click.argument("name")
@operator_options
@target_options
def pause(app: str | None, database: str | None, name: str, by: str, because: str | None) -> None:
    """Stop starting jobs from a queue, on all workers. Running jobs finish; enqueues still work.

    \b
    Examples:
      holdfast queues pause images
      holdfast queues pause images --because "the disk is full"
    """
    run(_pause(find_existing(app, database), name, by, because))


@queues.command()
@click.argument("name")
@target_options
def resume(app: str | None, database: str | None, name: str) -> None:
    """Resume a paused queue.

    \b
    Example:
      holdfast queues resume images
    """
    run(_resume(find_existing(app, database), name))


@queues.command()
@click.argument("name")
@operator_options
@target_options
def drain(app: str | None, database: str | None, name: str, by: str, because: str | None) -> None:
    """Pause a queue and wait until its running jobs finish. It stays paused.

    \b
    Example:
      holdfast queues drain images && deploy && holdfast queues resume images
    """
    run(_drain(find_existing(app, database), name, by, because))


def _running_max(value: str) -> int | None:
    if value == NO_CAP:
        return None
    if not value.isdecimal() or int(value) > QUEUE_RUNNING_MAX:
        raise click.BadParameter(
            f"{value!r} is not a valid cap; use a number from 0 to {QUEUE_RUNNING_MAX}, or {NO_CAP}"
        )
    return int(value)


@queues.command()
@click.argument("name")
@click.argument("running_max", metavar="N|none", type=_running_max)
@target_options
def cap(app: str | None, database: str | None, name: str, running_max: int | None) -> None:
    """Run at most N jobs of a queue at once, across all workers; `none` removes the cap.

    \b
    Examples:
      holdfast queues cap images 4
      holdfast queues cap images none
    """
    run(_cap(find_existing(app, database), name, running_max))


@queues.command()
@click.argument("name")
@click.option("--running", is_flag=True, help="Also cancel running jobs and stop their handlers.")
@click.option("--dry-run", is_flag=True, help="Show the count and a sample; change nothing.")
@click.option("--pace", type=pace, metavar="N/s", help="Rate limit, for example 50/s.")
@click.option("--yes", "sure", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print the --dry-run result as JSON.")
@target_options
def purge(app: str | None, database: str | None, name: str, running: bool, **choice: Any) -> int:
    """Cancel all waiting jobs in a queue. They stay in the history as canceled.

    \b
    Examples:
      holdfast queues purge images --dry-run
      holdfast queues purge images --pace 500/s --yes
    """
    from holdfast.cli.change import Change, change_all

    if choice["as_json"] and not choice["dry_run"]:
        raise click.UsageError("--json requires --dry-run")
    found = find_existing(app, database)
    states = (State.QUEUED, State.RUNNING) if running else (State.QUEUED,)

    def purge_these(ids: Any, *, jobs_per_second: float | None) -> Any:
        return found.queues.purge(name, ids, running=running, jobs_per_second=jobs_per_second)

    how = Change(
        "cancel",
        "canceled",
        found.jobs.cancel,
        purge_these,
        lambda old_id, _: f"canceled {old_id}",
        of=f" in queue {name}",
    )
    return run(change_all(found, how, Filter(states=states, queue=name), choice))


async def _list_queues(app: Holdfast, *, as_json: bool) -> None:
    from holdfast.cli import display

    async with app:
        found = await app.queues.list()
    if as_json:
        for queue in found:
            click.echo(msgspec.json.encode(queue))
    elif found:
        display.print_queues(found)
    else:
        click.echo("no queues", err=True)


async def _pause(app: Holdfast, name: str, by: str, because: str | None) -> None:
    async with app:
        await app.queues.pause(name, by=by, because=because)
        queue = await _find(app, name)
    click.echo(
        f"queue {name} is paused: {queue.waiting:,} waiting, {queue.running:,} still running."
        f" Resume with: {_resuming(name)}"
    )


async def _resume(app: Holdfast, name: str) -> None:
    async with app:
        await app.queues.resume(name)
        queue = await _find(app, name)
    click.echo(f"queue {name} resumed: {queue.waiting:,} waiting, {queue.running:,} running")


async def _drain(app: Holdfast, name: str, by: str, because: str | None) -> None:
    from holdfast.cli.change import Bar, count_jobs

    queue, most = QueueStatus(name=name), 0
    async with app:
        try:
            with Bar("drain", most) as bar:
                async for queue in app.queues.drain(name, by=by, because=because):
                    most = max(most, queue.running)
                    bar.show(most - queue.running, most)
        except asyncio.CancelledError:
            say(
                f"queue {name} stays paused; {count_jobs(queue.running)} may still be running."
                f" Resume with: {_resuming(name)}"
            )
            raise
    click.echo(
        f"queue {name} is drained: {queue.waiting:,} waiting, none running."
        f" Resume with: {_resuming(name)}"
    )


async def _cap(app: Holdfast, name: str, running_max: int | None) -> None:
    async with app:
        await app.queues.cap(name, running_max)
        queue = await _find(app, name)
    if running_max is None:
        click.echo(f"queue {name} has no cap: {queue.running:,} running")
    else:
        click.echo(f"queue {name} is capped at {running_max:,}: {queue.running:,} running")


async def _find(app: Holdfast, name: str) -> QueueStatus:
    found = await app.queues.list()
    return next((each for each in found if each.name == name), QueueStatus(name=name))


def _resuming(name: str) -> str:
    return f"holdfast queues resume {pasted(name)}"
