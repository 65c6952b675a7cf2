"""Is the database there, is it the right one, and does it keep what it is given?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.domain.diagnosis.findings import Check, Finding, Severity, fine
from holdfast.domain.diagnosis.vitals import Clock, Connections, Pooler, Vitals, WakeupTrial
from holdfast.domain.diagnosis.words import lasting
from holdfast.domain.errors import StoreUnavailable

ANSWER_SECONDS_MAX: Final = 1.0
CLOCK_SECONDS_MAX: Final = 1.0
CONNECTIONS_WARNING: Final = 0.8
CONNECTIONS_CRITICAL: Final = 0.95
_DURABLE = {
    "fsync": "a machine crash can destroy the whole database",
    "full_page_writes": "a machine crash can destroy pages of the database",
    "synchronous_commit": "a server crash loses the last acknowledged writes",
    "sqlite_synchronous": "a power failure loses the last acknowledged writes",
}


_WHO_IS_CONNECTED = (
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
    facts = {"product": vitals.product, "answer_seconds": vitals.answer_seconds}
    sentence = f"{vitals.product} answers in {lasting(vitals.answer_seconds)}"
    if vitals.answer_seconds <= ANSWER_SECONDS_MAX:
        return fine(Check.REACHABLE, sentence, **facts)
    return Finding(
        code=Check.REACHABLE,
        severity=Severity.WARNING,
        sentence=f"{sentence}, which is slow: every claim and every settle takes that long",
        advice="check the load on the database server and the network to it",
        facts=facts,
    )


def _schema(version: int, known: int) -> Finding:
    facts = {"version": version, "known": known}
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
    return Finding(
        code=Check.SCHEMA,
        severity=severity,
        sentence=sentence,
        advice=advice,
        command=command,
        facts=facts,
    )


def _encoding(encoding: str) -> Finding:
    facts = {"encoding": encoding}
    if encoding == "UTF8":
        return fine(Check.ENCODING, "the database can store any text", **facts)
    return Finding(
        code=Check.ENCODING,
        severity=Severity.CRITICAL,
        sentence=f"the database's encoding is {encoding}, which can't store all text: workers and"
        " clients refuse to use it",
        advice="create a UTF-8 database and point workers and clients at it",
        command="CREATE DATABASE jobs ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;",
        facts=facts,
    )


def _writable(vitals: Vitals) -> Finding:
    if vitals.writable:
        return fine(Check.WRITABLE, "the database is writable")
    because = vitals.read_only_because
    return Finding(
        code=Check.WRITABLE,
        severity=Severity.CRITICAL,
        sentence=f"the database is not writable: {because}",
        advice="point workers and clients at the primary"
        " (?target_session_attrs=primary), or grant their user write access"
        if vitals.file is None
        else "give the user of workers and clients write access to the file and its directory",
        facts={"because": because},
    )


def _durability(vitals: Vitals) -> Iterator[Finding]:
    if vitals.settings is None:
        return
    weak = [name for name in _DURABLE if vitals.settings.get(name) in ("off", "NORMAL")]
    if not weak:
        yield fine(Check.DURABILITY, "acknowledged writes survive a crash", **vitals.settings)
    for name in weak:
        value = vitals.settings[name]
        severity = {"fsync": Severity.CRITICAL, "full_page_writes": Severity.CRITICAL}
        command = f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();"
        chosen_here = name == "sqlite_synchronous"
        yield Finding(
            code=Check.DURABILITY,
            severity=Severity.INFO if chosen_here else severity.get(name, Severity.WARNING),
            sentence=f"{name} is {value}: {_DURABLE[name]}",
            advice="remove the setting to get FULL" if chosen_here else "turn it on",
            command=None if chosen_here else command,
            facts={"setting": name, "value": value},
        )


def _clock(clock: Clock) -> Finding:
    facts = {"ahead_seconds": clock.ahead_seconds, "error_seconds": clock.error_seconds}
    off_seconds = abs(clock.ahead_seconds)
    if off_seconds - clock.error_seconds <= CLOCK_SECONDS_MAX:
        return fine(Check.CLOCK, "this machine's clock agrees with the database's", **facts)
    way = "behind" if clock.ahead_seconds > 0 else "ahead of"
    return Finding(
        code=Check.CLOCK,
        severity=Severity.WARNING,
        sentence=f"this machine's clock is {lasting(off_seconds)} {way} the database's. Leases"
        " and due times follow the database and are right; a run_at computed here, times in"
        " logs and the order of lists are not",
        advice="run a time service (NTP) on this machine and on the database server",
        command="timedatectl status",
        facts=facts,
    )


def _connections(connections: Connections) -> Finding:
    used, usable = connections.used, connections.usable
    facts = {"used": used, "usable": usable}
    sentence = f"{used:,} of {usable:,} server connections are in use"
    share = used / max(usable, 1)
    if share < CONNECTIONS_WARNING:
        return fine(Check.CONNECTIONS, sentence, **facts)
    critical = share >= CONNECTIONS_CRITICAL
    return Finding(
        code=Check.CONNECTIONS,
        severity=Severity.CRITICAL if critical else Severity.WARNING,
        sentence=f"{sentence}; clients without one can't enqueue, and workers wait",
        advice="raise max_connections, lower pool_size, or use PgBouncer; to see who has them",
        command=_WHO_IS_CONNECTED,
        facts=facts,
    )


def no_connection_left(error: StoreUnavailable) -> Finding:
    return Finding(
        code=Check.CONNECTIONS,
        severity=Severity.CRITICAL,
        sentence=str(error),
        advice="to see who has them, connect as a superuser: some connections are reserved for"
        " superusers",
        command=_WHO_IS_CONNECTED,
        facts={"error": type(error).__name__},
    )


def _pooler(pooler: Pooler) -> Finding:
    match pooler:
        case Pooler.NONE:
            return fine(Check.POOLER, "there is no connection pooler", mode=pooler)
        case Pooler.SESSION:
            sentence = "there is a connection pooler, apparently in session mode"
            return fine(Check.POOLER, sentence, mode=pooler)
    return Finding(
        code=Check.POOLER,
        severity=Severity.INFO,
        sentence="there is a connection pooler in transaction mode: everything works, but"
        " without prepared statements and wakeups",
        advice="give busy workers a direct address",
        facts={"mode": pooler},
    )


def _wakeups(trial: WakeupTrial, pooler: Pooler | None) -> Finding:
    facts = {"seconds": trial.seconds}
    if trial.seconds is not None:
        return fine(Check.WAKEUPS, f"a wakeup arrived in {lasting(trial.seconds)}", **facts)
    expected = pooler is Pooler.TRANSACTION
    return Finding(
        code=Check.WAKEUPS,
        severity=Severity.INFO if expected else Severity.WARNING,
        sentence=f"wakeups don't arrive ({trial.because}): new jobs are found only by polling,"
        " up to poll_seconds later",
        advice="give workers a direct address, or lower poll_seconds"
        if expected
        else "look for listen_unavailable or wakeups_unavailable in a worker's log",
        facts={**facts, "because": trial.because},
    )
