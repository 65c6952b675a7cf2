"""Which jobs a command is about: ids, or filters."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import click

from holdfast.app import Holdfast
from holdfast.domain.job import Filter, Page
from holdfast.domain.limits import PAGE_ROWS_MAX
from holdfast.domain.states import State
from holdfast.domain.times import EARLIEST
from holdfast.runtime.seam import Seam

F = TypeVar("F", bound=Callable[..., Any])

FILTERS = ("queue", "name", "tenant", "tag", "error_code", "fingerprint", "since", "until")
SECONDS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}


def job_id(value: str) -> UUID:
    """Read an id from the command line."""
    try:
        return UUID(value)
    except ValueError:
        example = "01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e"
        raise click.BadParameter(
            f"{value!r} is not a job ID; expected one like {example}"
        ) from None


def moment(value: str) -> datetime:
    """Read a time, or how long ago it was."""
    if match := re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|m|h|d)", value):
        seconds = float(match[1]) * SECONDS[match[2]]
        now = Seam().now()
        # Longer ago than there are times: as long ago as can be asked for.
        return now - timedelta(seconds=min(seconds, (now - EARLIEST).total_seconds()))
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a time; use 2026-11-16T03:00Z, or an age: 90s, 15min, 2h, 3d"
        ) from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def pace(value: str) -> float:
    """Read jobs a second from `50/s`, `600/min` or `50`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/(s|min|h))?", value)
    if match is None or float(match[1]) == 0:
        raise click.BadParameter(f"{value!r} is not a rate; use 50/s, 600/min or 1000/h")
    return float(match[1]) / SECONDS[match[2] or "s"]


def filter_options(states: Sequence[State] = tuple(State)) -> Callable[[F], F]:
    """Give the command the options that choose jobs."""

    def decorate(command: F) -> F:
        for option in reversed(
            (
                click.option(
                    "--state",
                    "states",
                    multiple=True,
                    type=click.Choice([state.value for state in states]),
                    help="Only jobs in this state; repeatable.",
                ),
                click.option("--queue", help="Only jobs in this queue."),
                click.option("--name", help="Only jobs with this name."),
                click.option("--tenant", help="Only jobs for this tenant."),
                click.option("--tag", help="Only jobs with this tag."),
                click.option("--code", "error_code", help="Only jobs with this error code."),
                click.option(
                    "--fingerprint", help="Only jobs in this group of `holdfast dead groups`."
                ),
                click.option(
                    "--since",
                    type=moment,
                    metavar="TIME",
                    help="Finished since then (2h: two hours ago); if unfinished, created.",
                ),
                click.option(
                    "--until",
                    type=moment,
                    metavar="TIME",
                    help="Finished before then; if unfinished, created.",
                ),
            )
        ):
            command = option(command)
        return command

    return decorate


def choice_options(states: Sequence[State] = tuple(State)) -> Callable[[F], F]:
    """Give the command ids, or filters with --all."""

    def decorate(command: F) -> F:
        command = click.option(
            "--json", "as_json", is_flag=True, help="Print the jobs as JSON lines."
        )(command)
        for option in (
            click.option("--yes", "sure", is_flag=True, help="Do not ask for confirmation."),
            click.option("--pace", type=pace, metavar="N/s", help="Rate limit, for example 50/s."),
            click.option(
                "--dry-run", is_flag=True, help="Show the count and a sample; change nothing."
            ),
        ):
            command = option(command)
        command = filter_options(states)(command)
        command = click.option(
            "--all", "every", is_flag=True, help="All jobs that match the filters."
        )(command)
        return click.argument("job_ids", metavar="[ID]...", nargs=-1, type=job_id)(command)

    return decorate


def again_option(command: F) -> F:
    """Give the command --again."""
    return click.option("--again", is_flag=True, help="Include jobs that were already requeued.")(
        command
    )


def make_filter(filters: dict[str, Any], states: Sequence[State] = ()) -> Filter:
    """The filter of the options; `states` if none was named."""
    chosen = tuple(State(name) for name in filters["states"]) or tuple(states)
    rest = {name: filters[name] for name in FILTERS}
    return Filter(states=chosen, **rest)


async def pages(
    app: Holdfast, filter: Filter, limit: int | None = None, after: UUID | None = None
) -> AsyncIterator[Page]:
    """Read page by page to the end, or `limit` jobs in all."""
    while limit is None or limit > 0:
        rows = PAGE_ROWS_MAX if limit is None else min(limit, PAGE_ROWS_MAX)
        page = await app.jobs.list(filter, rows, after)
        yield page
        after = page.after
        if limit is not None:
            limit -= len(page.jobs)
        if after is None:
            return
