"""How everything is: an examination for `holdfast doctor`, and an overview for `holdfast top`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from holdfast.domain.diagnosis.findings import Examination, Finding, worst_first
from holdfast.domain.diagnosis.judge import judge, judge_depths, judge_timeouts, unreachable
from holdfast.domain.diagnosis.vitals import Patience
from holdfast.domain.errors import BadArguments, HoldfastError
from holdfast.domain.job import Filter
from holdfast.domain.limits import (
    DELAY_SECONDS_MAX,
    LATENCY_JOBS_MAX,
    OVERVIEW_FAILURES_MAX,
)
from holdfast.domain.overview import Overview, Pulse, latency, latency_by_queue, with_quiet
from holdfast.domain.states import DEAD_STATES, ENDED
from holdfast.stores.protocol import Breakers, Diagnosis, Store, WorkerPresence, capability

STUCK_SWEEPS: Final = 5  # a lease that so many sweeps would have found is stuck


def make_patience(transaction_seconds: float, reclaim_seconds: float) -> Patience:
    if not 0 <= transaction_seconds <= DELAY_SECONDS_MAX:
        raise BadArguments(
            f"transaction_seconds must be 0 to {DELAY_SECONDS_MAX}, not {transaction_seconds}"
        )
    stuck_seconds = STUCK_SWEEPS * reclaim_seconds
    return Patience(transaction_seconds=transaction_seconds, stuck_seconds=stuck_seconds)


async def examine(
    store: Store, database: str, patience: Patience, timeouts: Mapping[str, float | None]
) -> Examination:
    """Examine a store that is not open, and close it; what goes wrong is a finding, too."""
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
    """`now` is the time if the store can't tell its own."""
    untold = []
    diagnosis = capability(store, Diagnosis)
    if diagnosis is None:
        untold.append("how long jobs took")
        ended = [each for each in await store.counts() if each.state in ENDED]
        pulse = Pulse(now=now, ended=ended, newest=())
    else:
        pulse = await diagnosis.pulse(LATENCY_JOBS_MAX)
    presence = capability(store, WorkerPresence)
    if presence is None:
        untold.append("which workers are there")
    breakers = capability(store, Breakers)
    opened = [] if breakers is None else await breakers.breakers()
    failures = await store.page(Filter(states=DEAD_STATES), OVERVIEW_FAILURES_MAX)
    return Overview(
        now=pulse.now,
        queues=with_quiet(await store.queues(), pulse.ended),
        workers=[] if presence is None else await presence.workers(),
        breakers=[each for each in opened if each.is_open or each.unparking],
        ended=pulse.ended,
        ended_last_minute=pulse.ended_last_minute,
        latency=latency(pulse.newest),
        latency_by_queue=latency_by_queue(pulse.newest),
        failures=failures.jobs,
        untold=_told(store, untold),
    )


def _told(store: Store, untold: Sequence[str]) -> str | None:
    if not untold:
        return None
    return f"this store ({type(store).__name__}) can't tell {' or '.join(untold)}"
