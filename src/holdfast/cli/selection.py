"""Which jobs a command is about: ids, or filters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

import click

from holdfast.app import Holdfast
from holdfast.domain.job import Filter, Page
from holdfast.domain.limits import PAGE_ROWS_MAX
from holdfast.domain.states import State

F = TypeVar("F", bound=Callable[..., Any])

DEAD_STATES = (State.DEAD, State.FAILED)


def job_id(value: str) -> UUID:
    """Read an id from the command line."""
    try:
        return UUID(value)
    except ValueError:
        example = "01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e"
        raise click.BadParameter(f"{value!r} is no job id; one looks like {example}") from None


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
                    help="Only jobs in this state; can be given several times.",
                ),
                click.option("--queue", help="Only jobs of this queue."),
                click.option("--name", help="Only jobs of this name."),
                click.option("--tenant", help="Only jobs of this tenant."),
                click.option("--tag", help="Only jobs with this tag."),
            )
        ):
            command = option(command)
        return command

    return decorate


def choice_options(states: Sequence[State] = tuple(State)) -> Callable[[F], F]:
    """Give the command ids, or filters with --all."""

    def decorate(command: F) -> F:
        command = click.option("--json", "as_json", is_flag=True, help="The jobs as JSON lines.")(
            command
        )
        command = click.option("--yes", "sure", is_flag=True, help="Do not ask.")(command)
        command = filter_options(states)(command)
        command = click.option("--all", "every", is_flag=True, help="All jobs that match.")(command)
        return click.argument("job_ids", metavar="[ID]...", nargs=-1, type=job_id)(command)

    return decorate


def make_filter(filters: dict[str, Any], states: Sequence[State] = ()) -> Filter:
    """The filter of the options; `states` if none was named."""
    chosen = tuple(State(name) for name in filters["states"]) or tuple(states)
    rest = {name: filters[name] for name in ("queue", "name", "tenant", "tag")}
    return Filter(states=chosen, **rest)


async def pages(
    app: Holdfast, filter: Filter, limit: int | None = None, after: UUID | None = None
) -> AsyncIterator[Page]:
    """Read page by page to the end, or `limit` jobs in all."""
    while limit is None or limit > 0:
        rows = PAGE_ROWS_MAX if limit is None else min(limit, PAGE_ROWS_MAX)
        page = await app.page(filter, rows, after)
        yield page
        after = page.after
        if limit is not None:
            limit -= len(page.jobs)
        if after is None:
            return
