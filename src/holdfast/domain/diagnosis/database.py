"""Is the database there, is it the right one, and does it keep what it is given?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.domain.diagnosis.findings import (
    Check,
    Finding,
    Severity,
    critical,
    finding,
    fine,
    info,
    warning,
)
from holdfast.domain.diagnosis.vitals import Clock, Connections, Pooler, Vitals, WakeupTrial
from holdfast.domain.diagnosis.words import lasting
from holdfast.domain.errors import StoreUnavailable

ANSWER_SECONDS_MAX: Final = 1.0
BEHIND_SECONDS_MAX: Final = 10.0
CLOCK_SECONDS_MAX: Final = 1.0
CONNECTIONS_WARNING: Final = 0.8
CONNECTIONS_CRITICAL: Final = 0.95
_WEAKENED: Final = {
    "fsync": (Severity.CRITICAL, "a machine crash can destroy the whole database"),
    "full_page_writes": (Severity.CRITICAL, "a machine crash can destroy pages of the database"),
    "synchronous_commit": (Severity.WARNING, "a server crash loses the last acknowledged writes"),
    "sqlite_synchronous": (Severity.INFO, "a power failure loses the last acknowledged writes"),
}
_WHO_IS_CONNECTED: Final = (
    "SELECT usename, application_name, count(*) FROM pg_stat_activity GROUP BY 1, 2;"
)


def judge_database(vitals: Vitals) -> Iterator[Finding]:
    yield _reachable(vitals)
    if vitals.schema_version is not None:
        yield _schema(vitals.schema_version, vitals.schema_known)
    if vitals.encoding is not None:
        yield _encoding(vitals.encoding)
    if vitals.writable is not None:
        yield _writable(vitals)
    if vitals.behind_seconds is not None:
        yield _replica(vitals.behind_seconds)
    yield from _durability(vitals)
    if vitals.clock is not None:
        yield _clock(vitals.clock)
    if vitals.connections is not None:
        yield _connections(vitals.connections)
    if vitals.pooler is not None:
        yield _pooler(vitals.pooler)
    if vitals.wakeups is not None:
        yield _wakeups(vitals.wakeups, vitals.pooler)


def _reachable(vitals: Vitals) -> Finding:
    facts: dict[str, Any] = {"product": vitals.product, "answer_seconds": vitals.answer_seconds}
    sentence = f"{vitals.product} answers in {lasting(vitals.answer_seconds)}"
    if vitals.answer_seconds <= ANSWER_SECONDS_MAX:
        return fine(Check.REACHABLE, sentence, **facts)
    return warning(
        Check.REACHABLE,
        f"{sentence}, which is slow: every claim and every settle takes that long",
        advice="check the load on the database server and the network to it",
        **facts,
    )


def _schema(version: int, known: int) -> Finding:
    facts: dict[str, Any] = {"version": version, "known": known}
    if version == known:
        return fine(Check.SCHEMA, f"schema version {version} matches this code", **facts)
    severity = Severity.CRITICAL
    advice, command = "migrate it", "holdfast migrate MODULE:NAME"
    if version == 0:
        sentence = "the database has no schema"
    elif version < known:
        sentence = f"the schema is at version {version}; this code needs {known}"
    else:
        sentence = f"the schema is at version {version}; this code knows {known}"
        advice, command = "upgrade holdfast here", "pip install --upgrade holdfast"
        if version == known + 1:
            severity = Severity.INFO
            sentence += " and also runs on the next one"
    return finding(severity, Check.SCHEMA, sentence, advice, command, **facts)


def _encoding(encoding: str) -> Finding:
    if encoding == "UTF8":
        return fine(Check.ENCODING, "the database can store any text", encoding=encoding)
    return critical(
        Check.ENCODING,
        f"the database's encoding is {encoding}, which can't store all text: workers and"
        " clients refuse to use it",
        advice="create a UTF-8 database and point workers and clients at it",
        command="CREATE DATABASE jobs ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;",
        encoding=encoding,
    )


def _writable(vitals: Vitals) -> Finding:
    if vitals.writable:
        return fine(Check.WRITABLE, "the database is writable")
    because = vitals.read_only_because
    return critical(
        Check.WRITABLE,
        f"the database is not writable: {because}",
        advice="point workers and clients at the primary (?target_session_attrs=primary), or"
        " grant their user write access"
        if vitals.file is None
        else "give the user of workers and clients write access to the file and its directory",
        because=because,
    )


def _replica(behind_seconds: float) -> Finding:
    if behind_seconds <= BEHIND_SECONDS_MAX:
        return fine(Check.REPLICA, "this replica is up to date", behind_seconds=behind_seconds)
    return warning(
        Check.REPLICA,
        f"this replica is {lasting(behind_seconds)} behind the primary: what you see is that old",
        advice="check replication on the primary",
        command="SELECT application_name, state, replay_lag FROM pg_stat_replication;",
        behind_seconds=behind_seconds,
    )


def _durability(vitals: Vitals) -> Iterator[Finding]:
    if vitals.settings is None:
        return
    weak = [name for name in _WEAKENED if vitals.settings.get(name) in ("off", "NORMAL")]
    if not weak:
        yield fine(Check.DURABILITY, "acknowledged writes survive a crash", **vitals.settings)
    for name in weak:
        value = vitals.settings[name]
        severity, consequence = _WEAKENED[name]
        advice, command = "turn it on", f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();"
        is_ours = name == "sqlite_synchronous"
        yield finding(
            severity,
            Check.DURABILITY,
            f"{name} is {value}: {consequence}",
            advice="remove the setting to get FULL" if is_ours else advice,
            command=None if is_ours else command,
            setting=name,
            value=value,
        )


def _clock(clock: Clock) -> Finding:
    facts = msgspec.structs.asdict(clock)
    off_seconds = abs(clock.ahead_seconds)
    if off_seconds - clock.error_seconds <= CLOCK_SECONDS_MAX:
        return fine(Check.CLOCK, "this machine's clock agrees with the database's", **facts)
    way = "behind" if clock.ahead_seconds > 0 else "ahead of"
    return warning(
        Check.CLOCK,
        f"this machine's clock is {lasting(off_seconds)} {way} the database's. Leases and due"
        " times use the database's clock and are right; a run_at computed here, times in logs and"
        " the order of lists are not",
        advice="run a time service (NTP) on this machine and on the database server",
        command="timedatectl status",
        **facts,
    )


def _connections(connections: Connections) -> Finding:
    facts = msgspec.structs.asdict(connections)
    sentence = f"{connections.used:,} of {connections.usable:,} server connections are in use"
    share = connections.used / max(connections.usable, 1)
    if share < CONNECTIONS_WARNING:
        return fine(Check.CONNECTIONS, sentence, **facts)
    return finding(
        Severity.CRITICAL if share >= CONNECTIONS_CRITICAL else Severity.WARNING,
        Check.CONNECTIONS,
        f"{sentence}; when none is left, clients can't enqueue and workers wait",
        advice="raise max_connections, lower pool_size, or use PgBouncer; to see who has them",
        command=_WHO_IS_CONNECTED,
        **facts,
    )


def no_connection_left(error: StoreUnavailable) -> Finding:
    return critical(
        Check.CONNECTIONS,
        str(error),
        advice="connect as a superuser (some connections are reserved for superusers) to see who"
        " has them",
        command=_WHO_IS_CONNECTED,
        error=type(error).__name__,
    )


def _pooler(pooler: Pooler) -> Finding:
    match pooler:
        case Pooler.NONE:
            return fine(Check.POOLER, "there is no connection pooler", mode=pooler)
        case Pooler.SESSION:
            sentence = "there is a connection pooler, apparently in session mode"
            return fine(Check.POOLER, sentence, mode=pooler)
    return info(
        Check.POOLER,
        "there is a connection pooler in transaction mode: everything works, but without prepared"
        " statements and wake-ups",
        advice="give busy workers a direct address",
        mode=pooler,
    )


def _wakeups(trial: WakeupTrial, pooler: Pooler | None) -> Finding:
    if trial.seconds is not None:
        sentence = f"a wake-up arrived in {lasting(trial.seconds)}"
        return fine(Check.WAKEUPS, sentence, seconds=trial.seconds)
    expected = pooler is Pooler.TRANSACTION
    return finding(
        Severity.INFO if expected else Severity.WARNING,
        Check.WAKEUPS,
        f"wake-ups don't arrive ({trial.because}): new jobs are found only by polling, up to"
        " poll_seconds later",
        advice="give workers a direct address, or lower poll_seconds"
        if expected
        else "look for listen_unavailable or wakeups_unavailable in a worker's log",
        seconds=None,
        because=trial.because,
    )
