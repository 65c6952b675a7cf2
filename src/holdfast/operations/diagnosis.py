"""The examination for `holdfast doctor`, the overview for `holdfast top`, the status in metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from holdfast.domain.diagnosis.findings import Examination, Finding, Severity, worst_first
from holdfast.domain.diagnosis.judge import judge, judge_depths, judge_timeouts, unreachable, unread
from holdfast.domain.diagnosis.secrets import judge_secrets
from holdfast.domain.diagnosis.vitals import Patience
from holdfast.domain.errors import HoldfastError
from holdfast.domain.job import Filter
from holdfast.domain.limits import DELAY_SECONDS_MAX, LATENCY_JOBS_MAX, OVERVIEW_FAILURES_MAX
from holdfast.domain.overview import Overview, Pulse, latency, latency_by_queue, with_quiet
from holdfast.domain.states import DEAD_STATES, ENDED
from holdfast.domain.texts import check_range
from holdfast.observability.exposition import DatabaseStatus
from holdfast.operations.secrets import Secrets
from holdfast.stores.protocol import (
    Breakers,
    Diagnosis,
    Store,
    Transactions,
    WorkerPresence,
    capability,
)
from holdfast.transactions.transaction import transaction, translated

STUCK_SWEEPS: Final = 5  # a lease that this many sweeps missed is stuck


def make_patience(transaction_seconds: float, reclaim_seconds: float) -> Patience:
    check_range("transaction_seconds", transaction_seconds, 0, DELAY_SECONDS_MAX)
    stuck_seconds = STUCK_SWEEPS * reclaim_seconds
    return Patience(transaction_seconds=transaction_seconds, stuck_seconds=stuck_seconds)


async def examine(
    store: Store,
    database: str,
    patience: Patience,
    timeouts: Mapping[str, float | None],
    secrets: Secrets,
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
        findings += await _examine_secrets(store, secrets, findings)
    except HoldfastError as error:
        findings.append(unreachable(error))
    finally:
        await store.close()
    if timeouts:
        without = [name for name, seconds in timeouts.items() if seconds is None]
        findings.append(judge_timeouts(list(timeouts), without))
    return Examination(database=database, findings=worst_first(findings))


async def _examine_secrets(
    store: Store, secrets: Secrets, findings: Sequence[Finding]
) -> Sequence[Finding]:
    """Count secrets in a database that needs no migration: this must change nothing."""
    is_readable = all(each.severity is not Severity.CRITICAL for each in findings)
    owner = capability(store, Transactions)
    if owner is None or not is_readable or not secrets.can_last:
        return []
    try:
        await store.open()
        with translated("could not count"):
            async with transaction(owner, read_only=True) as connection:
                return list(judge_secrets(await secrets.count_lasting(connection)))
    except HoldfastError as error:
        return [unread("secrets", str(error))]


async def database_status(store: Store) -> DatabaseStatus:
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
