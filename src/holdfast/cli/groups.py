"""What `holdfast dead` does with groups of errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import click

from holdfast.app import Holdfast
from holdfast.cli import display
from holdfast.cli.operator import recorded
from holdfast.cli.selection import make_filter
from holdfast.cli.session import say
from holdfast.domain.errors import HoldfastError
from holdfast.domain.groups import ErrorGroup, GroupFilter, GroupOrder, GroupState
from holdfast.domain.states import DEAD_STATES

# Groups don't have these: only their jobs do.
JOB_FILTERS: Final = (
    "states", "tag", "correlation_id", "parent_id", "fingerprint", "since", "until",
)  # fmt: skip
NONE: Final = "no error groups"


async def list_groups(
    app: Holdfast, options: Mapping[str, Any], *, limit: int, as_json: bool
) -> None:
    """List the groups of the tables, which count all jobs in the history."""
    dead = app.dead if options["tenant"] is None else app.for_tenant(options["tenant"]).dead
    state = options["group_state"]
    filter = GroupFilter(
        state=state and GroupState(state),
        **{name: options[name] for name in ("queue", "name", "error_code", "text")},
    )
    with suppress(HoldfastError):  # a role that may only read lists what servers have counted
        await app.dead.count_groups()
    found: list[ErrorGroup] = []
    after = None
    while len(found) < limit:
        page = await dead.groups(
            filter, limit - len(found), after, order=GroupOrder(options["order"])
        )
        found += page.groups
        after = page.after
        if after is None:
            break
    display.print_all(found, display.print_groups, NONE, as_json=as_json)
    if after is not None:
        say("more groups not shown; raise --limit")
    if behind := await app.dead.groups_behind_since():
        say(f"jobs that ended since {behind:%Y-%m-%dT%H:%M:%SZ} are not counted yet")


async def list_groups_of_jobs(
    app: Holdfast, options: Mapping[str, Any], look_max: int, *, limit: int, as_json: bool
) -> None:
    """Group the newest jobs that match the filters."""
    wanted = make_filter(dict(options), DEAD_STATES)
    found = await app.dead.grouped(wanted, look_max=look_max)
    matching = [group for group in found.groups if _matches(group, options)]
    display.print_all(matching[:limit], display.print_groups, NONE, as_json=as_json)
    if not found.is_all:
        say(
            f"examined only the newest {found.looked_at:,} jobs; raise --look to examine more,"
            " or narrow the search with --since"
        )
    if (hidden := len(matching) - limit) > 0:
        say(f"{hidden:,} smaller group{'s' if hidden > 1 else ''} not shown; raise --limit")


def _matches(group: ErrorGroup, options: Mapping[str, Any]) -> bool:
    text = f"{group.name} {group.error_code or ''} {group.shape}".lower()
    return options["group_state"] in (None, group.state) and (options["text"] or "").lower() in text


async def change_groups(
    app: Holdfast,
    verb: str,
    change: Callable[..., Awaitable[Sequence[ErrorGroup]]],
    fingerprints: Sequence[str],
    by: str,
    note: str | None,
) -> None:
    async with app:
        action, target = f"error_group.{verb}", " ".join(fingerprints)
        async with recorded(app, action, target, by=by, because=note):
            groups = await change(*fingerprints, by=by, note=note)
    for group in groups:
        click.echo(f"error group {group.fingerprint} is {group.state}: {group.jobs:,} jobs")
