"""Turn what was read into findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.domain.diagnosis.database import judge_database, no_connection_left
from holdfast.domain.diagnosis.failures import judge_failures
from holdfast.domain.diagnosis.file import judge_file
from holdfast.domain.diagnosis.findings import Check, Finding, critical, fine, info, warning
from holdfast.domain.diagnosis.roles import judge_roles
from holdfast.domain.diagnosis.storage import judge_storage
from holdfast.domain.diagnosis.vitals import Patience, Vitals
from holdfast.domain.diagnosis.words import counted, listed
from holdfast.domain.diagnosis.work import judge_work
from holdfast.domain.errors import HoldfastError, SchemaMismatch, StoreUnavailable
from holdfast.domain.queues import QueueStatus


def judge(vitals: Vitals, patience: Patience) -> Iterator[Finding]:
    yield from judge_database(vitals)
    if vitals.workload is not None:
        yield from judge_work(vitals.workload)
    if vitals.ended is not None:
        yield from judge_failures(vitals.ended)
    yield from judge_storage(vitals, patience.transaction_seconds)
    if vitals.role_differences is not None:
        yield judge_roles(vitals.role_differences)
    if vitals.file is not None:
        yield from judge_file(vitals.file)
    for part, because in vitals.unread.items():
        yield unread(part, because)


def unread(part: str, because: str) -> Finding:
    return warning(
        Check.UNREAD,
        f"could not check {part}: {because}",
        advice="grant this user read access, or try again when the database is less busy",
        part=part,
        because=because,
    )


def unreachable(error: HoldfastError) -> Finding:
    """A database that can't be examined at all."""
    if isinstance(error, StoreUnavailable) and error.connections_used_up:
        return no_connection_left(error)
    schema = isinstance(error, SchemaMismatch)
    return critical(
        Check.SCHEMA if schema else Check.REACHABLE,
        str(error),
        advice="compare the schema with what this code needs"
        if schema
        else "check that it is running, that the address is right, and that this machine can"
        " reach it",
        error=type(error).__name__,
    )


def judge_depths(queues: Sequence[QueueStatus], store: str) -> list[Finding]:
    """For a database that answers, if its store can't report anything else about its health."""
    depths = [
        f"{each.name}: {each.ready:,} ready, {each.scheduled:,} scheduled, {each.running:,} running"
        for each in queues
    ]
    return [
        fine(Check.REACHABLE, "the database answers and has what this code needs"),
        fine(Check.QUEUES, "; ".join(depths) or "no jobs are waiting or running"),
        info(
            Check.UNREAD,
            f"this store ({store}) can't report the health of its database and workers",
            store=store,
        ),
    ]


def judge_timeouts(names: Sequence[str], without: Sequence[str]) -> Finding:
    """Name the jobs defined here that may run forever."""
    if not without:
        return fine(Check.TIMEOUTS, f"{counted(len(names), 'job')} with a timeout")
    one = len(without) == 1
    jobs = "1 job has" if one else f"{len(without):,} jobs have"
    return info(
        Check.TIMEOUTS,
        f"{jobs} no timeout, and may run forever if what {'it waits' if one else 'they wait'} for"
        f" never answers: {listed(list(without))}",
        advice="give each one a limit: @hf.job(timeout_seconds=60)",
        names=list(without),
    )
