"""`holdfast messages`: the messages that a broker keeps, and its dead letters."""

from __future__ import annotations

import click

from holdfast.app import Holdfast
from holdfast.cli.selection import json_lines_option, json_option
from holdfast.cli.session import Group, say
from holdfast.cli.target import on_database
from holdfast.domain.limits import MESSAGES_LOOKED_AT_MAX

PEEKED_DEFAULT = 20

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would be done; change nothing."
)


@click.group(cls=Group)
def messages() -> None:
    """Look at the messages of Azure Service Bus, and send dead letters again.

    A message is only a hint: what it says of its job may be out of date, and the database decides
    what runs. A dead letter ends no job.

    \b
    Example:
      holdfast messages peek --app app:hf
    """


@messages.command()
@click.option("--dead", "box", flag_value="dead", help="Only dead letters.")
@click.option("--queue", "box", flag_value="queue", help="Only messages on the queue.")
@click.option(
    "--limit",
    type=click.IntRange(1, MESSAGES_LOOKED_AT_MAX),
    metavar="N",
    default=PEEKED_DEFAULT,
    show_default=True,
    help="Maximum number of dead letters, and of messages.",
)
@json_lines_option
@on_database
async def peek(app: Holdfast, box: str | None, limit: int, as_json: bool) -> None:
    """List dead letters and messages, with the state of their jobs.

    \b
    Examples:
      holdfast messages peek --app app:hf
      holdfast messages peek --dead --json | jq .job_id
    """
    from holdfast.cli import display
    from holdfast.cli.messages_display import print_messages

    async with app:
        found = await app.messages.peek(dead=None if box is None else box == "dead", limit=limit)
    display.print_all(found, print_messages, "no messages", as_json=as_json)


@messages.command()
@dry_run_option
@json_option
@on_database
async def repair(app: Holdfast, dry_run: bool, as_json: bool) -> None:
    """Make the messages fit the jobs.

    Removes dead letters whose jobs have ended or don't exist, and sends a message for each job that
    is due and has none on the queue. Letters that name no job stay. Safe to repeat.

    \b
    Examples:
      holdfast messages repair --app app:hf --dry-run
      holdfast messages repair --app app:hf
    """
    from holdfast.cli import display

    async with app:
        done = await app.messages.repair(dry_run=dry_run)
    if as_json:
        display.print_json_lines([done])
        return
    removed, announced = len(done.removed), len(done.announced)
    would = "would remove" if dry_run else "removed"
    letters = "dead letter" if removed == 1 else "dead letters"
    announce = "announce" if dry_run else "announced"
    jobs = "due job" if announced == 1 else "due jobs"
    click.echo(f"{would} {removed:,} {letters}, {announce} {announced:,} {jobs}")
    if not done.is_whole:
        say("there are too many messages or jobs to look at all of them; run it again later")


@messages.command()
@click.argument("numbers", metavar="[NUMBER]...", nargs=-1, type=int)
@click.option("--all", "every", is_flag=True, help="All dead letters.")
@dry_run_option
@json_lines_option
@on_database
async def replay(
    app: Holdfast, numbers: tuple[int, ...], every: bool, dry_run: bool, as_json: bool
) -> None:
    """Send dead letters again, as new messages.

    NUMBER is from `holdfast messages peek`. A letter is sent again, and removed, only if its job
    waits; otherwise it stays, with a reason. To run a job again that has ended, requeue it with
    `holdfast dead requeue`.

    \b
    Examples:
      holdfast messages replay 17 --app app:hf
      holdfast messages replay --all --dry-run
    """
    from holdfast.cli import display
    from holdfast.cli.messages_display import print_replayed

    if every == bool(numbers):
        raise click.UsageError("pass the numbers of dead letters, or --all")
    async with app:
        done = await app.messages.replay(None if every else set(numbers), dry_run=dry_run)
    if done or every:
        display.print_all(
            done,
            lambda each: print_replayed(each, dry_run=dry_run),
            "no dead letters",
            as_json=as_json,
        )
    if missing := sorted(set(numbers) - {each.message.number for each in done}):
        raise click.ClickException(f"no dead letter {', '.join(map(str, missing))}")
