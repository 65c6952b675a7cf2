"""Upkeep, in bounded steps: what was kept long enough is forgotten, what ended in place is moved,
and the days to come get their partitions."""

from __future__ import annotations

from holdfast.domain.errors import StoreRefused
from holdfast.domain.limits import (
    BREAKER_KEPT_SECONDS,
    HISTORY_COUNTS_FOLDED_MAX,
    HISTORY_DAYS_AHEAD,
    HISTORY_REST_BYTES_MAX,
    HISTORY_STRAYS_MAX,
    WORKER_KEPT_LEASES,
)
from holdfast.domain.retention import Retention
from holdfast.stores.postgres.rows import Fetch
from holdfast.stores.postgres.settle import retention_values


async def tidy(fetch: Fetch, retention: Retention, limit: int) -> int:
    moved, refused = 0, None
    # What ended in place stays there rather than to find no partition of its day.
    if await keep_days(fetch, retention, limit):
        moved, refused = await _move_leftovers(fetch, retention, limit)
    done = moved
    for step, values in (
        ("forget_history", {}),
        ("forget_attempts", {"longest_seconds": retention.longest_seconds}),
        ("forget_keys", {}),
        ("forget_requeues", {}),
        ("forget_workers", {"leases": WORKER_KEPT_LEASES}),
        ("forget_breakers", {"kept_seconds": BREAKER_KEPT_SECONDS}),
    ):
        if done < limit:
            rows = await fetch(step, limit=limit - done, **values)
            done += rows[0][0]
    folded = await fetch("fold_history_counts", limit=HISTORY_COUNTS_FOLDED_MAX)
    if folded[0][0] == HISTORY_COUNTS_FOLDED_MAX or (moved and refused is not None):
        return limit
    if refused is not None and done < limit:
        raise refused
    return done


async def _move_leftovers(
    fetch: Fetch, retention: Retention, limit: int
) -> tuple[int, StoreRefused | None]:
    values = retention_values(retention)
    try:
        rows = await fetch("move_leftovers", limit=limit, **values)
        return rows[0][0], None
    except StoreRefused:
        moved, refused = 0, None
    # One by one, to pass over those that the database does not let go.
    for row in await fetch("leftovers", limit=limit):
        try:
            rows = await fetch("move_leftover", job_id=row["id"], **values)
            moved += rows[0][0]
        except StoreRefused as error:
            refused = error
    return moved, refused


async def keep_days(fetch: Fetch, retention: Retention, leftovers_max: int = 0) -> bool:
    """Make the partitions that will be needed soon, drop those of the past; False if one that is
    needed is still missing.

    Each on its own: one that can't have its lock now is left for another time.
    """
    days = await fetch(
        "history_days",
        kept_seconds=retention.possible_seconds(),
        ahead=HISTORY_DAYS_AHEAD,
        limit=leftovers_max,
    )
    all_there = True
    for row in days:
        if row["is_past"]:
            await fetch("drop_history_day", day=row["day"])
        else:
            added = await fetch(
                "add_history_day",
                day=row["day"],
                strays_max=HISTORY_STRAYS_MAX,
                rest_bytes_max=HISTORY_REST_BYTES_MAX,
            )
            all_there = all_there and added[0][0]
    return all_there
