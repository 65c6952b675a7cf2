"""Upkeep, in bounded steps: what was kept long enough is forgotten, what ended in place is moved,
and the days to come get their partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from holdfast.domain.retention import Retention
from holdfast.stores.postgres.settles import retention_values

COUNTS_FOLDED_MAX = 10_000
STRAYS_MAX = 10_000  # jobs that ended before their day had its partition, moved under a lock
DAYS_AHEAD = 2
LEFTOVER_DAYS = 30

Fetch = Callable[..., Awaitable[Sequence[Any]]]


async def tidy(fetch: Fetch, retention: Retention, limit: int) -> int:
    rows = await fetch("move_leftovers", limit=limit, **retention_values(retention))
    done: int = rows[0][0]
    # The rest of what ended in place some time ago is kept until days before those to come.
    await keep_days(fetch, retention, days_back=LEFTOVER_DAYS if done else 0)
    for step, values in (
        ("forget_history", {}),
        ("forget_attempts", {"longest_seconds": retention.longest_seconds}),
        ("forget_keys", {}),
    ):
        if done < limit:
            rows = await fetch(step, limit=limit - done, **values)
            done += rows[0][0]
    folded = await fetch("fold_history_counts", limit=COUNTS_FOLDED_MAX)
    return limit if folded[0][0] == COUNTS_FOLDED_MAX else done


async def keep_days(fetch: Fetch, retention: Retention, days_back: int = 0) -> None:
    """Make the partitions that will be needed soon, drop those of the past.

    Each on its own: one that can't have its lock now is left for another time.
    """
    kept_seconds = {retention.kept_seconds, *(rule.kept_seconds for rule in retention.rules)}
    days = await fetch(
        "history_days", kept_seconds=sorted(kept_seconds), back=days_back, ahead=DAYS_AHEAD
    )
    for row in days:
        if row["is_past"]:
            await fetch("drop_history_day", day=row["day"])
        else:
            await fetch("add_history_day", day=row["day"], strays_max=STRAYS_MAX)
