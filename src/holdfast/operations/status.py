"""The overview for `holdfast top`, and the status in metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

from holdfast.domain.job import Filter
from holdfast.domain.limits import LATENCY_JOBS_MAX, OVERVIEW_FAILURES_MAX
from holdfast.domain.overview import Overview, Pulse, latency, latency_by_queue, with_quiet
from holdfast.domain.states import DEAD_STATES, ENDED
from holdfast.observability.exposition import DatabaseStatus
from holdfast.stores.protocol import Breakers, Diagnosis, Store, WorkerPresence, capability


async def database_status(find_store: Callable[[], Awaitable[Store]]) -> DatabaseStatus:
    store = await find_store()
    breakers, presence = capability(store, Breakers), capability(store, WorkerPresence)
    return DatabaseStatus(
        queues=await store.queues(),
        breakers=[] if breakers is None else await breakers.breakers(),
        workers=None if presence is None else await presence.workers(),
    )


async def overview(store: Store, now: datetime) -> Overview:
    """`now` is used if the store can't tell its own time."""
    unknown = []
    diagnosis = capability(store, Diagnosis)
    if diagnosis is None:
        unknown.append("how long jobs took")
        ended = [each for each in await store.counts() if each.state in ENDED]
        pulse = Pulse(now=now, ended=ended, newest=())
    else:
        pulse = await diagnosis.pulse(LATENCY_JOBS_MAX)
    presence = capability(store, WorkerPresence)
    if presence is None:
        unknown.append("which workers are running")
    breakers = capability(store, Breakers)
    opened = [] if breakers is None else await breakers.breakers()
    failures = await store.page(Filter(states=DEAD_STATES), OVERVIEW_FAILURES_MAX)
    return Overview(
        now=pulse.now,
        queues=with_quiet(await store.queues(), pulse.ended),
        workers=None if presence is None else await presence.workers(),
        breakers=[each for each in opened if each.is_open or each.unparking],
        ended=pulse.ended,
        ended_last_minute=pulse.ended_last_minute,
        latency=latency(pulse.newest),
        latency_by_queue=latency_by_queue(pulse.newest),
        failures=failures.jobs,
        untold=f"this store ({type(store).__name__}) can't tell {' or '.join(unknown)}"
        if unknown
        else None,
    )
