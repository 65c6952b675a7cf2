"""Replays: send the events of a time range again, in bounded steps.

A step starts the sagas of some events, in their order, and records where the next one begins, in
one transaction: so every event is replayed once, whoever dies. A replay waits while many of its
sagas do, so that it can't keep new events waiting for long.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast import Holdfast, Tables
from holdfast.webhooks import limits
from holdfast.webhooks.errors import ReplayNotFound
from holdfast.webhooks.rows import Replay, ReplayCount

WAIT_SECONDS: Final = 1.0  # while a replay waits for its own sagas


class _Open(msgspec.Struct, frozen=True):
    id: UUID
    tenant: str
    subscription_id: UUID | None
    until: datetime
    after_at: datetime
    after_id: UUID


class _Event(msgspec.Struct, frozen=True):
    id: UUID
    created_at: datetime


class _Counted(msgspec.Struct, frozen=True):
    events: int
    sagas: int


class Replays:
    def __init__(self, hf: Holdfast, tables: Tables) -> None:
        self._hf = hf
        self._tables = tables

    async def count(
        self,
        connection: Any,
        tenant: str,
        since: datetime,
        until: datetime,
        subscription_id: UUID | None,
    ) -> ReplayCount:
        found = await self._tables.on(connection).one(
            "count_replay",
            _Counted,
            tenant=tenant,
            since=since,
            until=until,
            subscription_id=subscription_id,
            rows_max=limits.REPLAY_COUNTED_MAX,
        )
        assert found is not None
        return ReplayCount(found.events, found.sagas, found.events < limits.REPLAY_COUNTED_MAX)

    async def start(
        self,
        connection: Any,
        tenant: str,
        since: datetime,
        until: datetime,
        subscription_id: UUID | None,
    ) -> Replay:
        replay_id = self._hf.new_id()
        await self._tables.on(connection).execute(
            "insert_replay",
            id=replay_id,
            tenant=tenant,
            subscription_id=subscription_id,
            since=since,
            until=until,
        )
        return await self.get(connection, replay_id, tenant)

    async def get(self, connection: Any, replay_id: UUID, tenant: str | None) -> Replay:
        found = await self._tables.on(connection).one(
            "find_replay", Replay, id=replay_id, tenant=tenant
        )
        if found is None:
            raise ReplayNotFound(replay_id)
        return found

    async def step(self) -> bool:
        """Take one step of one replay, each replay in its turn. Return whether there was one."""
        async with self._hf.transaction() as connection:
            statements = self._tables.on(connection)
            replay = await statements.one(
                "next_replay", _Open, waiting_max=limits.REPLAY_WAITING_MAX
            )
            if replay is None:
                return False
            events = await statements.all(
                "events_to_replay",
                _Event,
                tenant=replay.tenant,
                after_at=replay.after_at,
                after_id=replay.after_id,
                until=replay.until,
                rows_max=limits.REPLAY_EVENTS_AT_ONCE_MAX,
            )
            sagas = await statements.execute(
                "replay_events",
                ids=msgspec.json.encode([each.id for each in events]).decode(),
                replay_id=replay.id,
                tenant=replay.tenant,
                subscription_id=replay.subscription_id,
            )
            counted = {"id": replay.id, "events": len(events), "started": sagas}
            if len(events) < limits.REPLAY_EVENTS_AT_ONCE_MAX:
                await statements.execute("end_replay", **counted)
            else:
                last = events[-1]
                await statements.execute(
                    "advance_replay", after_at=last.created_at, after_id=last.id, **counted
                )
        return True
