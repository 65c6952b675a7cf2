"""Choose the jobs that a command works on: by ID, or by filters."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import click

from holdfast.domain.job import Filter
from holdfast.domain.limits import BULK_RATE_MIN
from holdfast.domain.states import State
from holdfast.domain.times import SECONDS_OF, parse_moment, parse_seconds, parse_time
from holdfast.runtime.seam import Seam

F = TypeVar("F", bound=Callable[..., Any])

FILTERS = (
    *("queue", "name", "tenant", "tag", "correlation_id", "parent_id"),
    *("error_code", "fingerprint", "since", "until"),
)


def job_id(value: str) -> UUID:
    try:
        return UUID(value)
    except ValueError:
        example = "01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e"
        raise click.BadParameter(
            f"{value!r} is not a job ID; expected one like {example}"
        ) from None


def moment(value: str) -> datetime:
    """Parse a time, or an age such as 2h."""
    time = parse_moment(value, Seam().now())
    if time is None:
        raise click.BadParameter(
            f"{value!r} is not a time; use 2026-11-16T03:00Z, or an age: 90s, 15min, 2h, 3d"
        )
    return time


def point_in_time(value: str) -> datetime:
    time = parse_time(value)
    if time is None:
        raise click.BadParameter(f"{value!r} is not a time; use one like 2026-11-16T03:00Z")
    return time


def duration(value: str) -> float:
    """Parse a length of time such as 2h, in seconds."""
    seconds = parse_seconds(value)
    if seconds is None:
        raise click.BadParameter(f"{value!r} is not a length of time; use 90s, 15min, 2h or 3d")
    return seconds


def pace(value: str) -> float:
    """Parse jobs per second from `50/s`, `600/min` or `50`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/(s|min|h))?", value)
    if match is None or float(match[1]) == 0:
        raise click.BadParameter(f"{value!r} is not a rate; use 50/s, 600/min or 1000/h")
    rate = float(match[1]) / SECONDS_OF[match[2] or "s"]
    if rate < BULK_RATE_MIN:
        raise click.BadParameter(f"{value!r} is too slow; the lowest rate is {BULK_RATE_MIN}/s")
    return rate


id_argument = click.argument("job_id", metavar="ID", type=job_id)
again_option = click.option(
    "--again", is_flag=True, help="Include jobs that were already requeued."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
json_lines_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line."
)


def limit_option(what: str) -> Callable[[F], F]:
    return click.option(
        "--limit",
        type=click.IntRange(min=1),
        metavar="N",
        default=20,
        show_default=True,
        help=f"Maximum number of {what}.",
    )


def list_options(command: F) -> F:
    """Give the command --limit, --after and --json."""
    after = click.option("--after", type=job_id, metavar="ID", help="Continue after this job.")
    return _all_of(limit_option("jobs"), after, json_lines_option)(command)


def filter_options(states: Sequence[State] = tuple(State)) -> Callable[[F], F]:
    """Give the command the options that filter jobs."""
    return _all_of(
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
        click.option("--correlation-id", metavar="ID", help="Only jobs with this correlation ID."),
        click.option(
            "--parent",
            "parent_id",
            type=job_id,
            metavar="ID",
            help="Only jobs that the handler of this job enqueued.",
        ),
        click.option("--code", "error_code", help="Only jobs with this error code."),
        click.option("--fingerprint", help="Only jobs in this group of `holdfast dead groups`."),
        click.option(
            "--since",
            type=moment,
            metavar="TIME",
            help="Only jobs finished since TIME, for example 2h (two hours ago)."
            " Unfinished jobs count by their creation.",
        ),
        click.option(
            "--until",
            type=moment,
            metavar="TIME",
            help="Only jobs finished before TIME. Unfinished jobs count by their creation.",
        ),
    )


def bulk_options(command: F) -> F:
    """Give the command --dry-run, --pace and --yes."""
    return _all_of(
        click.option(
            "--dry-run", is_flag=True, help="Show the count and a sample; change nothing."
        ),
        click.option("--pace", type=pace, metavar="N/s", help="Rate limit, for example 50/s."),
        click.option("--yes", "sure", is_flag=True, help="Do not ask for confirmation."),
    )(command)


def choice_options(states: Sequence[State] = tuple(State)) -> Callable[[F], F]:
    """Let the command take job IDs, or --all with filters."""
    return _all_of(
        click.argument("job_ids", metavar="[ID]...", nargs=-1, type=job_id),
        click.option("--all", "every", is_flag=True, help="All jobs that match the filters."),
        filter_options(states),
        bulk_options,
        click.option("--json", "as_json", is_flag=True, help="Print the jobs as JSON lines."),
    )


def _all_of(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def make_filter(filters: dict[str, Any], states: Sequence[State] = ()) -> Filter:
    """Make the filter that the options describe; `states` applies if --state is not given."""
    chosen = tuple(State(name) for name in filters["states"]) or tuple(states)
    return Filter(states=chosen, **{name: filters[name] for name in FILTERS})
