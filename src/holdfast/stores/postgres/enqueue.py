"""New jobs: plain ones in one statement, many with COPY, keyed ones after their keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any
from uuid import UUID

from holdfast.domain.batches import batches
from holdfast.domain.errors import BadArguments, DuplicateJob, IdempotencyConflict
from holdfast.domain.job import NewJob, Receipt
from holdfast.domain.limits import ENQUEUE_BATCH_MAX, ENQUEUE_BYTES_MAX
from holdfast.stores.postgres.failures import sqlstate
from holdfast.stores.postgres.rows import SQL, fetch_on

COPY_JOBS_MIN = 200
_UNIQUE_VIOLATION = "23505"
# Isolation levels in which no statement sees what was committed since the first.
ONE_SNAPSHOT = frozenset({"repeatable read", "serializable"})
# These statements name their parameters after the fields of a new job.
_MANY = SQL["enqueue"].parameters
_PLAIN_FIELDS = SQL["enqueue_plain"].parameters
_PLAIN = attrgetter(*_PLAIN_FIELDS)
_ONE = attrgetter(*SQL["enqueue_one"].parameters)
# Fields that few jobs have, and their columns.
_IF_GIVEN = {
    "named_tenant": "tenant",
    "correlation_id": "correlation_id",
    "tags": "tags",
    "breaker": "breaker",
    "trace": "trace",
    "parent_id": "parent_id",
}
_GIVEN = attrgetter(*_IF_GIVEN)

Key = tuple[str, str]


class Enqueuer:
    """Call `prolong` with the connection after each of several statements of one call."""

    def __init__(self, prolong: Callable[[Any], None] = lambda connection: None) -> None:
        self._prolong = prolong
        self.may_copy = True

    async def enqueue(self, connection: Any, jobs: Sequence[NewJob]) -> list[Receipt]:
        """Record all jobs or none; after an error, retry the whole call."""
        try:
            if len(jobs) == 1 and _is_simple(jobs[0]):
                await self._insert(connection, jobs)
            elif any(job.idempotency_key is not None for job in jobs):
                return await self._enqueue_keyed(connection, jobs)
            elif any(job.id_is_chosen for job in jobs):
                async with connection.transaction():
                    await self._insert(connection, jobs)
                    await self._refuse_ended(connection, jobs)
            elif len(jobs) >= COPY_JOBS_MIN and self.may_copy and all(map(_is_plain, jobs)):
                await self._copy(connection, jobs)
            else:
                await self._insert(connection, jobs)
        except Exception as error:
            if duplicate := _duplicate_id(error, jobs):
                raise DuplicateJob(duplicate) from error
            raise
        return [Receipt(job.id, True) for job in jobs]

    async def _insert(self, connection: Any, jobs: Sequence[NewJob]) -> None:
        if len(jobs) == 1:
            await self._insert_one(connection, jobs[0])
        else:
            await self._insert_many(connection, jobs)

    async def _insert_many(self, connection: Any, jobs: Sequence[NewJob]) -> None:
        parts = _parts(jobs)
        if len(parts) == 1:
            await self._insert_part(connection, jobs)
            return
        async with connection.transaction():
            for part in parts:
                await self._insert_part(connection, part)
                self._prolong(connection)

    async def _insert_part(self, connection: Any, jobs: Sequence[NewJob]) -> None:
        values = {field: list(map(attrgetter(field), jobs)) for field in _MANY}
        values["tags"] = list(map(array_literal, values["tags"]))
        await self._fetch(connection, "enqueue", **values)

    async def _refuse_ended(self, connection: Any, jobs: Sequence[NewJob]) -> None:
        """Look for chosen ids in the history, after the insert and in its transaction.

        A later snapshot than the insert's finds jobs that ended in between.
        """
        chosen = [job.id for job in jobs if job.id_is_chosen]
        if not chosen:
            return
        (found,) = await self._fetch(connection, "ended_id", ids=chosen)
        if found["ended"] is not None:
            raise DuplicateJob(UUID(found["ended"]))
        if found["isolation"] in ONE_SNAPSHOT:
            raise BadArguments(
                f"the transaction is {found['isolation'].upper()}: it does not see jobs that ended"
                f" since its first statement, so job {chosen[0]} could run twice; enqueue it in a"
                " READ COMMITTED transaction, or with an idempotency key instead of an id"
            )

    async def _insert_one(self, connection: Any, job: NewJob) -> None:
        if _is_simple(job) and _is_plain(job) and not any(_GIVEN(job)):
            # Every additional parameter costs half a percent.
            await connection.fetch(SQL["enqueue_plain"].sql, *_PLAIN(job))
        else:
            await connection.fetch(SQL["enqueue_one"].sql, *_ONE(job))

    async def _copy(self, connection: Any, jobs: Sequence[NewJob]) -> None:
        given = [field for field in _IF_GIVEN if any(map(attrgetter(field), jobs))]
        columns = [*_PLAIN_FIELDS, *(_IF_GIVEN[field] for field in given)]
        values_of = attrgetter(*_PLAIN_FIELDS, *given)
        async with connection.transaction():
            for part in _parts(jobs):
                await connection.copy_records_to_table(
                    "jobs",
                    schema_name="holdfast",
                    columns=columns,
                    records=map(values_of, part),
                )
                self._prolong(connection)
            queues = sorted({job.queue for job in jobs})
            await fetch_on(connection, "notify_queues", queues=queues)

    async def _enqueue_keyed(self, connection: Any, jobs: Sequence[NewJob]) -> list[Receipt]:
        first: dict[Key, NewJob] = {}
        for job in jobs:
            if job.idempotency_key is not None:
                first.setdefault(_key(job), job)
        async with connection.transaction():
            holders = await self._keep_keys(connection, first)
            receipts = [_receipt(job, holders, first) for job in jobs]
            created = [job for job, receipt in zip(jobs, receipts, strict=True) if receipt.created]
            if created:
                await self._insert(connection, created)
                await self._refuse_ended(connection, created)
        return receipts

    async def _keep_keys(
        self, connection: Any, first: Mapping[Key, NewJob]
    ) -> dict[Key, tuple[UUID, bytes]]:
        """Take the free keys; return the holders of the others.

        Wait for a key that another transaction is taking: it is ours if that one rolls back. Take
        keys in order, so that two batches can't wait for each other.
        """
        keys = sorted(first)
        jobs = [first[key] for key in keys]
        taken = await self._fetch(
            connection,
            "keep_keys",
            tenants=[tenant for tenant, _ in keys],
            keys=[key for _, key in keys],
            job_ids=[job.id for job in jobs],
            body_hashes=[job.body_hash or b"" for job in jobs],
            kept_seconds=[job.key_kept_seconds for job in jobs],
        )
        missed = sorted(set(keys) - {(row["tenant"], row["key"]) for row in taken})
        if not missed:
            return {}
        kept = await self._fetch(
            connection,
            "kept_keys",
            tenants=[tenant for tenant, _ in missed],
            keys=[key for _, key in missed],
            hashes=[each for key in missed for each in first[key].hashes],
        )
        return {(row["tenant"], row["key"]): (row["job_id"], row["body_hash"]) for row in kept}

    async def _fetch(self, connection: Any, name: str, /, **values: object) -> Sequence[Any]:
        return await fetch_on(connection, name, **values)


def _parts(jobs: Sequence[NewJob]) -> list[Sequence[NewJob]]:
    """Split into what one statement may carry; usually that is all."""
    if sum([len(job.arguments) for job in jobs]) <= ENQUEUE_BYTES_MAX:
        return [jobs]
    return list(batches(jobs, ENQUEUE_BATCH_MAX, ENQUEUE_BYTES_MAX, lambda job: len(job.arguments)))


def _key(job: NewJob) -> Key:
    return (job.named_tenant or "", job.idempotency_key or "")


def _receipt(
    job: NewJob, holders: Mapping[Key, tuple[UUID, bytes]], first: Mapping[Key, NewJob]
) -> Receipt:
    if job.idempotency_key is None:
        return Receipt(job.id, True)
    key = _key(job)
    if key not in holders and first[key] is job:
        return Receipt(job.id, True)
    holder, body_hash = holders.get(key) or (first[key].id, first[key].body_hash or b"")
    if not job.has_body(body_hash):
        raise IdempotencyConflict(job.idempotency_key, holder)
    return Receipt(holder, False)


def _is_simple(job: NewJob) -> bool:
    return job.idempotency_key is None and not job.id_is_chosen


def _is_plain(job: NewJob) -> bool:
    """COPY computes nothing, so the job must be due at the column's default: now."""
    return job.delay_seconds <= 0 and job.run_at is None and job.expires_in_seconds is None


def array_literal(values: Sequence[str | None]) -> str:
    """Write a text array as a PostgreSQL literal: arrays of arrays must not be ragged."""
    quoted = (value and value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join("NULL" if value is None else f'"{value}"' for value in quoted) + "}"


def _duplicate_id(error: Exception, jobs: Sequence[NewJob]) -> UUID | None:
    if sqlstate(error) != _UNIQUE_VIOLATION:
        return None
    detail = getattr(error, "detail", None) or ""
    return next((job.id for job in jobs if str(job.id) in detail), None)
