"""Retention: delete sagas that ended long ago, with what belongs to them, in bounded steps.

The database lets nothing else delete them. On PostgreSQL, a function of the owner does it all.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast import ConfigurationError, Holdfast, Statements, SweepContext, Tables
from holdfast.webhooks import limits

EVERY_SECONDS: Final = 60.0


class _Id(msgspec.Struct, frozen=True):
    id: UUID


class _OfEvent(msgspec.Struct, frozen=True):
    tenant: str
    event_id: UUID


class Retention:
    def __init__(
        self,
        hf: Holdfast,
        tables: Tables,
        sagas_kept_seconds: float,
        dead_letters_kept_seconds: float,
    ) -> None:
        for name, seconds in (
            ("sagas_kept_seconds", sagas_kept_seconds),
            ("dead_letters_kept_seconds", dead_letters_kept_seconds),
        ):
            if not limits.KEPT_SECONDS_MIN <= seconds <= limits.KEPT_SECONDS_MAX:
                raise ConfigurationError(
                    f"{name} must be {limits.KEPT_SECONDS_MIN:g} to {limits.KEPT_SECONDS_MAX:g},"
                    f" not {seconds}"
                )
        self._hf = hf
        self._tables = tables
        self._kept_seconds = sagas_kept_seconds
        self._dead_kept_seconds = dead_letters_kept_seconds
        self._done = ("", 0.0)

    async def delete_old_webhooks(self, ctx: SweepContext) -> float | None:
        """Take one step; return 0 if there may be more to delete. Once there is not, a worker looks
        again after a minute, even though its queue is woken more often."""
        now = asyncio.get_running_loop().time()
        worker_id, done_at = self._done
        if worker_id == ctx.worker_id and now - done_at < EVERY_SECONDS:
            return None
        if await self.step() > 0:
            return 0.0
        self._done = ctx.worker_id, now
        return None

    async def step(self) -> int:
        """Delete some of what is old, and return how many rows."""
        async with self._hf.transaction() as connection:
            statements = self._tables.on(connection)
            if getattr(connection, "dialect", None) == "sqlite":
                return await self._step_on_sqlite(statements)
            return int(
                await statements.value(
                    "delete_old",
                    kept_seconds=self._kept_seconds,
                    dead_kept_seconds=self._dead_kept_seconds,
                    rows_max=limits.RETENTION_ROWS_MAX,
                )
            )

    async def _step_on_sqlite(self, statements: Statements) -> int:
        kept = {"kept_seconds": self._kept_seconds}
        all_kept = {"all_kept_seconds": max(self._kept_seconds, self._dead_kept_seconds)}
        some = {"rows_max": limits.RETENTION_ROWS_MAX}
        await statements.execute("allow_deletes")
        sagas = await statements.all(
            "old_sagas", _Id, dead_kept_seconds=self._dead_kept_seconds, **kept, **some
        )
        if sagas:
            await self._delete_sagas(statements, _json([each.id for each in sagas]), kept)
        deleted = await statements.execute("delete_unwanted_events", **all_kept, **some)
        deleted += await statements.execute("delete_replays", **kept, **some)
        subscriptions = await statements.all("old_subscriptions", _Id, **all_kept, **some)
        if subscriptions:
            ids = _json([each.id for each in subscriptions])
            await statements.execute("delete_secrets", ids=ids)
            await statements.execute("delete_subscriptions", ids=ids)
        await statements.execute("forbid_deletes")
        return len(sagas) + deleted + len(subscriptions)

    async def _delete_sagas(self, statements: Statements, ids: str, kept: dict[str, float]) -> None:
        for statement in ("delete_attempt_log", "delete_attempts", "delete_dead_letters"):
            await statements.execute(statement, ids=ids)
        events = await statements.all("delete_sagas", _OfEvent, ids=ids)
        await statements.execute("delete_events", of_events=_json(events), **kept)


def _json(values: Any) -> str:
    return msgspec.json.encode(values).decode()
