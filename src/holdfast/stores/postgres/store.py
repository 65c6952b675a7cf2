"""The store on PostgreSQL. What each verb promises stands in `holdfast.stores.protocol`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any, Final
from uuid import UUID

from holdfast.domain.breakers import BreakerSeen, Holding, Strike
from holdfast.domain.errors import DuplicateJob, StoreRefused, StoreUnavailable
from holdfast.domain.health.vitals import Patience, Vitals
from holdfast.domain.job import (
    Attempt,
    Claimed,
    Count,
    Filter,
    Job,
    Lease,
    Lost,
    NewJob,
    Page,
    Receipt,
    Reclaimed,
    Settlement,
    Standing,
)
from holdfast.domain.limits import (
    BREAKERS_LISTED_MAX,
    HELD_COUNTED_MAX,
    SUSPECTS_COUNTED_MAX,
    WORKERS_LISTED_MAX,
)
from holdfast.domain.overview import Ended, Pulse
from holdfast.domain.queues import QueueSeen
from holdfast.domain.retention import A_WEEK, Retention
from holdfast.domain.states import State
from holdfast.domain.why import Circumstances
from holdfast.domain.workers import Load, NewWorker, WorkerSeen
from holdfast.seam import Seam
from holdfast.stores.foreign import Driver
from holdfast.stores.postgres import schema
from holdfast.stores.postgres.breakers import Breakers
from holdfast.stores.postgres.caps import Caps
from holdfast.stores.postgres.claims import Claimer
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.enqueues import Enqueuer
from holdfast.stores.postgres.foreign import ForeignEnqueuer, PostgresEnrolled
from holdfast.stores.postgres.health import Examiner
from holdfast.stores.postgres.limits import Limits
from holdfast.stores.postgres.pages import PLANNED, fetch_page
from holdfast.stores.postgres.presence import Surroundings, greeting, to_worker
from holdfast.stores.postgres.reclaims import Reclaimer
from holdfast.stores.postgres.records import fetch, to_attempt, to_claimed, to_job
from holdfast.stores.postgres.settles import Settler, retention_values
from holdfast.stores.postgres.tidying import keep_days, tidy
from holdfast.stores.protocol import Canceled, Claim, Enrolled
from holdfast.stores.statements import Statement, load, read_sql
from holdfast.wakeups.postgres import PostgresListener, start_listening, tell_unavailable
from holdfast.wakeups.protocol import Heard


def _load_statements() -> dict[str, Statement]:
    files = ("jobs", "reads", "upkeep", "workers", "holds", "health", "pulse")
    text = "\n".join(read_sql("postgres", f"{name}.sql") for name in files)
    for part in (
        "told", "suspect", "by_id", "probes", "room", "no_room", "lanes", "take", "due", "shut",
        "unheld", "claimed", "reclaiming", "ending", "every_job", "in_block",
    ):  # fmt: skip
        text = text.replace(f"{{{part}}}", read_sql("postgres", f"{part}.sql").strip())
    return load(text, numbered=True)


STATEMENTS: Final[Mapping[str, Statement]] = _load_statements()
RENEW_SECONDS_MIN = 2.0  # to connect and to be answered, however short the leases are


class PostgresStore:
    def __init__(
        self,
        url: str,
        seam: Seam,
        *,
        pool_size: int = 4,
        retention: Retention = A_WEEK,
        lease_seconds: float = 30.0,
    ) -> None:
        self._seam = seam
        self._retention = retention
        limits = Limits(lease_seconds)
        self._connections = Connections(url, seam, pool_size, limits)
        self._caps = Caps(self._connections, STATEMENTS, seam)
        self._claimer = Claimer(self._fetch, self._caps, seam)
        self._breakers = Breakers(self._connections, STATEMENTS, self._caps)
        self._enqueuer = Enqueuer(STATEMENTS, self._connections.prolong)
        self._foreign_enqueuer = ForeignEnqueuer(STATEMENTS)
        self._settler = Settler(STATEMENTS, retention, limits.commit_seconds)
        self._reclaimer = Reclaimer(self._fetch_aside, retention, seam)
        self._surroundings = Surroundings(STATEMENTS)
        self._examiner = Examiner(self._connections, STATEMENTS, seam, retention, self._notify)

    async def open(self) -> None:
        await self._connections.run(lambda connection: schema.check(connection, self.address))

    async def close(self) -> None:
        await self._claimer.close()
        await self._connections.close()

    def abandon(self) -> None:
        self._connections.abandon()

    @property
    def address(self) -> str:
        return self._connections.address

    @property
    def pool_use(self) -> tuple[int, int]:
        return self._connections.use

    async def migrate(self) -> Sequence[str]:
        done = await self._connections.run(
            lambda connection: schema.migrate(connection, self.address), endless=True
        )
        await keep_days(self._fetch, self._retention)
        return done

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        if not jobs:
            return []
        return await self._connections.run(
            lambda connection: self._enqueuer.enqueue(connection, jobs)
        )

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        return await self._claimer.claim(claim)

    async def claim_suspect(self, claim: Claim) -> Claimed | None:
        rows = await self._caps.claim("claim_suspect", claim)
        return to_claimed(rows[0]) if rows else None

    async def suspects(self, names: Sequence[str], queues: Sequence[str] | None) -> int:
        rows = await self._fetch_aside(
            "suspects", names=names, queues=queues, limit=SUSPECTS_COUNTED_MAX
        )
        return int(rows[0][0])

    async def claim_by_id(self, job_id: UUID, worker: str, lease_seconds: float) -> Claimed | None:
        anywhere = Claim(worker, 1, lease_seconds, names=())
        rows = await self._caps.claim("claim_by_id", anywhere, job_id=job_id)
        return to_claimed(rows[0]) if rows else None

    async def renew(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lost]:
        # On a connection that has gone silent it would come too late: there is time for another.
        seconds = max(lease_seconds / 2, RENEW_SECONDS_MIN)
        try:
            async with asyncio.timeout(seconds):
                return await self._connections.run(
                    lambda connection: self._settler.renew(connection, leases, lease_seconds)
                )
        except TimeoutError as error:
            raise StoreUnavailable(
                f"PostgreSQL at {self.address} did not renew leases within {seconds:g} s"
            ) from error

    async def release_strays(self, worker: str, known: Sequence[Lease], limit: int) -> int:
        rows = await self._fetch(
            "release_strays",
            worker=worker,
            ids=[lease.job_id for lease in known],
            fences=[lease.fence for lease in known],
            limit=limit,
        )
        return int(rows[0][0])

    async def progress(self, lease: Lease, progress: bytes) -> bool:
        rows = await self._fetch(
            "progress", job_id=lease.job_id, fence=lease.fence, progress=progress
        )
        return bool(rows)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Lost]:
        return await self._connections.run(
            lambda connection: self._settler.settle(connection, settlements)
        )

    def lend(self, *, read_only: bool = False) -> AbstractAsyncContextManager[Any]:
        return self._connections.lend()

    def enrol(self, driver: Driver) -> Enrolled:
        return PostgresEnrolled(driver, self._foreign_enqueuer, self._settler, self.address)

    def holding(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def standing(self, job_id: UUID) -> Standing | None:
        # One after the other: what left the live jobs while we waited for it is in the history.
        rows = await self._fetch("standing", job_id=job_id) or await self._fetch(
            "standing_ended", job_id=job_id
        )
        return Standing(State(rows[0]["state"]), rows[0]["fence"]) if rows else None

    async def reclaim(
        self, limit: int, dead_worker: str | None = None, reason: str = ""
    ) -> Sequence[Reclaimed]:
        return await self._reclaimer.reclaim(limit, dead_worker, reason)

    async def tidy(self, limit: int) -> int:
        return await tidy(self._fetch_aside, self._retention, limit)

    async def cancel(
        self, job_ids: Sequence[UUID], *, waiting_only: bool = False
    ) -> Sequence[Canceled]:
        rows = await self._fetch(
            "cancel",
            ids=sorted(set(job_ids)),
            waiting_only=waiting_only,
            **retention_values(self._retention),
        )
        return [Canceled(row["id"], row["was_running"]) for row in rows]

    async def retry(self, job_id: UUID) -> bool:
        return bool(await self._fetch("retry", job_id=job_id))

    async def requeue(
        self, job_id: UUID, new_id: UUID, *, arguments: bytes | None = None, once: bool = False
    ) -> bool:
        try:
            rows = await self._fetch(
                "requeue",
                job_id=job_id,
                new_id=new_id,
                arguments=arguments,
                once=once,
                longest_seconds=self._retention.longest_seconds,
            )
            return bool(rows)
        except StoreRefused as error:
            if getattr(error.__cause__, "constraint_name", None) == "jobs_pkey":
                raise DuplicateJob(new_id) from error
            raise

    async def requeued(self, job_ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
        rows = await self._fetch("requeued", ids=list(job_ids))
        return {row["job_id"]: row["new_id"] for row in rows}

    async def get(self, job_id: UUID) -> Job | None:
        rows = await self._fetch("get", job_id=job_id)
        return to_job(rows[0]) if rows else None

    async def attempts(self, job_id: UUID) -> Sequence[Attempt]:
        return [to_attempt(row) for row in await self._fetch("attempts", job_id=job_id)]

    async def page(self, filter: Filter, limit: int, after: UUID | None = None) -> Page:
        return await fetch_page(self._fetch_planned, filter, limit, after)

    async def counts(self, tenant: str | None = None) -> Sequence[Count]:
        rows = await self._fetch_planned("counts", tenant=tenant)
        return [Count(row["queue"], State(row["state"]), row["jobs"]) for row in rows]

    async def queues(self) -> Sequence[QueueSeen]:
        return [QueueSeen(**dict(row)) for row in await self._fetch("queues")]

    async def pause(self, queue: str, by: str | None, because: str | None) -> bool:
        return bool(await self._fetch("pause", queue=queue, by=by, because=because))

    async def resume(self, queue: str) -> bool:
        return bool(await self._fetch("resume", queue=queue))

    async def cap(self, queue: str, running_max: int | None) -> None:
        await self._fetch("cap", queue=queue, running_max=running_max)
        self._caps.look_again()

    async def strike(self, strikes: Sequence[Strike]) -> Sequence[bool]:
        return await self._breakers.strike(strikes)

    async def open_breaker(self, key: str, by: str | None, because: str | None) -> None:
        await self._breakers.open(key, by, because)

    async def close_breaker(self, key: str, *, forget: bool = False, by_hand: bool = True) -> bool:
        if forget:
            return await self._breakers.forget(key)
        return await self._breakers.close(key, by_hand=by_hand)

    async def hold(self, limit: int) -> Holding:
        return await self._breakers.hold(limit)

    async def claim_probes(self, claim: Claim) -> Sequence[Claimed]:
        return await self._breakers.claim_probes(claim)

    async def breakers(self) -> Sequence[BreakerSeen]:
        rows = await self._fetch(
            "breakers", key=None, limit=BREAKERS_LISTED_MAX, held_max=HELD_COUNTED_MAX
        )
        return [BreakerSeen(**dict(row)) for row in rows]

    async def pulse(self, newest_max: int) -> Pulse:
        (clock,) = await self._fetch("now")
        ended = await self._fetch("ended_counts")
        newest = await self._fetch("newest_ended", limit=newest_max)
        return Pulse(
            now=clock["now"],
            ended=[Count(row["queue"], State(row["state"]), row["jobs"]) for row in ended],
            newest=[Ended(*row) for row in newest],
        )

    async def greet(self, worker: NewWorker, load: Load) -> None:
        await self._fetch("greet", **greeting(worker, load))

    async def see(self, worker_id: str, load: Load) -> bool:
        values = {"running": load.running, "full_queues": load.full_queues}
        return bool(await self._fetch("see", worker=worker_id, **values))

    async def leave(self, worker_id: str) -> None:
        await self._fetch("leave", worker=worker_id)

    async def workers(self) -> Sequence[WorkerSeen]:
        return [to_worker(row) for row in await self._fetch("workers", limit=WORKERS_LISTED_MAX)]

    async def circumstances(self, job_id: UUID) -> Circumstances | None:
        return await self._connections.run(
            lambda connection: self._surroundings.read(connection, job_id)
        )

    async def vitals(self, patience: Patience) -> Vitals:
        return await self._examiner.read(patience)

    async def awaited(
        self, names: Sequence[str], queues: Sequence[str] | None, within_seconds: float
    ) -> bool:
        rows = await self._fetch(
            "awaited", names=names, queues=queues, within_seconds=within_seconds
        )
        return bool(rows[0][0])

    async def unknown_names(
        self, names: Sequence[str], queues: Sequence[str] | None
    ) -> Sequence[str]:
        rows = await self._fetch_aside("unknown_names", names=names, queues=queues)
        return [row["name"] for row in rows]

    async def listen(self, heard: Heard) -> PostgresListener | None:
        if await self._connections.share_servers():
            # LISTEN would be kept by a session that others use.
            tell_unavailable(self.address)
            return None
        return await start_listening(
            heard,
            connect=self._connections.connect,
            notify=self._notify,
            random=self._seam.random,
            address=self.address,
            pooled=self._connections.pooled,
        )

    async def _notify(self, payload: str) -> None:
        await self._fetch("notify", payload=payload)

    async def _fetch(self, name: str, /, **values: Any) -> Sequence[Any]:
        return await self._connections.fetch(STATEMENTS[name], values)

    async def _fetch_aside(self, name: str, /, **values: Any) -> Sequence[Any]:
        """For upkeep, which must not keep claims from the connection that they know."""
        return await self._connections.fetch(STATEMENTS[name], values, aside=True)

    async def _fetch_planned(
        self, name: str, /, settings: str = PLANNED, **values: Any
    ) -> Sequence[Any]:
        async def work(connection: Any) -> Sequence[Any]:
            async with connection.transaction(readonly=True):
                await connection.execute(settings)
                return await fetch(connection, STATEMENTS[name], **values)

        return await self._connections.run(work)
