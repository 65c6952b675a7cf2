"""What a process counts, as plain numbers: a microsecond per job, and nothing without metrics.
`exposition` formats them for Prometheus.

A tenant is never a label, and the number of series is bounded: the rest is counted as "other".
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Literal, NamedTuple
from weakref import WeakSet

import msgspec

from holdfast.domain.job import Claimed, NewJob, Receipt, Reclaimed, Settlement
from holdfast.domain.messengers import MessengerStatus
from holdfast.domain.states import State
from holdfast.observability.throughput import Throughput

PAIRS_MAX: Final = 1000  # of queue and job name
ATTEMPTS_SHOWN_MAX: Final = 10
OTHER: Final = "other"

Labels = tuple[str, ...]
Child = Literal["worker", "suspects", "handler", "function"]


class Metric(NamedTuple):
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: Labels
    help: str
    buckets: tuple[float, ...] = ()


def _counter(name: str, help: str, *labels: str) -> Metric:
    return Metric(name, "counter", labels, help)


def _gauge(name: str, help: str, *labels: str) -> Metric:
    return Metric(name, "gauge", labels, help)


_JOB = ("queue", "name")

JOBS: Final = _counter("holdfast_jobs_total", "Attempts that ended, by outcome.", *_JOB, "outcome")
DURATION: Final = Metric(
    "holdfast_processing_duration_ms",
    "histogram",
    _JOB,
    "How long handlers ran, in milliseconds.",
    (
        *(1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000),
        *(300_000, 1_800_000),
    ),
)
RETRIES: Final = _counter(
    "holdfast_retry_total", "Failed attempts that are retried, by attempt number.", *_JOB, "attempt"
)
FAILED: Final = _counter(
    "holdfast_failed_total", "Jobs that ended as failed or dead.", *_JOB, "state"
)
LOST: Final = _counter(
    "holdfast_lost_leases_total", "Leases that were lost while the handler ran.", *_JOB
)
CRASHES: Final = _counter(
    "holdfast_crashes_total",
    "Attempts whose process died, or whose worker stopped renewing.",
    *_JOB,
)
RECLAIMED: Final = _counter(
    "holdfast_reclaimed_total",
    "Jobs that were reclaimed from a lost worker, or expired while they waited.",
    *_JOB,
    "reason",
)
HUNG: Final = _counter(
    "holdfast_hung_handlers_total", "Handlers that did not stop when asked to.", *_JOB
)
ENQUEUED: Final = _counter("holdfast_enqueued_total", "Jobs that this process enqueued.", *_JOB)
CHILDREN_STARTED: Final = _counter(
    "holdfast_children_started_total", "Processes that were started, by kind.", "kind"
)
CHILDREN_DIED: Final = _counter(
    "holdfast_children_died_total", "Processes of these that died.", "kind"
)
SETTLE_LAG: Final = Metric(
    "holdfast_settle_lag_seconds",
    "histogram",
    (),
    "From a handler's end until the database has acknowledged it.",
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
HTTP_REQUESTS: Final = _counter(
    "holdfast_http_requests_total",
    "Requests that the HTTP API answered, by route and status.",
    *("method", "route", "status"),
)
HTTP_DURATION: Final = Metric(
    "holdfast_http_request_duration_seconds",
    "histogram",
    ("method", "route"),
    "Time from a request's headers to the start of its response.",
    (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0),
)
MESSAGES_SENT: Final = _counter(
    "holdfast_messages_sent_total", "Messages about jobs that brokers took.", "messenger"
)
MESSAGES_RECEIVED: Final = _counter(
    "holdfast_messages_received_total", "Messages about jobs that brokers delivered.", "messenger"
)
MESSAGES_DROPPED: Final = _counter(
    "holdfast_messages_dropped_total", "Messages about jobs that were not sent.", "messenger"
)
COUNTED: Final = (
    *(JOBS, DURATION, RETRIES, FAILED, LOST, CRASHES, RECLAIMED, HUNG, ENQUEUED),
    *(CHILDREN_STARTED, CHILDREN_DIED, SETTLE_LAG, HTTP_REQUESTS, HTTP_DURATION),
    *(MESSAGES_SENT, MESSAGES_RECEIVED, MESSAGES_DROPPED),
)

SLOTS: Final = _gauge("holdfast_worker_slots", "Jobs that the workers here can run at once.")
SLOTS_IN_USE: Final = _gauge("holdfast_worker_slots_in_use", "Jobs that the workers here run now.")
POOL: Final = _gauge("holdfast_pool_connections_max", "Most connections to PostgreSQL.")
POOL_IN_USE: Final = _gauge("holdfast_pool_connections_in_use", "Connections to PostgreSQL in use.")
CLAIMING: Final = _gauge(
    "holdfast_workers_claiming", "Workers here that are claiming jobs, not starting or stopping."
)
HTTP_IN_FLIGHT: Final = _gauge(
    "holdfast_http_requests_in_flight", "Requests in progress, including waiting ones."
)
HTTP_STREAMS: Final = _gauge("holdfast_http_event_streams", "Clients receiving server-sent events.")
MESSENGERS_DOWN: Final = _gauge(
    "holdfast_messengers_down", "Messengers that the workers here use and that are down."
)
MEASURED: Final = (
    *(SLOTS, SLOTS_IN_USE, POOL, POOL_IN_USE, CLAIMING, MESSENGERS_DOWN),
    *(HTTP_IN_FLIGHT, HTTP_STREAMS),
)

QUEUE_DEPTH: Final = _gauge("holdfast_queue_depth", "Live jobs of a queue.", "queue", "state")
OLDEST_READY: Final = _gauge(
    "holdfast_oldest_ready_seconds", "How long the first job has been due.", "queue"
)
QUEUE_PAUSED: Final = _gauge("holdfast_queue_paused", "1 if the queue is paused.", "queue")
BREAKERS_OPEN: Final = _gauge("holdfast_breakers_open", "Open breakers.")
BREAKER_OPEN: Final = _gauge("holdfast_breaker_open", "1 for an open breaker.", "key")
WORKERS: Final = _gauge("holdfast_workers", "Workers that are live, or were lost lately.", "state")
DATABASE_UP: Final = _gauge("holdfast_database_up", "1 if the database answers, 0 if not.")
MESSENGER_UP: Final = _gauge(
    "holdfast_messenger_up", "1 if the messenger is live on all workers that use it.", "messenger"
)
MESSENGER_LAST: Final = _gauge(
    "holdfast_messenger_last_message_seconds",
    "Since a worker last sent or received a message.",
    "messenger",
)
SEEN: Final = (
    *(QUEUE_DEPTH, OLDEST_READY, QUEUE_PAUSED, BREAKERS_OPEN, BREAKER_OPEN, WORKERS),
    *(MESSENGER_UP, MESSENGER_LAST, DATABASE_UP),
)

METRICS: Final = (*COUNTED, *MEASURED, *SEEN)

# A handler that was cut short says nothing about how long it takes.
_UNTIMED: Final = frozenset({"released", "handed_back", "canceled"})
_ATTEMPTS: Final = {number: str(number) for number in range(1, ATTEMPTS_SHOWN_MAX)}

_BY_NAME: Final = {metric.name: metric for metric in COUNTED}


class Series(NamedTuple):
    metric: str
    labels: Labels


class Snapshot(msgspec.Struct):
    """What was counted and measured. A histogram is the counts of its buckets, then the count
    above them, then the sum."""

    counts: list[tuple[Series, int]] = []
    histograms: list[tuple[Series, list[float]]] = []
    gauges: dict[str, float] = {}

    def since(self, earlier: Snapshot) -> Snapshot:
        """What was counted after an earlier snapshot, with the gauges of now."""
        counts, histograms = dict(earlier.counts), dict(earlier.histograms)
        return Snapshot(
            [
                (series, count - counts.get(series, 0))
                for series, count in self.counts
                if count != counts.get(series)
            ],
            [
                (series, _difference(values, histograms.get(series)))
                for series, values in self.histograms
                if values != histograms.get(series)
            ],
            self.gauges,
        )


def _difference(values: list[float], earlier: list[float] | None) -> list[float]:
    if earlier is None:
        return values
    return [value - before for value, before in zip(values, earlier, strict=True)]


def _check(series: Series, kind: str) -> Metric:
    metric = _BY_NAME.get(series.metric)
    if metric is None or metric.kind != kind or len(series.labels) != len(metric.labels):
        raise ValueError(series.metric)
    return metric


_all: WeakSet[Metrics] = WeakSet()


def _renew_locks() -> None:
    """In a forked child, a thread that it does not have may hold a lock."""
    for metrics in _all:
        metrics._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)


class Metrics:
    """Counts once `counting` is set. Thread-safe: jobs are enqueued on one thread, run on another
    and shown by a third."""

    def __init__(self, messengers: Callable[[], Sequence[MessengerStatus]] = tuple) -> None:
        self.counting = False
        self.throughput = Throughput()  # for samples, which need no counting
        self._messengers = messengers
        self._lock = threading.Lock()
        self._counts: dict[Series, list[int]] = {}  # lists of one, counted up in place
        self._histograms: dict[Series, list[float]] = {}
        self._pairs: dict[tuple[str, str], tuple[str, str]] = {}
        self._readers: list[Callable[[], Mapping[str, float]]] = []
        self._ends: dict[tuple[str, str, str], tuple[list[int], list[float] | None]] = {}
        self._answers: dict[tuple[str, str, int], tuple[list[int], list[float]]] = {}
        self._lags = self._histogram(SETTLE_LAG, ())
        self._messages: dict[Series, int] = {}  # as of the last look
        _all.add(self)

    def enqueued(self, jobs: Sequence[NewJob], receipts: Sequence[Receipt]) -> None:
        with self._lock:
            for job, receipt in zip(jobs, receipts, strict=True):
                if receipt.created:
                    self._add(ENQUEUED, self._pair(job.queue, job.name))

    def settled(
        self,
        job: Claimed,
        settlement: Settlement,
        outcome: str,
        duration_ms: float,
        lag_seconds: float,
    ) -> None:
        end = (job.queue, job.name, outcome)
        with self._lock:
            count, durations = self._ends.get(end) or self._resolve(*end)
            count[0] += 1
            _observe(SETTLE_LAG.buckets, self._lags, lag_seconds)
            if durations is not None:
                _observe(DURATION.buckets, durations, duration_ms)
            if outcome != "succeeded":
                self._add_trouble(job, settlement, outcome)

    def _resolve(self, queue: str, name: str, outcome: str) -> tuple[list[int], list[float] | None]:
        """Look up, once, the series that every such end adds to."""
        pair = self._pair(queue, name)
        found = (
            self._count(JOBS, (*pair, outcome)),
            None if outcome in _UNTIMED else self._histogram(DURATION, pair),
        )
        if pair == (queue, name):
            self._ends[queue, name, outcome] = found
        return found

    def _add_trouble(self, job: Claimed, settlement: Settlement, outcome: str) -> None:
        pair = self._pair(job.queue, job.name)
        if outcome == "retried":
            shown = _ATTEMPTS.get(job.attempt, f"{ATTEMPTS_SHOWN_MAX}+")
            self._add(RETRIES, (*pair, shown))
        elif outcome in (State.FAILED, State.DEAD):
            self._add(FAILED, (*pair, outcome))
        if settlement.crashed:
            self._add(CRASHES, pair)

    def lost(self, job: Claimed, canceled: bool) -> None:
        with self._lock:
            pair = self._pair(job.queue, job.name)
            self._add(JOBS, (*pair, "canceled" if canceled else "lost"))
            if not canceled:
                self._add(LOST, pair)

    def hung(self, job: Claimed) -> None:
        with self._lock:
            self._add(HUNG, self._pair(job.queue, job.name))

    def reclaimed(self, jobs: Sequence[Reclaimed]) -> None:
        with self._lock:
            for job in jobs:
                pair = self._pair(job.queue, job.name)
                self._add(RECLAIMED, (*pair, (job.error_code or OTHER).lower()))
                self._add(JOBS, (*pair, str(job.state) if job.state.ended else "reclaimed"))
                if job.error_code != "EXPIRED":
                    self._add(CRASHES, pair)
                if job.state in (State.FAILED, State.DEAD):
                    self._add(FAILED, (*pair, str(job.state)))

    def child_started(self, kind: Child) -> None:
        with self._lock:
            self._add(CHILDREN_STARTED, (kind,))
            self._add(CHILDREN_DIED, (kind,), 0)

    def child_died(self, kind: Child) -> None:
        with self._lock:
            self._add(CHILDREN_DIED, (kind,))

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        answer = (method, route, status)
        with self._lock:
            if answer not in self._answers:
                self._answers[answer] = (
                    self._count(HTTP_REQUESTS, (method, route, str(status))),
                    self._histogram(HTTP_DURATION, (method, route)),
                )
            count, durations = self._answers[answer]
            count[0] += 1
            _observe(HTTP_DURATION.buckets, durations, seconds)

    @contextmanager
    def measuring(self, read: Callable[[], Mapping[str, float]]) -> Iterator[None]:
        """Read gauges from this function, by metric name, until the end of the block."""
        self._readers.append(read)
        try:
            yield
        finally:
            self._readers.remove(read)

    def snapshot(self) -> Snapshot:
        gauges: dict[str, float] = {}
        for read in self._readers.copy():
            for name, value in read().items():
                gauges[name] = gauges.get(name, 0) + value
        messengers = self._messengers()
        with self._lock:
            self._add_messages(messengers)
            return Snapshot(
                [(series, count) for series, (count,) in self._counts.items()],
                [(series, values.copy()) for series, values in self._histograms.items()],
                gauges,
            )

    def add(self, counted: Snapshot) -> None:
        """Add what another process counted. Raises ValueError, and adds nothing, if it is not
        valid."""
        for series, _ in counted.counts:
            _check(series, "counter")
        for series, values in counted.histograms:
            if len(values) != len(_check(series, "histogram").buckets) + 2:
                raise ValueError(series.metric)
        with self._lock:
            for series, count in counted.counts:
                self._counts.setdefault(self._bounded(series), [0])[0] += count
            for series, values in counted.histograms:
                known = self._histograms.setdefault(self._bounded(series), [0.0] * len(values))
                known[:] = [value + more for value, more in zip(known, values, strict=True)]

    def _add_messages(self, messengers: Sequence[MessengerStatus]) -> None:
        """Count what messengers did since the last look. They count from their start."""
        totals: dict[Series, int] = {}
        for each in messengers:
            for metric, count in (
                (MESSAGES_SENT, each.sent),
                (MESSAGES_RECEIVED, each.heard),
                (MESSAGES_DROPPED, each.dropped),
            ):
                series = Series(metric.name, (each.name,))
                totals[series] = totals.get(series, 0) + count
        for series, total in totals.items():
            self._counts.setdefault(series, [0])[0] += max(0, total - self._messages.get(series, 0))
        self._messages = totals

    def _bounded(self, series: Series) -> Series:
        """The series, or "other" if this process already has too many pairs."""
        if "queue" not in _BY_NAME[series.metric].labels:
            return series
        queue, name, *rest = series.labels
        return Series(series.metric, (*self._pair(queue, name), *rest))

    def _pair(self, queue: str, name: str) -> tuple[str, str]:
        given = (queue, name)
        return self._pairs.get(given) or self._new_pair(given)

    def _new_pair(self, given: tuple[str, str]) -> tuple[str, str]:
        """Start the series that alerts watch at 0: an alert can't see a missing one rise."""
        if len(self._pairs) >= PAIRS_MAX:
            return (OTHER, OTHER)
        self._pairs[given] = given
        for state in (State.FAILED, State.DEAD):
            self._add(FAILED, (*given, str(state)), 0)
        for metric in (LOST, CRASHES, HUNG):
            self._add(metric, given, 0)
        return given

    def _add(self, metric: Metric, labels: Labels, count: int = 1) -> None:
        self._count(metric, labels)[0] += count

    def _count(self, metric: Metric, labels: Labels) -> list[int]:
        return self._counts.setdefault(Series(metric.name, labels), [0])

    def _histogram(self, metric: Metric, labels: Labels) -> list[float]:
        none = [0.0] * (len(metric.buckets) + 2)
        return self._histograms.setdefault(Series(metric.name, labels), none)


def _observe(buckets: tuple[float, ...], values: list[float], value: float) -> None:
    values[bisect_left(buckets, value)] += 1
    values[-1] += value
