"""What the holder of a lease writes. Every write names the fence."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from holdfast.domain.job import Lease, Lost, Settlement, Standing
from holdfast.domain.retention import Retention
from holdfast.domain.states import State
from holdfast.stores.postgres.rows import SQL, Fetch, fetch_on
from holdfast.transactions.drivers.refusals import ended_inside

Leased = TypeVar("Leased", Lease, Settlement)


def retention_values(retention: Retention) -> dict[str, object]:
    """The retention, as parameters of the statements that end jobs."""
    return {
        "kept_seconds": retention.kept_seconds,
        "rule_queues": [rule.queue for rule in retention.rules],
        "rule_states": [rule.state for rule in retention.rules],
        "rule_seconds": [rule.kept_seconds for rule in retention.rules],
    }


class Settler:
    def __init__(self, retention: Retention, commit_seconds: float) -> None:
        self._retention = retention_values(retention)
        self._commit_milliseconds = str(int(commit_seconds * 1000))

    async def renew(
        self, connection: Any, leases: Sequence[Lease], lease_seconds: float
    ) -> list[Lost]:
        lost: list[Lost] = []
        for batch in _rounds(leases):
            missed = await self._write(connection, "renew", batch, lease_seconds=lease_seconds)
            # A locked row is not renewed, but may still be ours.
            lost += [
                Lost(lease.job_id, lease.fence, state)
                for lease, fence, state in await self._look_up(connection, missed)
                if fence != lease.fence or state is not State.RUNNING
            ]
        return lost

    async def settle(self, connection: Any, settlements: Sequence[Settlement]) -> list[Lost]:
        succeeded = [item for item in settlements if item.state is State.SUCCEEDED]
        if len(succeeded) == len(settlements) and _are_unique(succeeded):
            missed = await self._settle_succeeded(connection, succeeded) if succeeded else []
        else:
            missed = await self._settle_mixed(connection, settlements)
        found = await self._look_up(connection, missed)
        return [Lost(item.job_id, item.fence, state) for item, _, state in found]

    async def settle_in_transaction(self, connection: Any, settlement: Settlement) -> bool:
        """Settle as the last statement of a caller's transaction; False if the lease is lost.

        This locks the job's row. The server ends the transaction if no commit follows: nobody
        could reclaim the job from a host that is gone.
        """
        if settlement.state is State.SUCCEEDED:
            return await self._settle_completing(connection, settlement)
        milliseconds = self._commit_milliseconds
        (row,) = await fetch_on(connection, "limit_commit", commit_milliseconds=milliseconds)
        if not row["in_block"]:
            raise ended_inside()
        return not await self._settle_others(connection, [settlement])

    async def _settle_completing(self, connection: Any, settlement: Settlement) -> bool:
        (row,) = await fetch_on(
            connection,
            "settle_completing",
            job_id=settlement.job_id,
            fence=settlement.fence,
            result=settlement.result,
            commit_milliseconds=self._commit_milliseconds,
            **self._retention,
        )
        if not row["in_block"]:
            raise ended_inside()
        return bool(row["ended"])

    async def _settle_mixed(
        self, connection: Any, settlements: Sequence[Settlement]
    ) -> list[Settlement]:
        missed: list[Settlement] = []
        async with connection.transaction():
            for batch in _rounds(settlements):
                succeeded = [item for item in batch if item.state is State.SUCCEEDED]
                others = [item for item in batch if item.state is not State.SUCCEEDED]
                if succeeded:
                    missed += await self._settle_succeeded(connection, succeeded)
                if others:
                    missed += await self._settle_others(connection, others)
        return missed

    async def _settle_succeeded(
        self, connection: Any, settlements: Sequence[Settlement]
    ) -> list[Settlement]:
        batch = _sorted(settlements)
        return await self._write(
            connection,
            "settle_succeeded",
            batch,
            results=[item.result for item in batch],
            **self._retention,
        )

    async def _settle_others(
        self, connection: Any, settlements: Sequence[Settlement]
    ) -> list[Settlement]:
        batch = _sorted(settlements)
        return await self._write(
            connection,
            "settle",
            batch,
            states=[item.state.value for item in batch],
            delay_seconds=[item.delay_seconds for item in batch],
            results=[item.result for item in batch],
            error_codes=[item.error_code for item in batch],
            error_texts=[item.error_text for item in batch],
            attempts_back=[int(item.attempt_back) for item in batch],
            snoozed=[int(item.snoozed) for item in batch],
            released=[int(item.released) for item in batch],
            crashed=[int(item.crashed) for item in batch],
            outcomes=[item.outcome for item in batch],
            failures=[item.failures and msgspec.json.encode(item.failures) for item in batch],
            **self._retention,
        )

    async def _write(
        self, connection: Any, name: str, batch: Sequence[Leased], **values: object
    ) -> list[Leased]:
        """Write a batch of sorted, unique ids; return those whose fence did not match."""
        statement = SQL[name]
        values["ids"] = [item.job_id for item in batch]
        values["fences"] = [item.fence for item in batch]
        # NULL if all were written, to send no ids.
        written = await connection.fetchval(statement.sql, *statement.arguments(values))
        if written is None:
            return []
        done = set(written)
        return [item for item in batch if item.job_id not in done]

    async def _look_up(
        self, connection: Any, missed: Sequence[Leased]
    ) -> list[tuple[Leased, int | None, State | None]]:
        if not missed:
            return []
        rows = await fetch_on(connection, "fences", ids=[item.job_id for item in missed])
        fences = {row["id"]: row["fence"] for row in rows}
        states = {row["id"]: State(row["state"]) for row in rows}
        return [(item, fences.get(item.job_id), states.get(item.job_id)) for item in missed]


async def release_strays(fetch: Fetch, worker: str, known: Sequence[Lease], limit: int) -> int:
    rows = await fetch(
        "release_strays",
        worker=worker,
        ids=[lease.job_id for lease in known],
        fences=[lease.fence for lease in known],
        limit=limit,
    )
    return int(rows[0][0])


async def progress(fetch: Fetch, lease: Lease, progress: bytes) -> bool:
    rows = await fetch("progress", job_id=lease.job_id, fence=lease.fence, progress=progress)
    return bool(rows)


async def standing(fetch: Fetch, job_id: UUID) -> Standing | None:
    # In this order: a job that left the live ones while we waited is in the history.
    rows = await fetch("standing", job_id=job_id) or await fetch("standing_ended", job_id=job_id)
    return Standing(State(rows[0]["state"]), rows[0]["fence"]) if rows else None


def _sorted(items: Sequence[Leased]) -> list[Leased]:
    return sorted(items, key=attrgetter("job_id"))


def _are_unique(items: Sequence[Leased]) -> bool:
    return len({item.job_id for item in items}) == len(items)


def _rounds(items: Sequence[Leased]) -> list[list[Leased]]:
    """Split into batches of sorted, unique ids. A job given twice is also in the next batch."""
    rounds: list[dict[UUID, Leased]] = []
    for item in items:
        batch = next((batch for batch in rounds if item.job_id not in batch), None)
        if batch is None:
            batch = {}
            rounds.append(batch)
        batch[item.job_id] = item
    return [_sorted(list(batch.values())) for batch in rounds]
