"""Metrics in Prometheus' text format: what processes count, and what the database knows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.errors import ConfigurationError, HoldfastError
from holdfast.domain.messenger_overview import messenger_overviews
from holdfast.domain.queues import QueueStatus
from holdfast.domain.workers import WorkerStatus
from holdfast.observability import metrics
from holdfast.observability.metrics import Labels, Metric, Snapshot

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

CACHE_SECONDS: Final = 5.0  # between two queries of the database
READ_SECONDS_MAX: Final = 3.0  # well below the 10 s that Prometheus waits
BREAKERS_SHOWN_MAX: Final = 50
QUEUES_SHOWN_MAX: Final = 500


class DatabaseStatus(NamedTuple):
    """What the database answered. It is not `up` if it did not answer in time; `workers` is None if
    the store doesn't know them."""

    up: bool = True
    queues: Sequence[QueueStatus] = ()
    breakers: Sequence[BreakerStatus] = ()
    workers: Sequence[WorkerStatus] | None = ()


class StatusCache:
    """Queries the database at most every few seconds, however often it is scraped."""

    def __init__(
        self,
        read: Callable[[], Awaitable[DatabaseStatus]],
        clock: Callable[[], float],
        seconds_max: float = READ_SECONDS_MAX,
    ) -> None:
        self._read = read
        self._seconds_max = seconds_max
        self._clock = clock
        self._seen: tuple[float, DatabaseStatus] | None = None

    async def get(self) -> DatabaseStatus:
        if self._seen is None or self._clock() >= self._seen[0] + CACHE_SECONDS:
            try:
                async with asyncio.timeout(self._seconds_max):
                    status = await self._read()
            except (HoldfastError, TimeoutError):
                status = DatabaseStatus(up=False)
            self._seen = (self._clock(), status)
        return self._seen[1]


def load_client() -> Any:
    try:
        import_module("prometheus_client.core")  # the package itself does not import it
        return import_module("prometheus_client")
    except ImportError as error:
        raise ConfigurationError(
            "metrics need prometheus-client: pip install 'holdfast[metrics]'"
        ) from error


def content_type() -> str:
    return str(load_client().CONTENT_TYPE_LATEST)


def expose(counted: Snapshot, seen: DatabaseStatus) -> str:
    client = load_client()
    registry = client.CollectorRegistry(auto_describe=False)
    measured = [
        _gauge(metric, {(): counted.gauges[metric.name]})
        for metric in metrics.MEASURED
        if metric.name in counted.gauges
    ]
    registry.register(_Collector([*_counted(counted), *measured, *_seen(seen)]))
    return str(client.generate_latest(registry).decode())


class _Collector:
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def _counted(counted: Snapshot) -> Iterator[Family]:
    core = load_client().core
    for metric in metrics.COUNTED:
        if metric.kind == "counter":
            family = core.CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
            for series, count in counted.counts:
                if series.metric == metric.name:
                    family.add_metric(series.labels, count)
        else:
            family = core.HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
            bounds = [*map(str, map(float, metric.buckets)), "+Inf"]
            for series, values in counted.histograms:
                if series.metric == metric.name:
                    buckets = list(zip(bounds, accumulate(values[:-1]), strict=True))
                    family.add_metric(series.labels, buckets, values[-1])
        yield family


def _seen(seen: DatabaseStatus) -> Iterator[Family]:
    yield _gauge(metrics.DATABASE_UP, {(): int(seen.up)})
    if not seen.up:
        return  # older values may be wrong by now
    queues = seen.queues[:QUEUES_SHOWN_MAX]
    depths: dict[Labels, float] = {
        (queue.name, state): getattr(queue, state)
        for queue in queues
        for state in ("ready", "scheduled", "parked", "running")
    }
    yield _gauge(metrics.QUEUE_DEPTH, depths)
    yield _gauge(
        metrics.OLDEST_READY, {(each.name,): each.oldest_ready_seconds or 0 for each in queues}
    )
    yield _gauge(metrics.QUEUE_PAUSED, {(each.name,): int(each.paused) for each in queues})
    open_keys = [breaker.key for breaker in seen.breakers if breaker.is_open]
    yield _gauge(metrics.BREAKERS_OPEN, {(): len(open_keys)})
    yield _gauge(metrics.BREAKER_OPEN, {(key,): 1 for key in open_keys[:BREAKERS_SHOWN_MAX]})
    if seen.workers is None:
        return
    workers = [worker for worker in seen.workers if not worker.suspects_only]
    lost = sum(worker.lost for worker in workers)
    yield _gauge(metrics.WORKERS, {("live",): len(workers) - lost, ("lost",): lost})
    yield from _messengers(seen.workers)


def _messengers(workers: Sequence[WorkerStatus]) -> Iterator[Family]:
    up: dict[Labels, float] = {}
    last: dict[Labels, float] = {}
    for each in messenger_overviews(workers):
        name = (each.name,)  # two brokers of one kind share it
        up[name] = min(up.get(name, 1), int(not each.down))
        if each.last_seconds is not None:
            last[name] = min(last.get(name, each.last_seconds), each.last_seconds)
    yield _gauge(metrics.MESSENGER_UP, up)
    yield _gauge(metrics.MESSENGER_LAST, last)


def _gauge(metric: Metric, values: dict[Labels, float]) -> Family:
    family: Family = load_client().core.GaugeMetricFamily(
        metric.name, metric.help, labels=metric.labels
    )
    for labels, value in values.items():
        family.add_metric(labels, value)  # type: ignore[attr-defined]
    return family
