"""The examination for `holdfast doctor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.domain.diagnosis.findings import Examination, Finding, Severity, worst_first
from holdfast.domain.diagnosis.judge import judge, judge_depths, judge_timeouts, unreachable, unread
from holdfast.domain.diagnosis.secrets import judge_secrets
from holdfast.domain.diagnosis.vitals import Patience
from holdfast.domain.errors import HoldfastError
from holdfast.domain.limits import DELAY_SECONDS_MAX
from holdfast.domain.texts import check_range
from holdfast.operations.secrets import Secrets
from holdfast.stores.protocol import (
    Diagnosis,
    Store,
    Transactions,
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
