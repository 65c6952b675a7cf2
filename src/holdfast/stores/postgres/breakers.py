"""Breakers: the failures that open them, and the jobs that they park and unpark.

To park a job, lock its breaker's row and check that it is open. To close or forget a breaker, lock
the row and look for parked jobs in a later statement, so that none is missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.domain.breakers import Breaker, BreakerStatus, Parking, Strike
from holdfast.domain.limits import BREAKER_DOUBT_FACTOR, BREAKERS_LISTED_MAX, PARKED_COUNTED_MAX
from holdfast.stores.postgres.rows import Fetch, fetch_on

STRIKE_WAIT_SECONDS: Final = 0.5  # for a locked breaker; then the failure is not counted


async def breakers(fetch: Fetch, key: str | None = None) -> Sequence[BreakerStatus]:
    rows = await fetch(
        "breakers", key=key, limit=BREAKERS_LISTED_MAX, parked_max=PARKED_COUNTED_MAX
    )
    return [BreakerStatus(**row) for row in rows]


async def strike(fetch: Fetch, strikes: Sequence[Strike]) -> Sequence[bool]:
    if not strikes:
        return []
    rows = await fetch(
        "strike",
        **dict(zip(Strike._fields, zip(*strikes, strict=True), strict=True)),
        doubt_factor=BREAKER_DOUBT_FACTOR,
        wait_seconds=STRIKE_WAIT_SECONDS,
    )
    answers = {row["key"]: iter(row["answers"]) for row in rows}
    return [next(answers[strike.key]) for strike in strikes]


async def open_breaker(fetch: Fetch, key: str, by: str | None, because: str | None) -> None:
    usual = Breaker(key)
    await fetch(
        "open_breaker",
        key=key,
        by=by,
        because=because,
        window_seconds=usual.window_seconds,
        probe_seconds=usual.probe_seconds,
    )


async def close_breaker(fetch: Fetch, key: str, forget: bool, by_hand: bool) -> bool:
    if forget:
        return bool(await fetch("forget_breaker", key=key))
    return bool(await fetch("close_breaker", key=key, by_hand=by_hand))


async def park(connection: Any, limit: int) -> Parking:
    # First unpark the jobs that can run again.
    async with connection.transaction():
        unparked = await _unpark(connection, limit)
    (row,) = await fetch_on(connection, "park", limit=limit - unparked)
    wait_seconds = row["probe_in_seconds"]
    if wait_seconds is not None:
        wait_seconds = max(0.0, wait_seconds)
    return Parking(unparked + row["moved"], wait_seconds)


async def _unpark(connection: Any, limit: int) -> int:
    locked = await fetch_on(connection, "lock_unparking", limit=limit)
    if not locked:
        return 0
    keys = [row["key"] for row in locked]
    (row,) = await fetch_on(connection, "unpark", keys=keys, limit=limit)
    await fetch_on(connection, "end_unparking", keys=keys)
    return int(row["moved"])
