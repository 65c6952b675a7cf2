"""Is the database able to keep the tables of the jobs small and quick?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from holdfast.domain.diagnosis.findings import Check, Finding, Severity, fine
from holdfast.domain.diagnosis.vitals import (
    Holder,
    Holders,
    IndexStatus,
    JobsTable,
    LeftHistory,
    Vitals,
)
from holdfast.domain.diagnosis.words import (
    at_least,
    counted,
    for_sql,
    lasting,
    listed,
    name_for_sql,
    size,
)
from holdfast.domain.limits import HISTORY_REST_BYTES_MAX, LEFTOVERS_COUNTED_MAX
from holdfast.domain.times import exact

CRITICAL_TIMES: Final = 12  # an hour, where a transaction is told of after five minutes
HOLDERS_MAX: Final = 5
DEAD_ROWS_MIN: Final = 20_000
DEAD_SHARE_MAX: Final = 0.2
BLOAT_BYTES_MIN: Final = 8 * 1024**2
BLOAT_TIMES: Final = 8
ENTRY_BYTES: Final = 100


class _Trouble(NamedTuple):
    sentence: str
    advice: str
    command: str | None = None


def judge_storage(vitals: Vitals, transaction_seconds: float) -> Iterator[Finding]:
    if vitals.holders is not None:
        yield from _vacuum(vitals.holders, transaction_seconds)
    if vitals.jobs_table is not None:
        yield _dead_rows(vitals.jobs_table)
    if vitals.indexes is not None:
        yield from _indexes(vitals.indexes)
    if vitals.history is not None:
        yield from _history(vitals.history)


def _vacuum(seen: Holders, transaction_seconds: float) -> Iterator[Finding]:
    if seen.hidden:
        yield Finding(
            code=Check.VACUUM,
            severity=Severity.INFO,
            sentence=f"{counted(seen.hidden, 'session')} of other users may be holding back"
            f" vacuum, but user {seen.user} can't see for how long",
            advice="grant it access",
            command=f"GRANT pg_read_all_stats TO {name_for_sql(seen.user)};",
            facts={"hidden": seen.hidden},
        )
    elif not seen.holders:
        yield fine(Check.VACUUM, "nothing holds back vacuum")
    for holder in seen.holders[:HOLDERS_MAX]:
        yield _holder(holder, transaction_seconds)
    if len(seen.holders) > HOLDERS_MAX:
        yield Finding(
            code=Check.VACUUM,
            severity=Severity.WARNING,
            sentence=f"{len(seen.holders) - HOLDERS_MAX:,} more are holding back vacuum",
        )


def _holder(holder: Holder, transaction_seconds: float) -> Finding:
    who = [f"user {holder.user}"] if holder.user else []
    who += [holder.application] if holder.application else []
    described = f" ({', '.join([*who, *([holder.state] if holder.state else [])])})" if who else ""
    since = ""
    if holder.since is not None and holder.age_seconds is not None:
        since = f" for {lasting(holder.age_seconds)}, since {exact(holder.since)}"
    sentence = f"{holder.kind} {holder.id}{described} holds back vacuum{since}"
    if holder.xids is not None:
        sentence += f", by {counted(holder.xids, 'transaction')}"
    if holder.query:
        sentence += f": {holder.query}"
    advice, command = {
        "process": ("end it, if nobody needs it", f"SELECT pg_terminate_backend({holder.id});"),
        "prepared transaction": ("end it", f"ROLLBACK PREPARED {for_sql(holder.id)};"),
        "replication slot": (
            "check that its consumer keeps up; if there is none, drop it",
            f"SELECT pg_drop_replication_slot({for_sql(holder.id)});",
        ),
    }[holder.kind]
    old = (holder.age_seconds or 0.0) > CRITICAL_TIMES * transaction_seconds
    return Finding(
        code=Check.VACUUM,
        severity=Severity.CRITICAL if old else Severity.WARNING,
        sentence=sentence,
        advice=f"{advice}; idle_in_transaction_session_timeout keeps it from coming back"
        if holder.state and holder.state.startswith("idle in transaction")
        else advice,
        command=command,
        facts={
            "kind": holder.kind,
            "id": holder.id,
            "user": holder.user,
            "application": holder.application,
            "state": holder.state,
            "since": holder.since,
            "age_seconds": holder.age_seconds,
            "query": holder.query,
        },
    )


def _dead_rows(table: JobsTable) -> Finding:
    dead, rows = table.dead, table.dead + table.live
    ratio = dead / rows if rows else 0.0
    facts = {"live": table.live, "dead": dead, "ratio": ratio, "vacuumed_at": table.vacuumed_at}
    sentence = f"holdfast.jobs has {counted(dead, 'dead row')} beside {table.live:,} live ones"
    vacuumed = f", last vacuumed at {exact(table.vacuumed_at)}" if table.vacuumed_at else ""
    if not table.autovacuum:
        return Finding(
            code=Check.DEAD_ROWS,
            severity=Severity.WARNING,
            sentence=f"autovacuum is off for holdfast.jobs: {sentence}{vacuumed}; claims get"
            " slower and slower",
            advice="turn it on (and autovacuum = on for the server)",
            command="ALTER TABLE holdfast.jobs RESET (autovacuum_enabled);",
            facts=facts,
        )
    if dead < DEAD_ROWS_MIN or ratio <= DEAD_SHARE_MAX:
        return fine(Check.DEAD_ROWS, f"{sentence}{vacuumed}", **facts)
    return Finding(
        code=Check.DEAD_ROWS,
        severity=Severity.WARNING,
        sentence=f"{sentence} ({ratio:.0%}){vacuumed}: autovacuum is late, or something holds it"
        " back, and claims get slower",
        advice="fix what the check `vacuum` reports; then",
        command="VACUUM holdfast.jobs;",
        facts=facts,
    )


def _indexes(indexes: Sequence[IndexStatus]) -> Iterator[Finding]:
    bad = False
    for index in indexes:
        finding = _index(index)
        if finding is not None:
            bad = True
            yield finding
    if not bad:
        yield fine(Check.INDEXES, f"all {len(indexes)} indexes exist and are valid")


def _index(index: IndexStatus) -> Finding | None:
    facts = {"index": index.name, "size_bytes": index.size_bytes, "entries": index.entries}
    rebuild = f"REINDEX INDEX CONCURRENTLY holdfast.{index.name};"
    if not index.there:
        return Finding(
            code=Check.INDEXES,
            severity=Severity.CRITICAL,
            sentence=f"the index {index.name} is missing: queries that need it scan whole"
            " tables, or fail",
            advice="create it again",
            command=index.create,
            facts=facts,
        )
    if not index.valid:
        return Finding(
            code=Check.INDEXES,
            severity=Severity.CRITICAL,
            sentence=f"the index {index.name} is invalid: its build did not finish, and it is"
            " not used",
            advice="rebuild it",
            command=rebuild,
            facts=facts,
        )
    if index.entries is None or index.size_bytes < BLOAT_BYTES_MIN:
        return None
    if index.size_bytes < BLOAT_TIMES * ENTRY_BYTES * index.entries:
        return None
    return Finding(
        code=Check.INDEXES,
        severity=Severity.WARNING,
        sentence=f"the index {index.name} has {size(index.size_bytes)} for about"
        f" {int(index.entries):,} entries: most of it is empty",
        advice="rebuild it at a quiet time",
        command=rebuild,
        facts=facts,
    )


def _history(left: LeftHistory) -> Iterator[Finding]:
    troubles = [*_days_left(left), *_jobs_left(left)]
    if not troubles:
        yield fine(Check.HISTORY, "upkeep is up to date")
    for sentence, advice, command in troubles:
        yield Finding(
            code=Check.HISTORY,
            severity=Severity.WARNING,
            sentence=sentence,
            advice=advice,
            command=command,
            facts=msgspec.structs.asdict(left),
        )


def _days_left(left: LeftHistory) -> Iterator[_Trouble]:
    if left.missing_days:
        days = [each.isoformat() for each in left.missing_days]
        yield _Trouble(
            f"history kept until {listed(days)} has no partition: it goes to"
            " holdfast.history_rest and is deleted row by row",
            "create the partitions; a running worker does so in time",
            "holdfast migrate MODULE:NAME",
        )
    if left.rest_bytes > HISTORY_REST_BYTES_MAX:
        yield _Trouble(
            f"holdfast.history_rest has {size(left.rest_bytes)}: that is too much to create new"
            " partitions",
            "create the next days yourself at a quiet time",
            "SELECT holdfast.add_history_day(current_date + 8, 1000000, 100000000000);",
        )
    if left.past_days:
        days = [each.isoformat() for each in left.past_days]
        yield _Trouble(
            f"history kept until {listed(days)} was not dropped",
            "start a worker, which drops it; if one is running, check whether a dump or similar"
            " locks holdfast.history",
        )


def _jobs_left(left: LeftHistory) -> Iterator[_Trouble]:
    if left.outlived:
        jobs = at_least(left.outlived, LEFTOVERS_COUNTED_MAX, "job")
        yield _Trouble(
            f"{jobs} of the history should have been deleted days ago",
            "start a worker: its upkeep deletes them",
        )
    if left.leftovers:
        jobs = at_least(left.leftovers, LEFTOVERS_COUNTED_MAX, "ended job")
        yield _Trouble(
            f"{jobs} still among the live jobs, left there by a worker of an older version",
            "start a worker: its upkeep moves them to the history; then restart the old ones",
        )
