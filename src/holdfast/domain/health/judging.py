"""From what was read to what is to be done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.domain.errors import HoldfastError, SchemaMismatch
from holdfast.domain.health.database import judge_database
from holdfast.domain.health.file import judge_file
from holdfast.domain.health.findings import Check, Finding, Severity, fine
from holdfast.domain.health.storage import judge_storage
from holdfast.domain.health.vitals import Patience, Vitals
from holdfast.domain.health.words import counted, listed
from holdfast.domain.health.work import judge_work


def judge(vitals: Vitals, patience: Patience) -> Iterator[Finding]:
    yield from judge_database(vitals)
    if vitals.workload is not None:
        yield from judge_work(vitals.workload)
    yield from judge_storage(vitals, patience.transaction_seconds)
    if vitals.file is not None:
        yield from judge_file(vitals.file)
    for part, because in vitals.unread.items():
        yield Finding(
            code=Check.UNREAD,
            severity=Severity.WARNING,
            sentence=f"{part} could not be looked at: {because}",
            advice="give this user the right to read it, or try again when there is less to do",
            facts={"part": part, "because": because},
        )


def unreachable(error: HoldfastError) -> Finding:
    """A database that can't be examined at all."""
    schema = isinstance(error, SchemaMismatch)
    return Finding(
        code=Check.SCHEMA if schema else Check.REACHABLE,
        severity=Severity.CRITICAL,
        sentence=str(error),
        advice="compare it with what this code needs"
        if schema
        else "see that it runs, that the address is right, and that this machine may reach it",
        facts={"error": type(error).__name__},
    )


def judge_timeouts(names: Sequence[str], without: Sequence[str]) -> Finding:
    """Of the jobs that are defined here: which of them may run for ever."""
    if not without:
        return fine(Check.TIMEOUTS, f"{counted(len(names), 'job')} with a time-out")
    one = len(without) == 1
    jobs = "1 job has" if one else f"{len(without):,} jobs have"
    return Finding(
        code=Check.TIMEOUTS,
        severity=Severity.INFO,
        sentence=f"{jobs} no time-out, and may run for ever if what"
        f" {'it waits' if one else 'they wait'} for never answers: {listed(list(without))}",
        advice="give each the longest that it may take: @hf.job(timeout_seconds=60)",
        facts={"names": list(without)},
    )
