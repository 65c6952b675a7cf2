"""What keeps a job waiting, and the health of a PostgreSQL database.

An examination reads the database in small steps, each with a time limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from holdfast.domain import limits
from holdfast.domain.diagnosis.vitals import (
    LATELY_SECONDS,
    Capped,
    Clock,
    Connections,
    Due,
    EndedLately,
    Ends,
    Failure,
    HandedBack,
    Holder,
    Holders,
    IndexStatus,
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
from holdfast.domain.diagnosis.words import without_values
from holdfast.domain.errors import HoldfastError, StoreUnavailable
from holdfast.domain.retention import Retention
from holdfast.domain.roles import RoleDifference
from holdfast.domain.states import State
from holdfast.domain.why import Circumstances
from holdfast.runtime.seam import Seam
from holdfast.stores import migrations
from holdfast.stores.postgres import breakers, connections, queries, queues, roles, schema, workers
from holdfast.stores.postgres.rows import SQL, fetch_on
from holdfast.wakeups.postgres import CHECK_SECONDS, PostgresListener

T = TypeVar("T")

# An examination blocks nobody, and waits for nobody.
_LIMITS: Final = "SET LOCAL statement_timeout = '3s'; SET LOCAL lock_timeout = '1s'"
_ANSWERS: Final = 3
_TRIAL_SECONDS_MAX: Final = 10.0
_PAST_DAYS_LATE: Final = 2


async def circumstances(connection: Any, job_id: UUID) -> Circumstances | None:
    """Read everything that `explain` needs in one snapshot."""
    fetch = partial(fetch_on, connection)
    async with _snapshot(connection):
        job = await queries.get(fetch, job_id)
        if job is None:
            return None
        attempts = await queries.attempts(fetch, job_id)
        (around,) = await fetch(
            "surroundings", job_id=job_id, queues=[job.queue], limit=limits.AHEAD_COUNTED_MAX + 1
        )
        breaker = [] if job.breaker is None else await breakers.breakers(fetch, job.breaker)
        return Circumstances(
            job=job,
            last_attempt=attempts[-1] if attempts else None,
            workers=await workers.workers(fetch),
            queue=await queues.queue(fetch, job.queue),
            breaker=next(iter(breaker), None),
            **around,
        )


class Examiner:
    """Reads the database part by part; notes and leaves out a part that can't be read."""

    def __init__(
        self,
        pool: connections.Connections,
        seam: Seam,
        retention: Retention,
        notify: Callable[[str], Awaitable[None]],
    ) -> None:
        self._pool = pool
        self._seam = seam
        self._retention = retention
        self._notify = notify
        self._unread: dict[str, str] = {}

    async def vitals(self, patience: Patience) -> Vitals:
        self._unread = {}
        answer_seconds, clock = await self._answers()
        (server,) = await self._fetch("vital_server")
        known = migrations.steps("postgres")[-1].version
        version = await self._part("the schema", lambda: self._pool.run(schema.version_of))
        fits = version in (known, known + 1)
        read_only_because = _read_only_because(server)
        pooler = await self._part("the pooler", self._pooler)
        return Vitals(
            product=f"PostgreSQL {server['version'].partition(' ')[0]} at {self._pool.address}",
            answer_seconds=answer_seconds,
            schema_version=version,
            schema_known=known,
            encoding=server["encoding"],
            # Who only reads does not ask for more.
            writable=None if self._pool.read_only else read_only_because is None,
            read_only_because=read_only_because,
            behind_seconds=server["behind_seconds"] if self._pool.read_only else None,
            settings={
                name: server[name] for name in ("fsync", "full_page_writes", "synchronous_commit")
            },
            clock=clock,
            connections=await self._part("connections", self._connections),
            pooler=pooler,
            wakeups=await self._try_wakeup(pooler, server["is_standby"]),
            holders=await self._part("what holds back vacuum", lambda: self._holders(patience)),
            jobs_table=await self._part("the table of jobs", self._jobs_table, version),
            indexes=await self._part("indexes", lambda: self._indexes(version or 0), version),
            workload=await self._part("jobs and workers", lambda: self._workload(patience), fits),
            ended=await self._part("ended jobs", self._ended, fits),
            history=await self._part("the history", self._history, fits),
            role_differences=await self._part("roles", self._role_differences, fits),
            unread=self._unread,
        )

    async def _part(
        self, name: str, read: Callable[[], Awaitable[T]], fits: object = True
    ) -> T | None:
        """Read a part if the schema `fits`; None if it doesn't, or the part can't be read."""
        try:
            return await read() if fits else None
        except HoldfastError as error:
            self._unread[name] = str(error)
            return None

    async def _fetch(self, name: str, /, **values: object) -> Sequence[Any]:
        return await self._pool.read(_LIMITS, SQL[name], values)

    async def _answers(self) -> tuple[float, Clock]:
        """Ask for the time a few times: the fastest answer says most about the clock."""

        async def ask(connection: Any) -> tuple[float, Clock]:
            before, began = self._seam.now(), self._seam.monotonic()
            row = await connection.fetchrow(SQL["vital_time"].sql)
            seconds = self._seam.monotonic() - began
            ahead_seconds = (row["now"] - before).total_seconds() - seconds / 2
            return seconds, Clock(ahead_seconds=ahead_seconds, error_seconds=seconds / 2)

        asked = [await self._pool.run(ask) for _ in range(_ANSWERS)]
        return min(asked, key=lambda each: each[0])

    async def _connections(self) -> Connections:
        (row,) = await self._fetch("vital_connections")
        return Connections(**row)

    async def _pooler(self) -> Pooler:
        if not self._pool.pooled:
            return Pooler.NONE
        return Pooler.TRANSACTION if await self._pool.share_servers() else Pooler.SESSION

    async def _try_wakeup(self, pooler: Pooler | None, is_standby: bool) -> WakeupTrial | None:
        """Listen on a separate connection, and send ourselves what workers ignore; None if no
        connection is left for that, or for a replica that is only to be read."""
        if is_standby and self._pool.read_only:
            return None
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
            return WakeupTrial(seconds=None, because="it was sent and did not arrive")
        except Exception as error:  # also the driver's: whatever it is, the trial has failed
            if isinstance(error, StoreUnavailable) and error.connections_used_up:
                return None
            return WakeupTrial(seconds=None, because=str(error) or type(error).__name__)
        finally:
            await listener.close()

    async def _holders(self, patience: Patience) -> Holders:
        rows = await self._fetch("vital_holders", transaction_seconds=patience.transaction_seconds)
        (hidden,) = await self._fetch("vital_hidden")
        return Holders(holders=[_to_holder(row) for row in rows], **hidden)

    async def _jobs_table(self) -> JobsTable:
        (row,) = await self._fetch("vital_jobs_table")
        return JobsTable(**row)

    async def _indexes(self, version: int) -> list[IndexStatus]:
        found = {row["name"]: row for row in await self._fetch("vital_indexes")}
        known = migrations.steps("postgres")[-1].version
        wanted = migrations.indexes("postgres", min(version, known))
        return [
            IndexStatus(**found[name], create=create, there=True)
            if name in found
            else IndexStatus(name=name, create=_concurrently(create), there=False)
            for name, create in wanted.items()
        ]

    async def _workload(self, patience: Patience) -> Workload:
        (time,) = await self._fetch("vital_time")
        due = await self._fetch(
            "vital_due", queues=None, lanes_max=limits.DUE_LANES_MAX, limit=limits.DUE_COUNTED_MAX
        )
        handed_back = await self._fetch(
            "vital_handed_back",
            queues=None,
            lanes_max=limits.DUE_LANES_MAX,
            around_seconds=limits.HAND_BACK_SECONDS_MAX,
            limit=limits.HANDED_BACK_LOOK_MAX,
        )
        (stuck,) = await self._fetch(
            "vital_stuck", stuck_seconds=patience.stuck_seconds, limit=limits.STUCK_COUNTED_MAX
        )
        return Workload(
            now=time["now"],
            workers=await workers.workers(self._fetch),
            due=[Due(**row) for row in due],
            handed_back=[HandedBack(**row) for row in handed_back],
            stuck=Stuck(**stuck),
            paused=[Paused(**row) for row in await self._fetch("vital_paused")],
            capped=[Capped(**row) for row in await self._fetch("vital_capped")],
            breakers=await breakers.breakers(self._fetch),
        )

    async def _ended(self) -> EndedLately:
        since = {"lately_seconds": LATELY_SECONDS}
        ends = await self._fetch("vital_ends", **since, limit=limits.ENDED_LOOK_MAX)
        failures = await self._fetch("vital_failures", **since, limit=limits.FAILURES_LOOK_MAX)
        return EndedLately(
            ends=[Ends(**{**dict(row), "state": State(row["state"])}) for row in ends],
            failures=[Failure(**row) for row in failures],
        )

    async def _role_differences(self) -> Sequence[RoleDifference] | None:
        async def compare(connection: Any) -> Sequence[RoleDifference] | None:
            found = await roles.installed(connection)
            return None if found is None else await roles.differences(connection, found)

        return await self._pool.run(compare, settings=f"SET TRANSACTION READ ONLY; {_LIMITS}")

    async def _history(self) -> LeftHistory:
        days = await self._fetch(
            "history_days",
            kept_seconds=self._retention.possible_seconds(),
            ahead=1,
            limit=0,
        )
        (left,) = await self._fetch(
            "vital_history", limit=limits.LEFTOVERS_COUNTED_MAX, late_days=_PAST_DAYS_LATE
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
            **left,
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
    """Build the index without blocking writers, which a partitioned table can't."""
    if " ON holdfast.history (" in create:
        return create
    return create.replace("INDEX ", "INDEX CONCURRENTLY ", 1)


@asynccontextmanager
async def _snapshot(connection: Any) -> AsyncIterator[None]:
    """Read everything in one snapshot."""
    if connection.is_in_transaction():  # behind a pooler, `run` has begun one
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield
        return
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        yield
