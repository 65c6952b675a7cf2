"""`holdfast queues`: see, pause, cap, drain and empty queues."""

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
from holdfast.domain.queues import QueueSeen
from holdfast.domain.states import State
from holdfast.domain.texts import pasted

NO_CAP = "none"


@click.group(cls=ListingGroup)
def queues() -> None:
    """See the queues; pause, cap, drain and purge them. Without a command: list them.

    \b
    Examples:
      holdfast queues
      holdfast queues pause images --because "the disk is full"
    """


@queues.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@target_options
def list_command(app: str | None, database: str | None, as_json: bool) -> None:
    """List the queues: what waits and runs, for how long, and who has paused them.

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
    """Let no job of a queue start, on any worker. What runs goes on, and enqueues go on.

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
    """Let the jobs of a paused queue start again.

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
    """Pause a queue, and wait until none of its jobs runs. It stays paused.

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
            f"{value!r} is no cap; write a number from 0 to {QUEUE_RUNNING_MAX}, or {NO_CAP}"
        )
    return int(value)


@queues.command()
@click.argument("name")
@click.argument("running_max", metavar="N|none", type=_running_max)
@target_options
def cap(app: str | None, database: str | None, name: str, running_max: int | None) -> None:
    """Let at most N jobs of a queue run at a time, on all workers together; `none` lifts that.

    \b
    Examples:
      holdfast queues cap images 4
      holdfast queues cap images none
    """
    run(_cap(find_existing(app, database), name, running_max))


@queues.command()
@click.argument("name")
@click.option("--running", is_flag=True, help="Also what runs; its handlers are stopped.")
@click.option("--dry-run", is_flag=True, help="Only tell how many, and some of them.")
@click.option("--pace", type=pace, metavar="N/s", help="At most so many, like 50/s.")
@click.option("--yes", "sure", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="What --dry-run tells, as JSON.")
@target_options
def purge(app: str | None, database: str | None, name: str, running: bool, **choice: Any) -> int:
    """Cancel all waiting jobs of a queue. They end as canceled and stay in the history.

    \b
    Examples:
      holdfast queues purge images --dry-run
      holdfast queues purge images --pace 500/s --yes
    """
    from holdfast.cli.changing import Change, change_all

    if choice["as_json"] and not choice["dry_run"]:
        raise click.UsageError("--json is for --dry-run")
    found = find_existing(app, database)
    states = (State.QUEUED, State.RUNNING) if running else (State.QUEUED,)

    def purge_these(ids: Any, *, jobs_per_second: float | None) -> Any:
        return found.purge(name, ids, running=running, jobs_per_second=jobs_per_second)

    how = Change(
        "cancel",
        "canceled",
        found.cancel,
        purge_these,
        lambda old_id, _: f"canceled {old_id}",
        of=f" of queue {name}",
    )
    return run(change_all(found, how, Filter(states=states, queue=name), choice))


async def _list_queues(app: Holdfast, *, as_json: bool) -> None:
    from holdfast.cli import display

    async with app:
        found = await app.queues()
    if as_json:
        for queue in found:
            click.echo(msgspec.json.encode(queue))
    elif found:
        display.print_queues(found)
    else:
        click.echo("no queues", err=True)


async def _pause(app: Holdfast, name: str, by: str, because: str | None) -> None:
    async with app:
        await app.pause(name, by=by, because=because)
        queue = await _find(app, name)
    click.echo(
        f"queue {name} is paused: {queue.waiting:,} wait, {queue.running:,} run and go on;"
        f" to go on: {_resuming(name)}"
    )


async def _resume(app: Holdfast, name: str) -> None:
    async with app:
        await app.resume(name)
        queue = await _find(app, name)
    click.echo(f"queue {name} goes on: {queue.waiting:,} wait, {queue.running:,} run")


async def _drain(app: Holdfast, name: str, by: str, because: str | None) -> None:
    from holdfast.cli.changing import Bar, count_jobs

    queue, most = QueueSeen(name=name), 0
    async with app:
        try:
            with Bar("drain", most) as bar:
                async for queue in app.drain(name, by=by, because=because):
                    most = max(most, queue.running)
                    bar.show(most - queue.running, most)
        except asyncio.CancelledError:
            say(
                f"queue {name} stays paused, and {count_jobs(queue.running)} of it may still run;"
                f" to go on: {_resuming(name)}"
            )
            raise
    click.echo(
        f"queue {name} is drained: nothing runs, {queue.waiting:,} wait;"
        f" to go on: {_resuming(name)}"
    )


async def _cap(app: Holdfast, name: str, running_max: int | None) -> None:
    async with app:
        await app.cap(name, running_max)
        queue = await _find(app, name)
    if running_max is None:
        click.echo(f"queue {name} has no cap: {queue.running:,} run")
    else:
        click.echo(f"queue {name} runs at most {running_max:,} at a time: {queue.running:,} run")


async def _find(app: Holdfast, name: str) -> QueueSeen:
    found = await app.queues()
    return next((each for each in found if each.name == name), QueueSeen(name=name))


def _resuming(name: str) -> str:
    return f"holdfast queues resume {pasted(name)}"
