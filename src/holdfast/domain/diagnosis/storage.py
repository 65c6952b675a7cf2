"""Can the database keep the job tables small and fast?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from holdfast.domain.diagnosis.findings import Check, Finding, critical, fine, info, warning
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
    lasting,
    listed,
    quote_identifier,
    quote_literal,
    size,
)
from holdfast.domain.limits import HISTORY_REST_BYTES_MAX, LEFTOVERS_COUNTED_MAX
from holdfast.domain.times import exact

CRITICAL_TIMES: Final = 12  # an hour, if transactions are reported after five minutes
HOLDERS_MAX: Final = 5
DEAD_ROWS_MIN: Final = 20_000
DEAD_SHARE_MAX: Final = 0.2
BLOAT_BYTES_MIN: Final = 8 * 1024**2
BLOAT_TIMES: Final = 8
ENTRY_BYTES: Final = 100


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
        yield info(
            Check.VACUUM,
            f"{counted(seen.hidden, 'session')} of other users may be holding back vacuum, but user"
            f" {seen.user} can't see for how long",
            advice="grant it access",
            command=f"GRANT pg_read_all_stats TO {quote_identifier(seen.user)};",
            hidden=seen.hidden,
        )
    elif not seen.holders:
        yield fine(Check.VACUUM, "nothing holds back vacuum")
    for holder in seen.holders[:HOLDERS_MAX]:
        yield _holder(holder, transaction_seconds)
    if len(seen.holders) > HOLDERS_MAX:
        sentence = f"{len(seen.holders) - HOLDERS_MAX:,} more are holding back vacuum"
        yield warning(Check.VACUUM, sentence)


def _holder(holder: Holder, transaction_seconds: float) -> Finding:
    who = [f"user {holder.user}"] if holder.user else []
    who += [holder.application] if holder.application else []
    described = f" ({', '.join([*who, *([holder.state] if holder.state else [])])})" if who else ""
    sentence = f"{holder.kind} {holder.id}{described} "
    if holder.since is None or holder.age_seconds is None:
        sentence += "is holding back vacuum"
    else:
        sentence += f"has been holding back vacuum for {lasting(holder.age_seconds)}, since"
        sentence += f" {exact(holder.since)}"
    if holder.xids is not None:
        sentence += f", by {counted(holder.xids, 'transaction')}"
    if holder.query:
        sentence += f": {holder.query}"
    advice, command = {
        "process": ("end it, if nobody needs it", f"SELECT pg_terminate_backend({holder.id});"),
        "prepared transaction": ("end it", f"ROLLBACK PREPARED {quote_literal(holder.id)};"),
        "replication slot": (
            "check that its consumer keeps up; if there is none, drop it",
            f"SELECT pg_drop_replication_slot({quote_literal(holder.id)});",
        ),
    }[holder.kind]
    old = (holder.age_seconds or 0.0) > CRITICAL_TIMES * transaction_seconds
    report = critical if old else warning
    return report(
        Check.VACUUM,
        sentence,
        advice=f"{advice}; idle_in_transaction_session_timeout keeps it from coming back"
        if holder.state and holder.state.startswith("idle in transaction")
        else advice,
        command=command,
        kind=holder.kind,
        id=holder.id,
        user=holder.user,
        application=holder.application,
        state=holder.state,
        since=holder.since,
        age_seconds=holder.age_seconds,
        query=holder.query,
    )


def _dead_rows(table: JobsTable) -> Finding:
    dead, rows = table.dead, table.dead + table.live
    ratio = dead / rows if rows else 0.0
    facts: dict[str, Any] = {
        "live": table.live,
        "dead": dead,
        "ratio": ratio,
        "vacuumed_at": table.vacuumed_at,
    }
    sentence = f"holdfast.jobs has {counted(dead, 'dead row')} beside {table.live:,} live ones"
    vacuumed = f", last vacuumed at {exact(table.vacuumed_at)}" if table.vacuumed_at else ""
    if not table.autovacuum:
        return warning(
            Check.DEAD_ROWS,
            f"autovacuum is off for holdfast.jobs: {sentence}{vacuumed}; claims get slower and"
            " slower",
            advice="turn it on (and autovacuum = on for the server)",
            command="ALTER TABLE holdfast.jobs RESET (autovacuum_enabled);",
            **facts,
        )
    if dead < DEAD_ROWS_MIN or ratio <= DEAD_SHARE_MAX:
        return fine(Check.DEAD_ROWS, f"{sentence}{vacuumed}", **facts)
    return warning(
        Check.DEAD_ROWS,
        f"{sentence} ({ratio:.0%}){vacuumed}: autovacuum is late, or something holds it back, and"
        " claims get slower",
        advice="fix what the check `vacuum` reports; then",
        command="VACUUM holdfast.jobs;",
        **facts,
    )


def _indexes(indexes: Sequence[IndexStatus]) -> Iterator[Finding]:
    bad = [finding for finding in map(_index, indexes) if finding is not None]
    yield from bad or [fine(Check.INDEXES, f"all {len(indexes)} indexes exist and are valid")]


def _index(index: IndexStatus) -> Finding | None:
    facts: dict[str, Any] = {
        "index": index.name,
        "size_bytes": index.size_bytes,
        "entries": index.entries,
    }
    rebuild = f"REINDEX INDEX CONCURRENTLY holdfast.{index.name};"
    if not index.there:
        return critical(
            Check.INDEXES,
            f"index {index.name} is missing: queries that need it scan whole tables, or fail",
            advice="create it again",
            command=index.create,
            **facts,
        )
    if not index.valid:
        return critical(
            Check.INDEXES,
            f"index {index.name} is invalid: its build did not finish, and it is not used",
            advice="rebuild it",
            command=rebuild,
            **facts,
        )
    if index.entries is None or index.size_bytes < BLOAT_BYTES_MIN:
        return None
    if index.size_bytes < BLOAT_TIMES * ENTRY_BYTES * index.entries:
        return None
    return warning(
        Check.INDEXES,
        f"index {index.name} takes {size(index.size_bytes)} for about {int(index.entries):,}"
        " entries: most of it is empty",
        advice="rebuild it at a quiet time",
        command=rebuild,
        **facts,
    )


def _history(left: LeftHistory) -> Iterator[Finding]:
    trouble = partial(warning, Check.HISTORY, **msgspec.structs.asdict(left))
    troubles = [*_days_left(left, trouble), *_jobs_left(left, trouble)]
    yield from troubles or [fine(Check.HISTORY, "upkeep is up to date")]


def _days_left(left: LeftHistory, trouble: Callable[..., Finding]) -> Iterator[Finding]:
    if left.missing_days:
        days = [each.isoformat() for each in left.missing_days]
        yield trouble(
            f"history kept until {listed(days)} has no partition: it goes to"
            " holdfast.history_rest and is deleted row by row",
            "create the partitions; a running worker does so on its own",
            "holdfast migrate MODULE:NAME",
        )
    if left.rest_bytes > HISTORY_REST_BYTES_MAX:
        yield trouble(
            f"holdfast.history_rest is {size(left.rest_bytes)}: too large for workers to create new"
            " partitions",
            "create the next days yourself at a quiet time",
            "SELECT holdfast.add_history_day(current_date + 8, 1000000, 100000000000);",
        )
    if left.past_days:
        days = [each.isoformat() for each in left.past_days]
        yield trouble(
            f"history kept until {listed(days)} was not dropped",
            "start a worker, which drops it; if one is running, check whether something like a dump"
            " locks holdfast.history",
        )


def _jobs_left(left: LeftHistory, trouble: Callable[..., Finding]) -> Iterator[Finding]:
    if left.outlived:
        jobs = at_least(left.outlived, LEFTOVERS_COUNTED_MAX, "job")
        yield trouble(
            f"{jobs} of the history should have been deleted days ago",
            "start a worker: its upkeep deletes them",
        )
    if left.leftovers:
        jobs = at_least(left.leftovers, LEFTOVERS_COUNTED_MAX, "ended job")
        yield trouble(
            f"{jobs} {'is' if left.leftovers == 1 else 'are'} still among the live jobs, left there"
            " by a worker of an older version",
            "start a worker: its upkeep moves them to the history; then restart the old ones",
        )
