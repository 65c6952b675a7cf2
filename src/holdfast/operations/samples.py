"""Samples of the queues: taken by every process that runs or leases jobs, and read for charts.

There is no leader. Whoever comes first in a bucket looks at the queues, and all add what their
attempts came to. So a process that dies loses ten seconds of its own counts, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from typing import Any, Final

import msgspec

from holdfast.domain import limits
from holdfast.domain.errors import BadArguments
from holdfast.domain.samples import (
    ALL_QUEUES,
    FINEST,
    RESOLUTIONS,
    QueueSamples,
    Sample,
    Samples,
    Span,
    bucket,
    choose_span,
    moment_of,
    with_gaps,
)
from holdfast.domain.texts import check_text
from holdfast.observability.throughput import Throughput
from holdfast.operations.desk import Desk
from holdfast.operations.own_tables import OwnTables
from holdfast.runtime.blocking import blocking
from holdfast.stores.protocol import Transactions, capability
from holdfast.transactions.tables import Statements

POINTS: Final = 120
QUEUE_POINTS: Final = 30
_HOUR: Final = timedelta(hours=1)


class Row(msgspec.Struct, frozen=True):
    """What the statements return. `at` is in seconds since 1970."""

    at: int
    covered_seconds: int
    ready: int | None
    scheduled: int | None
    parked: int | None
    running: int | None
    oldest_seconds: float | None
    succeeded: int
    retried: int
    failed: int
    canceled: int
    p50_seconds: float | None
    p95_seconds: float | None
    queue: str = ALL_QUEUES

    def sample(self) -> Sample:
        values = {name: getattr(self, name) for name in Sample.__struct_fields__}
        return Sample(**values | {"at": moment_of(self.at)})


class SampleReader:
    """`hf.samples`: how queues were doing, for charts. Stores without transactions keep none."""

    def __init__(self, desk: Desk, own: OwnTables) -> None:
        self._desk = desk
        self._own = own
        self._run_sync = desk.run_sync

    async def get(
        self,
        queue: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        points: int = POINTS,
    ) -> Samples:
        """Return the samples of a queue, or of all queues together, by default of the last hour.

        There are at most `points` samples, all of the same length, and older times have coarser
        ones: 10 seconds for 2 hours, a minute for 2 days, 15 minutes for 30 days.
        """
        check_text("queue", queue)
        if queue == ALL_QUEUES:
            raise BadArguments("the queue must not be empty; leave it out for all queues")
        span = await self._span(since, until, points)
        rows = await self._rows("samples", span, queue=queue or ALL_QUEUES)
        return Samples(
            queue=queue,
            since=moment_of(span.since),
            until=moment_of(span.until),
            step_seconds=span.step_seconds,
            samples=with_gaps(span, [row.sample() for row in rows]),
        )

    async def by_queue(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        points: int = QUEUE_POINTS,
    ) -> QueueSamples:
        """Return the samples of each queue that had jobs, at most of the first 100 by name."""
        span = await self._span(since, until, points)
        rows = await self._rows("samples_by_queue", span)
        by_queue = {name: list(found) for name, found in groupby(rows, lambda row: row.queue)}
        sampled = {row.at: row.covered_seconds for row in by_queue.pop(ALL_QUEUES, [])}
        return QueueSamples(
            since=moment_of(span.since),
            until=moment_of(span.until),
            step_seconds=span.step_seconds,
            queues={name: _filled(span, sampled, found) for name, found in by_queue.items()},
        )

    async def _span(self, since: datetime | None, until: datetime | None, points: int) -> Span:
        now = await (await self._desk.store()).now()
        return choose_span(since or (until or now) - _HOUR, until or now, now, points)

    async def _rows(self, statement: str, span: Span, **values: Any) -> list[Row]:
        if capability(await self._desk.store(), Transactions) is None or not span.starts:
            return []
        async with self._own.transaction(read_only=True) as (_, statements):
            return await statements.all(
                statement,
                Row,
                seconds=span.resolution.seconds,
                since=span.since,
                until=span.until,
                step=span.step_seconds,
                **values,
            )

    get_sync = blocking(get)
    by_queue_sync = blocking(by_queue)


def _filled(span: Span, sampled: dict[int, int], found: Sequence[Row]) -> list[Sample]:
    """Where others have samples and this queue has none, it had no jobs."""
    rows = {row.at: row for row in found}
    return with_gaps(
        span,
        [
            msgspec.structs.replace(rows.get(at) or _quiet(at), covered_seconds=seconds).sample()
            for at, seconds in sampled.items()
        ],
    )


def _quiet(at: int) -> Row:
    return Row(at, 0, 0, 0, 0, 0, 0.0, 0, 0, 0, 0, None, None)


class Sampling:
    """Takes this process's part of the samples."""

    def __init__(self, desk: Desk, own: OwnTables, throughput: Throughput) -> None:
        self._desk = desk
        self._own = own
        self._throughput = throughput

    async def take(self, moment: float | None = None) -> bool:
        """Add what this process's attempts came to since the last call, and look at the queues
        unless somebody has in this bucket. Return whether this call did. `moment` is the time in
        seconds since 1970, by default that of the database."""
        if not await self._own.are_there():
            return False
        now = (await (await self._desk.store()).now()).timestamp() if moment is None else moment
        at = bucket(now, FINEST.seconds)
        async with self._own.one_by_one() as statements:
            await self._add(statements, at)
            if await statements.value("sampled", bucket=at) or not await _look(statements, at, now):
                return False
            await _roll_up(statements, at)
        return True

    async def _add(self, statements: Statements, at: int) -> None:
        if not (ended := self._throughput.take()):
            return
        try:
            await statements.value(
                "add_to_samples",
                bucket=at,
                ended=msgspec.json.encode(ended).decode(),
                queues_max=limits.SAMPLED_QUEUES_MAX,
            )
        except BaseException:
            self._throughput.give_back(ended)
            raise


async def _look(statements: Statements, at: int, now: float) -> bool:
    found = await statements.value(
        "sample_queues",
        bucket=at,
        moment=now,
        queues_max=limits.SAMPLED_QUEUES_MAX,
        lanes_max=limits.SAMPLED_LANES_MAX,
        jobs_max=limits.SAMPLED_JOBS_MAX,
    )
    return bool(found)


async def _roll_up(statements: Statements, at: int) -> None:
    """Roll up what ended a bucket ago, when even slow processes have added to it, and delete what
    is no longer kept."""
    for fine, coarse in pairwise(RESOLUTIONS):
        await statements.value(
            "roll_up_samples", fine=fine.seconds, coarse=coarse.seconds, until=at - FINEST.seconds
        )
    for each in RESOLUTIONS:
        await statements.value(
            "delete_samples",
            length=each.seconds,
            before=at - each.kept_seconds,
            rows_max=limits.SAMPLES_DELETED_MAX,
        )
