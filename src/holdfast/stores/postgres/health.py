"""How a PostgreSQL database is, read in small steps with a time limit each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from holdfast.domain.breakers import BreakerSeen
from holdfast.domain.errors import HoldfastError
from holdfast.domain.health.vitals import (
    Clock,
    Connections,
    Due,
    Holder,
    Holders,
    IndexSeen,
    JobsTable,
    LeftHistory,
    Patience,
    Paused,
    Pooler,
    Stuck,
    Vitals,
    WakeupTrial,
    Workload,
)
from holdfast.domain.health.words import without_values
from holdfast.domain.limits import (
    BREAKERS_LISTED_MAX,
    DUE_COUNTED_MAX,
    DUE_LANES_MAX,
    HELD_COUNTED_MAX,
    LEFTOVERS_COUNTED_MAX,
    STUCK_COUNTED_MAX,
    WORKERS_LISTED_MAX,
)
from holdfast.domain.retention import Retention
from holdfast.seam import Seam
from holdfast.stores import migrations
from holdfast.stores.postgres import connections, schema
from holdfast.stores.postgres.presence import to_worker
from holdfast.stores.statements import Statement
from holdfast.wakeups.postgres import CHECK_SECONDS, PostgresListener

T = TypeVar("T")

# Nobody is to wait for an examination, and it waits for nobody.
_LIMITS: Final = "SET LOCAL statement_timeout = '3s'; SET LOCAL lock_timeout = '1s'"
_ANSWERS: Final = 3
_TRIAL_SECONDS_MAX: Final = 10.0
_PAST_DAYS_LATE: Final = 2


class Examiner:
    """Reads part by part; a part that can't be read is noted and left out."""

    def __init__(
        self,
        pool: connections.Connections,
        statements: Mapping[str, Statement],
        seam: Seam,
        retention: Retention,
        notify: Callable[[str], Awaitable[None]],
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._seam = seam
        self._retention = retention
        self._notify = notify
        self._unread: dict[str, str] = {}

    async def read(self, patience: Patience) -> Vitals:
        self._unread = {}
        answer_seconds, clock = await self._answers()
        (server,) = await self._fetch("vital_server")
        known = migrations.steps("postgres")[-1].version
        version = await self._part("the schema", self._pool.run(schema.version_of))
        fits = version in (known, known + 1)
        read_only_because = _read_only_because(server)
        pooler = await self._part("the pooler", self._pooler())
        return Vitals(
            product=f"PostgreSQL {server['version'].partition(' ')[0]} at {self._pool.address}",
            answer_seconds=answer_seconds,
            schema_version=version,
            schema_known=known,
            encoding=server["encoding"],
            writable=read_only_because is None,
            read_only_because=read_only_because,
            settings={
                name: server[name] for name in ("fsync", "full_page_writes", "synchronous_commit")
            },
            clock=clock,
            connections=await self._part("connections", self._connections()),
            pooler=pooler,
            wakeups=await self._try_wakeup(pooler),
            holders=await self._part("what holds back vacuum", self._holders(patience)),
            jobs_table=await self._part("the table of jobs", self._jobs_table())
            if version
            else None,
            indexes=await self._part("indexes", self._indexes(version)) if version else None,
            workload=await self._part("jobs and workers", self._workload(patience))
            if fits
            else None,
            history=await self._part("the history", self._history()) if fits else None,
            unread=self._unread,
        )

    async def _part(self, name: str, reading: Awaitable[T]) -> T | None:
        try:
            return await reading
        except HoldfastError as error:
            self._unread[name] = str(error)
            return None

    async def _fetch(self, name: str, /, **values: object) -> Sequence[Any]:
        statement = self._statements[name]

        async def work(connection: Any) -> Sequence[Any]:
            async with connection.transaction(readonly=True):
                await connection.execute(_LIMITS)
                rows: Sequence[Any] = await connection.fetch(
                    statement.sql, *statement.arguments(values)
                )
                return rows

        return await self._pool.run(work)

    async def _answers(self) -> tuple[float, Clock]:
        """Ask for the time a few times: the quickest answer tells most about the clock."""

        async def ask(connection: Any) -> tuple[float, Clock]:
            before, began = self._seam.now(), self._seam.monotonic()
            row = await connection.fetchrow(self._statements["vital_time"].sql)
            seconds = self._seam.monotonic() - began
            ahead_seconds = (row["now"] - before).total_seconds() - seconds / 2
            return seconds, Clock(ahead_seconds=ahead_seconds, error_seconds=seconds / 2)

        asked = [await self._pool.run(ask) for _ in range(_ANSWERS)]
        return min(asked, key=lambda each: each[0])

    async def _connections(self) -> Connections:
        (row,) = await self._fetch("vital_connections")
        return Connections(**dict(row))

    async def _pooler(self) -> Pooler:
        if not self._pool.pooled:
            return Pooler.NONE
        return Pooler.TRANSACTION if await self._pool.share_servers() else Pooler.SESSION

    async def _try_wakeup(self, pooler: Pooler | None) -> WakeupTrial:
        """Listen on a connection of our own, and send ourselves what workers pass over."""
        if pooler is Pooler.TRANSACTION:
            return WakeupTrial(seconds=None, because="a pooler in transaction mode")
        listener = PostgresListener(
            lambda wakeup: None,
            self._pool.connect,
            self._seam.random,
            self._pool.address,
            self._pool.pooled,
            CHECK_SECONDS,
        )
        try:
            async with asyncio.timeout(_TRIAL_SECONDS_MAX):
                await listener.start()
                began = self._seam.monotonic()
                if await listener.hears_itself(self._notify):
                    return WakeupTrial(seconds=self._seam.monotonic() - began)
            return WakeupTrial(seconds=None, because="it was sent and did not come")
        except Exception as error:  # a driver's, too: whatever it is, the trial has failed
            return WakeupTrial(seconds=None, because=str(error) or type(error).__name__)
        finally:
            await listener.close()

    async def _holders(self, patience: Patience) -> Holders:
        rows = await self._fetch("vital_holders", transaction_seconds=patience.transaction_seconds)
        (hidden,) = await self._fetch("vital_hidden")
        return Holders(holders=[_to_holder(row) for row in rows], **dict(hidden))

    async def _jobs_table(self) -> JobsTable:
        (row,) = await self._fetch("vital_jobs_table")
        return JobsTable(**dict(row))

    async def _indexes(self, version: int | None) -> list[IndexSeen]:
        found = {row["name"]: dict(row) for row in await self._fetch("vital_indexes")}
        known = migrations.steps("postgres")[-1].version
        wanted = migrations.indexes("postgres", min(version or 0, known))
        return [
            IndexSeen(**found[name], create=create, there=True)
            if name in found
            else IndexSeen(name=name, create=_concurrently(create), there=False)
            for name, create in wanted.items()
        ]

    async def _workload(self, patience: Patience) -> Workload:
        (time,) = await self._fetch("vital_time")
        workers = await self._fetch("workers", limit=WORKERS_LISTED_MAX)
        due = await self._fetch(
            "vital_due", queues=None, lanes_max=DUE_LANES_MAX, limit=DUE_COUNTED_MAX
        )
        (stuck,) = await self._fetch(
            "vital_stuck", stuck_seconds=patience.stuck_seconds, limit=STUCK_COUNTED_MAX
        )
        breakers = await self._fetch(
            "breakers", key=None, limit=BREAKERS_LISTED_MAX, held_max=HELD_COUNTED_MAX
        )
        return Workload(
            now=time["now"],
            workers=[to_worker(row) for row in workers],
            due=[Due(**dict(row)) for row in due],
            stuck=Stuck(**dict(stuck)),
            paused=[Paused(**dict(row)) for row in await self._fetch("vital_paused")],
            breakers=[BreakerSeen(**dict(row)) for row in breakers],
        )

    async def _history(self) -> LeftHistory:
        days = await self._fetch(
            "history_days",
            kept_seconds=self._retention.possible_seconds(),
            ahead=1,
            limit=0,
        )
        (left,) = await self._fetch(
            "vital_history", limit=LEFTOVERS_COUNTED_MAX, late_days=_PAST_DAYS_LATE
        )
        (time,) = await self._fetch("vital_time")
        today = time["now"].date()
        return LeftHistory(
            missing_days=[row["day"] for row in days if not row["is_past"]],
            past_days=[
                row["day"]
                for row in days
                if row["is_past"] and (today - row["day"]).days > _PAST_DAYS_LATE
            ],
            **dict(left),
        )


def _read_only_because(server: Any) -> str | None:
    if server["is_standby"]:
        return "it is a standby"
    return "default_transaction_read_only is on" if server["is_read_only"] else None


def _to_holder(row: Any) -> Holder:
    values = dict(row)
    if values["query"] is not None:
        values["query"] = without_values(values["query"])
    return Holder(**values)


def _concurrently(create: str) -> str:
    """Without keeping writers out, which the index of a partitioned table can't be made."""
    if " ON holdfast.history (" in create:
        return create
    return create.replace("INDEX ", "INDEX CONCURRENTLY ", 1)
