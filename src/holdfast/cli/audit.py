"""`holdfast audit`: list and export the audit log."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import IO, Any, TypeVar, get_args
from uuid import UUID

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.selection import json_lines_option, limit_option, moment
from holdfast.cli.session import ListingGroup, say
from holdfast.cli.target import on_database
from holdfast.domain.audit import AuditEntry, AuditFilter, Outcome
from holdfast.domain.limits import PAGE_ROWS_MAX

F = TypeVar("F", bound=Callable[..., Any])

STDOUT = "-"
SHOWN_EVERY = 1000


def entry_id(value: str) -> UUID:
    try:
        return UUID(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not the ID of an entry") from None


def filter_options(command: F) -> F:
    """Give the command the options that filter entries."""
    for option in (
        click.option("--until", type=moment, metavar="TIME", help="Only entries before TIME."),
        click.option(
            "--since",
            type=moment,
            metavar="TIME",
            help="Only entries since TIME, for example 2h (two hours ago).",
        ),
        click.option(
            "--outcome",
            type=click.Choice(get_args(Outcome)),
            help="Only entries with this outcome.",
        ),
        click.option("--key", "key_id", metavar="ID", help="Only actions with this API key."),
        click.option("--tenant", help="Only actions with API keys of this tenant."),
        click.option("--target", help="Only actions on this job, queue, breaker, key, ..."),
        click.option("--action", help="Only this action, for example queue.pause."),
        click.option("--actor", metavar="WHO", help="Only actions by WHO."),
    ):
        command = option(command)
    return command


@click.group(cls=ListingGroup)
def audit() -> None:
    """List and export the audit log: who did what, when, from where, and to how many jobs.

    Lists it if no command is given.

    \b
    Examples:
      holdfast audit --since 2h
      holdfast audit export --out audit.jsonl
    """


@audit.command("list")
@filter_options
@limit_option("entries")
@click.option("--after", type=entry_id, metavar="ID", help="Continue after this entry.")
@json_lines_option
@on_database
async def list_command(
    app: Holdfast, limit: int, after: UUID | None, as_json: bool, **filters: Any
) -> None:
    """List who did what, newest first.

    \b
    Examples:
      holdfast audit list --app app:hf
      holdfast audit list --action queue.pause --since 3d
      holdfast audit list --actor ann@ops1 --outcome failed --json
    """
    from holdfast.cli import display

    chosen, shown = AuditFilter(**filters), list[AuditEntry]()
    async with app:
        while True:
            page = await app.audit.list(chosen, min(limit - len(shown), PAGE_ROWS_MAX), after)
            shown += page.entries
            after = page.after
            if after is None or len(shown) == limit:
                break
    display.print_all(shown, display.print_audit_log, "no entries", as_json=as_json)
    if after is not None and not as_json:
        click.echo(f"more entries: --after {after}", err=True)


@audit.command()
@filter_options
@click.option(
    "--after", type=entry_id, metavar="ID", help="Continue after this entry, the last you have."
)
@click.option(
    "--out",
    "path",
    default=STDOUT,
    metavar="FILE",
    help="Write to this file. With --after, append to it. Default: standard output.",
)
@on_database
async def export(app: Holdfast, after: UUID | None, path: str, **filters: Any) -> None:
    """Write the audit log as JSON lines, oldest first.

    Each line has all fields of an entry. Times are in UTC, with microseconds.

    \b
    Examples:
      holdfast audit export --app app:hf > audit.jsonl
      holdfast audit export --since 30d --out audit.jsonl
      holdfast audit export --after 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e --out audit.jsonl
    """
    from rich.console import Console

    written, last = 0, after
    status = Console(stderr=True, quiet=path == STDOUT and sys.stdout.isatty()).status("")
    async with app:
        with _opened(path, is_continued=after is not None) as file, status:
            async for entry in app.audit.export(AuditFilter(**filters), after):
                file.write(json_line(entry))
                written, last = written + 1, entry.id
                if written % SHOWN_EVERY == 0:
                    status.update(f"{written:,} entries, up to {entry.at:%Y-%m-%d %H:%M} UTC")
    say(f"exported {written:,}; to continue: --after {last}" if last else "no entries")


def _opened(path: str, *, is_continued: bool) -> AbstractContextManager[IO[str]]:
    try:
        file: IO[str] = click.open_file(path, "a" if is_continued else "x", encoding="ascii")
    except FileExistsError:
        raise click.ClickException(
            f"{path} already exists; pass another file, or --after with the ID of its last entry"
        ) from None
    except OSError as error:
        raise click.ClickException(f"can't write {path}: {error.strerror}") from error
    return file


def json_line(entry: AuditEntry) -> str:
    """ASCII only, so that text from outside can't control the terminal."""
    return json.dumps(msgspec.to_builtins(msgspec.structs.asdict(entry))) + "\n"
