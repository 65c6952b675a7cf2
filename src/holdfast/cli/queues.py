"""`holdfast queues`: list, pause, cap, drain and purge queues."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.operator import operator_options, recorded
from holdfast.cli.selection import bulk_options, json_lines_option
from holdfast.cli.session import ListingGroup, say
from holdfast.cli.target import on_database, on_same_target
from holdfast.domain.job import Filter
from holdfast.domain.limits import QUEUE_RUNNING_MAX
from holdfast.domain.queues import QueueStatus
from holdfast.domain.spelling import did_you_mean
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
@json_lines_option
@on_database
async def list_command(app: Holdfast, as_json: bool) -> None:
    """List queues with their waiting and running jobs.

    Also shows how long the oldest job has been due, and who paused the queue.

    \b
    Examples:
      holdfast queues list --app app:hf
      holdfast queues --json | jq .ready
    """
    from holdfast.cli import display

    async with app:
        found = await app.queues.list()
    display.print_all(found, display.print_queues, "no queues", as_json=as_json)


@queues.command()
@click.argument("name")
@operator_options
@on_database
async def pause(app: Holdfast, name: str, by: str, because: str | None) -> None:
    """Pause a queue: no worker starts its jobs.

    Running jobs finish, and you can still enqueue.

    \b
    Examples:
      holdfast queues pause images
      holdfast queues pause images --because "the disk is full"
    """
    async with app:
        async with recorded(app, "queue.pause", name, by=by, because=because):
            await app.queues.pause(name, by=by, because=because)
        await _warn_if_unknown(app, name)
        queue = await _find(app, name)
    click.echo(
        f"queue {name} is paused: {queue.waiting:,} waiting, {queue.running:,} still running."
        f" Resume with: {_resuming(name)}"
    )


@queues.command()
@click.argument("name")
@operator_options
@on_database
async def resume(app: Holdfast, name: str, by: str, because: str | None) -> None:
    """Resume a paused queue.

    \b
    Example:
      holdfast queues resume images
    """
    async with app:
        async with recorded(app, "queue.resume", name, by=by, because=because):
            await app.queues.resume(name)
        queue = await _find(app, name)
    click.echo(f"queue {name} resumed: {queue.waiting:,} waiting, {queue.running:,} running")


@queues.command()
@click.argument("name")
@operator_options
@on_database
async def drain(app: Holdfast, name: str, by: str, because: str | None) -> None:
    """Pause a queue and wait until its running jobs finish. It stays paused.

    \b
    Example:
      holdfast queues drain images && deploy && holdfast queues resume images
    """
    from holdfast.cli.change import Bar, count_jobs

    queue, most = QueueStatus(name=name), 0
    async with app, recorded(app, "queue.drain", name, by=by, because=because):
        try:
            with Bar("drain", most) as bar:
                async for queue in app.queues.drain(name, by=by, because=because):
                    most = max(most, queue.running)
                    if most:
                        bar.show(most - queue.running, most)
        except asyncio.CancelledError:
            say(
                f"queue {name} stays paused; {count_jobs(queue.running)} may still be running."
                f" Resume with: {_resuming(name)}"
            )
            raise
        await _warn_if_unknown(app, name)
    click.echo(
        f"queue {name} is drained: {queue.waiting:,} waiting, none running."
        f" Resume with: {_resuming(name)}"
    )


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
@operator_options
@on_database
async def cap(
    app: Holdfast, name: str, running_max: int | None, by: str, because: str | None
) -> None:
    """Cap a queue: run at most N of its jobs at once.

    The cap counts the jobs on all workers together. `none` removes it.

    \b
    Examples:
      holdfast queues cap images 4
      holdfast queues cap images none
    """
    async with app:
        async with recorded(app, "queue.cap", name, by=by, because=because):
            await app.queues.cap(name, running_max)
        await _warn_if_unknown(app, name)
        queue = await _find(app, name)
    capped = "has no cap" if running_max is None else f"is capped at {running_max:,}"
    click.echo(f"queue {name} {capped}: {queue.running:,} running")


@queues.command()
@click.argument("name")
@click.option("--running", is_flag=True, help="Also cancel running jobs and stop their handlers.")
@bulk_options
@operator_options
@click.option("--json", "as_json", is_flag=True, help="Print the --dry-run result as JSON.")
@on_database
async def purge(
    app: Holdfast, name: str, running: bool, by: str, because: str | None, **choice: Any
) -> int:
    """Cancel all waiting jobs in a queue. They stay in the history as canceled.

    \b
    Examples:
      holdfast queues purge images --dry-run
      holdfast queues purge images --because "wrong size" --pace 500/s --yes
    """
    from holdfast.cli.change import Audited, Change, change_all, describe_cancel

    if choice["as_json"] and not choice["dry_run"]:
        raise click.UsageError("--json requires --dry-run")
    states = (State.QUEUED, State.RUNNING) if running else (State.QUEUED,)
    how = Change(
        "cancel",
        "canceled",
        app.jobs.cancel,
        partial(app.queues.purge, name, running=running, by=by, because=because),
        describe_cancel,
        where=f" in queue {name}",
        audit=Audited("queue.purge", name, by, because),
    )
    return await change_all(app, how, Filter(states=states, queue=name), choice)


async def _warn_if_unknown(app: Holdfast, name: str) -> None:
    known = await app.queues.names()
    if name not in known:
        say(f"no job has used a queue named {name!r}{did_you_mean(name, known)}")


async def _find(app: Holdfast, name: str) -> QueueStatus:
    found = await app.queues.list()
    return next((each for each in found if each.name == name), QueueStatus(name=name))


def _resuming(name: str) -> str:
    return on_same_target(f"holdfast queues resume {pasted(name)}")
