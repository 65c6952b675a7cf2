"""Upkeep in bounded steps: delete what has outlived its retention, move what ended in place, and
add partitions for the days to come."""

from __future__ import annotations

from holdfast.domain import limits
from holdfast.domain.errors import StoreRefused
from holdfast.domain.retention import Retention
from holdfast.stores.postgres.rows import Fetch
from holdfast.stores.postgres.settle import retention_values


async def tidy(fetch: Fetch, retention: Retention, limit: int) -> int:
    moved, refused = 0, None
    # Without a partition for its day, leave a job where it ended.
    if await keep_days(fetch, retention, limit):
        moved, refused = await _move_leftovers(fetch, retention, limit)
    done = moved
    for step, values in (
        ("forget_history", {}),
        ("forget_attempts", {"longest_seconds": retention.longest_seconds}),
        ("forget_keys", {}),
        ("forget_requeues", {}),
        ("forget_workers", {"leases": limits.WORKER_KEPT_LEASES}),
        ("forget_breakers", {"kept_seconds": limits.BREAKER_KEPT_SECONDS}),
    ):
        if done < limit:
            done += len(await fetch(step, limit=limit - done, **values))
    folded = await fetch("fold_history_counts", limit=limits.HISTORY_COUNTS_FOLDED_MAX)
    if folded[0][0] == limits.HISTORY_COUNTS_FOLDED_MAX or (moved and refused is not None):
        return limit
    if refused is not None and done < limit:
        raise refused
    return done


async def _move_leftovers(
    fetch: Fetch, retention: Retention, limit: int
) -> tuple[int, StoreRefused | None]:
    values = retention_values(retention)
    try:
        return len(await fetch("move_leftovers", limit=limit, **values)), None
    except StoreRefused:
        moved, refused = 0, None
    # One by one, to skip those that the database refuses to move.
    for row in await fetch("leftovers", limit=limit):
        try:
            moved += len(await fetch("move_leftover", job_id=row["id"], **values))
        except StoreRefused as error:
            refused = error
    return moved, refused


async def keep_days(fetch: Fetch, retention: Retention, leftovers_max: int = 0) -> bool:
    """Add the partitions that will be needed soon, and drop past ones; False if one that is needed
    is still missing.

    Each is a statement of its own: one that can't get its lock now is left for the next time.
    """
    days = await fetch(
        "history_days",
        kept_seconds=retention.possible_seconds(),
        ahead=limits.HISTORY_DAYS_AHEAD,
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
                strays_max=limits.HISTORY_STRAYS_MAX,
                rest_bytes_max=limits.HISTORY_REST_BYTES_MAX,
            )
            all_there = all_there and added[0][0]
    return all_there
