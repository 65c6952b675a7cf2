"""An examination: what the store reads, what it means, and what is known without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.domain.errors import HoldfastError
from holdfast.domain.health.findings import Examination, Finding, worst_first
from holdfast.domain.health.judging import judge, judge_timeouts, unreachable
from holdfast.domain.health.vitals import Patience
from holdfast.stores.protocol import Store

STUCK_SWEEPS: Final = 5  # a lease that so many sweeps would have found is stuck


async def examine(
    store: Store, database: str, patience: Patience, timeouts: Mapping[str, float | None]
) -> Examination:
    """Examine a store that is not open, and close it; what goes wrong is a finding, too."""
    findings: list[Finding] = []
    try:
        findings += judge(await store.vitals(patience), patience)
    except HoldfastError as error:
        findings.append(unreachable(error))
    finally:
        await store.close()
    if timeouts:
        without = [name for name, seconds in timeouts.items() if seconds is None]
        findings.append(judge_timeouts(list(timeouts), without))
    return Examination(database=database, findings=worst_first(findings))
