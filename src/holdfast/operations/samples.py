"""Samples of the queues: taken by every process that runs or leases jobs, and read for charts.

There is no leader. Whoever comes first in a bucket looks at the queues, and all add what their
attempts came to. So a process that dies loses ten seconds of its own counts, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby, pairwise, product
from typing import Any, Final, TypeAlias

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
from holdfast.domain.waits import Waits, percentiles
from holdfast.observability.throughput import Throughput
from holdfast.operations.desk import Desk
from holdfast.operations.own_tables import OwnTables
from holdfast.runtime.blocking import blocking
from holdfast.stores.protocol import Transactions, capability
from holdfast.transactions.tables import Statements

SAMPLES: Final = ("samples", "waits")
SAMPLES_BY_QUEUE: Final = ("samples_by_queue", "waits_by_queue")
NO_WAITS: Final[Waits] = {}
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

    def sample(self, waits: Waits = NO_WAITS) -> Sample:
        values = {name: getattr(self, name) for name in self.__struct_fields__ if name != "queue"}
        return Sample(**values | _waited(waits) | {"at": moment_of(self.at)})


# By queue and start. Where a statement reads one queue, that is ALL_QUEUES.
WaitsByPlace: TypeAlias = dict[tuple[str, int], dict[int, int]]


class WaitRow(msgspec.Struct, frozen=True):
    at: int
    up_to_ms: int
    jobs: int
    queue: str = ALL_QUEUES


def _waited(waits: Waits) -> dict[str, float]:
    found = percentiles(waits)
    return {} if found is None else {f"wait_{name}": at for name, at in found._asdict().items()}


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
        rows, waits = await self._read(SAMPLES, span, queue=queue or ALL_QUEUES)
        return Samples(
            queue=queue,
            since=moment_of(span.since),
            until=moment_of(span.until),
            step_seconds=span.step_seconds,
            samples=with_gaps(
                span, [row.sample(waits.get((row.queue, row.at), NO_WAITS)) for row in rows]
            ),
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
        rows, waits = await self._read(SAMPLES_BY_QUEUE, span)
        by_queue = {name: list(found) for name, found in groupby(rows, lambda row: row.queue)}
        sampled = {row.at: row.covered_seconds for row in by_queue.pop(ALL_QUEUES, [])}
        return QueueSamples(
            since=moment_of(span.since),
            until=moment_of(span.until),
            step_seconds=span.step_seconds,
            queues={name: _filled(span, sampled, found, waits) for name, found in by_queue.items()},
        )

    async def _span(self, since: datetime | None, until: datetime | None, points: int) -> Span:
        now = await (await self._desk.store()).now()
        return choose_span(since or (until or now) - _HOUR, until or now, now, points)

    async def _read(
        self, statements: tuple[str, str], span: Span, **values: str
    ) -> tuple[list[Row], WaitsByPlace]:
        if capability(await self._desk.store(), Transactions) is None or not span.starts:
            return [], {}
        bounds: dict[str, Any] = {
            "seconds": span.resolution.seconds,
            "since": span.since,
            "until": span.until,
            "step": span.step_seconds,
        }
        of_samples, of_waits = statements
        async with self._own.transaction(read_only=True) as (_, own):
            rows = await own.all(of_samples, Row, **bounds, **values)
            found = await own.all(of_waits, WaitRow, **bounds, **values)
        waits: WaitsByPlace = {}
        for each in found:
            waits.setdefault((each.queue, each.at), {})[each.up_to_ms] = each.jobs
        return rows, waits

    get_sync = blocking(get)
    by_queue_sync = blocking(by_queue)


def _filled(
    span: Span, sampled: dict[int, int], found: Sequence[Row], waits: WaitsByPlace
) -> list[Sample]:
    """Where others have samples and this queue has none, it had no jobs."""
    rows = {row.at: row for row in found}
    samples = []
    for at, seconds in sampled.items():
        row = msgspec.structs.replace(rows.get(at) or _quiet(at), covered_seconds=seconds)
        samples.append(row.sample(waits.get((row.queue, at), NO_WAITS)))
    return with_gaps(span, samples)


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
        if not (taken := self._throughput.take()):
            return
        ended = msgspec.json.encode(taken).decode()
        try:
            await statements.value(
                "add_to_samples", bucket=at, ended=ended, queues_max=limits.SAMPLED_QUEUES_MAX
            )
        except BaseException:
            self._throughput.give_back(taken)
            raise
        # If this fails, these waits are lost: giving all of it back would count the rest twice.
        await statements.value("add_waits", bucket=at, ended=ended)


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
    for (fine, coarse), roll_up in product(
        pairwise(RESOLUTIONS), ("roll_up_samples", "roll_up_waits")
    ):
        await statements.value(
            roll_up, fine=fine.seconds, coarse=coarse.seconds, until=at - FINEST.seconds
        )
    for each, delete in product(RESOLUTIONS, ("delete_samples", "delete_waits")):
        await statements.value(
            delete,
            length=each.seconds,
            before=at - each.kept_seconds,
            rows_max=limits.SAMPLES_DELETED_MAX,
        )
