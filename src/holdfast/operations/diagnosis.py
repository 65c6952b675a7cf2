"""The examination for `holdfast doctor`, and the overview for `holdfast top`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from holdfast.domain.diagnosis.findings import Examination, Finding, worst_first
from holdfast.domain.diagnosis.judge import judge, judge_depths, judge_timeouts, unreachable
from holdfast.domain.diagnosis.vitals import Patience
from holdfast.domain.errors import HoldfastError
from holdfast.domain.job import Filter
from holdfast.domain.limits import DELAY_SECONDS_MAX, LATENCY_JOBS_MAX, OVERVIEW_FAILURES_MAX
from holdfast.domain.overview import Overview, Pulse, latency, latency_by_queue, with_quiet
from holdfast.domain.states import DEAD_STATES, ENDED
from holdfast.domain.texts import check_range
from holdfast.stores.protocol import Breakers, Diagnosis, Store, WorkerPresence, capability

STUCK_SWEEPS: Final = 5  # a lease that this many sweeps missed is stuck


def make_patience(transaction_seconds: float, reclaim_seconds: float) -> Patience:
    check_range("transaction_seconds", transaction_seconds, 0, DELAY_SECONDS_MAX)
    stuck_seconds = STUCK_SWEEPS * reclaim_seconds
    return Patience(transaction_seconds=transaction_seconds, stuck_seconds=stuck_seconds)


async def examine(
    store: Store, database: str, patience: Patience, timeouts: Mapping[str, float | None]
) -> Examination:
    """Examine a store that is not open yet, and close it. Errors become findings."""
    findings: list[Finding] = []
    try:
        diagnosis = capability(store, Diagnosis)
        if diagnosis is None:
            await store.open()
            findings += judge_depths(await store.queues(), type(store).__name__)
        else:
            findings += judge(await diagnosis.vitals(patience), patience)
    except HoldfastError as error:
        findings.append(unreachable(error))
    finally:
        await store.close()
    if timeouts:
        without = [name for name, seconds in timeouts.items() if seconds is None]
        findings.append(judge_timeouts(list(timeouts), without))
    return Examination(database=database, findings=worst_first(findings))


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
