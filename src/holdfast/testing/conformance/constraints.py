"""The database's own constraints, which repeat the domain's tables, tested without the store."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import Any

from holdfast.domain.limits import ATTEMPTS_MAX, RELEASES_MAX, SNOOZES_MAX
from holdfast.domain.states import ENDED, State, may_become
from holdfast.stores.protocol import FullStore as Store
from holdfast.testing.conformance.harness import (
    Harness,
    Room,
    Suite,
    claim_one,
    enqueue,
    job_in,
    needs,
    recorded,
)

_SOMETIME = datetime(2030, 1, 1, tzinfo=UTC)


def columns_of(state: State) -> dict[str, object]:
    """All columns that go with a state, so that only the move itself can be rejected."""
    running = state is State.RUNNING
    return {
        "state": str(state),
        "lease_owner": "worker" if running else None,
        "lease_expires_at": _SOMETIME if running else None,
        "finished_at": _SOMETIME if state.ended else None,
    }


_LEASE = {"lease_owner": "worker", "lease_expires_at": _SOMETIME}
_END = {"finished_at": _SOMETIME}
IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "an unknown state": {"state": "paused"},
    "running without a lease": {"state": "running"},
    "running without an owner": {"state": "running", "lease_expires_at": _SOMETIME},
    "running without an expiry": {"state": "running", "lease_owner": "worker"},
    "waiting with an owner": {"lease_owner": "worker"},
    "waiting with a lease": _LEASE,
    "ended without an end": {"state": "canceled"},
    "waiting with an end": _END,
    "running with an end": {"state": "running", **_LEASE, **_END},
    "ended with a lease": {"state": "canceled", **_LEASE, **_END},
    "fewer than zero attempts": {"attempt": -1},
    "more attempts than allowed": {"attempt": 6},
    "no attempt left to wait for": {"attempt": 5},
    "too many attempts allowed": {"max_attempts": ATTEMPTS_MAX + 1},
    "no attempt allowed": {"max_attempts": 0},
    "ended, and no attempt was allowed": {"state": "canceled", **_END, "max_attempts": 0},
    "a fence below zero": {"fence": -1},
    "fewer than zero snoozes": {"snoozes": -1},
    "too many snoozes": {"snoozes": SNOOZES_MAX + 1},
    "fewer than zero releases": {"releases": -1},
    "too many releases": {"releases": RELEASES_MAX + 1},
}


@needs(Room.CONSTRAINTS)
class Constraints(Suite):
    async def test_only_legal_moves_are_allowed(self, store: Store, harness: Harness) -> None:
        allowed = set()
        for current, following in product(State, State):
            job_id = await job_in(store, current)
            if await harness.write(job_id, columns_of(following)):
                allowed.add((current, following))
                assert (await recorded(store, job_id)).state is following
            else:
                assert (await recorded(store, job_id)).state is current
        assert allowed == {pair for pair in product(State, State) if may_become(*pair)}

    async def test_the_database_freezes_ended_jobs(self, store: Store, harness: Harness) -> None:
        for current, following in product(ENDED, State):
            job = await claim_one(store)
            assert await harness.write(job.id, columns_of(current))
            before = await recorded(store, job.id)
            assert not await harness.write(job.id, columns_of(following))
            assert await recorded(store, job.id) == before

    async def test_impossible_rows_are_rejected(self, store: Store, harness: Harness) -> None:
        taken = [
            name
            for name, columns in IMPOSSIBLE.items()
            if await harness.write(await enqueue(store), columns)
        ]
        assert taken == []

    async def test_a_fence_never_decreases(self, store: Store, harness: Harness) -> None:
        job = await claim_one(store)
        assert await harness.write(job.id, {"fence": 10})
        assert await harness.write(job.id, {"fence": 10})
        assert not await harness.write(job.id, {"fence": 9})

    async def test_the_database_freezes_the_history(self, store: Store, harness: Harness) -> None:
        job_id = await job_in(store, State.SUCCEEDED)
        for columns in ({"error_text": "x"}, {"queue": "x"}, {"fence": 100}):
            assert not await harness.write(job_id, columns)
