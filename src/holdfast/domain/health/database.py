"""Is the database there, is it the right one, and does it keep what it is given?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.domain.health.findings import Check, Finding, Severity, fine
from holdfast.domain.health.vitals import Clock, Connections, Pooler, Vitals, WakeupTrial
from holdfast.domain.health.words import lasting

ANSWER_SECONDS_MAX: Final = 1.0
CLOCK_SECONDS_MAX: Final = 1.0
CONNECTIONS_WARNING: Final = 0.8
CONNECTIONS_CRITICAL: Final = 0.95
_DURABLE = {
    "fsync": "a crash of the machine may destroy the whole database",
    "full_page_writes": "a crash of the machine may destroy pages of the database",
    "synchronous_commit": "a crash of the server loses what was acknowledged in its last moments",
    "sqlite_synchronous": "a power cut loses what was acknowledged in its last moments",
}


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
        sentence=f"{sentence}, which is slow: every claim and every end of a job takes so long",
        advice="look at the load of the database's machine, and at the network to it",
        facts=facts,
    )


def _schema(version: int, known: int) -> Finding:
    facts = {"version": version, "known": known}
    if version == known:
        return fine(Check.SCHEMA, f"the schema has version {version}, as this code", **facts)
    severity = Severity.CRITICAL
    advice, command = "bring it up to date", "holdfast migrate MODULE:NAME"
    if version == 0:
        sentence = "the database has no schema"
    elif version < known:
        sentence = f"the schema has version {version}, this code needs {known}"
    else:
        sentence = f"the schema has version {version}, this code knows {known}"
        advice, command = "upgrade holdfast here", "pip install --upgrade holdfast"
        if version == known + 1:
            severity = Severity.INFO
            sentence += " and runs on the next one, too"
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
        advice="create a UTF-8 database and point workers and clients to it",
        command="CREATE DATABASE jobs ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;",
        facts=facts,
    )


def _writable(vitals: Vitals) -> Finding:
    if vitals.writable:
        return fine(Check.WRITABLE, "the database can be written")
    because = vitals.read_only_because
    return Finding(
        code=Check.WRITABLE,
        severity=Severity.CRITICAL,
        sentence=f"the database can't be written: {because}",
        advice="give workers and clients an address that leads to the primary"
        " (?target_session_attrs=primary), or let their user write"
        if vitals.file is None
        else "let the user of workers and clients write the file and its directory",
        facts={"because": because},
    )


def _durability(vitals: Vitals) -> Iterator[Finding]:
    if vitals.settings is None:
        return
    weak = [name for name in _DURABLE if vitals.settings.get(name) in ("off", "NORMAL")]
    if not weak:
        yield fine(Check.DURABILITY, "what is acknowledged survives a crash", **vitals.settings)
    for name in weak:
        value = vitals.settings[name]
        severity = {"fsync": Severity.CRITICAL, "full_page_writes": Severity.CRITICAL}
        command = f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();"
        chosen_here = name == "sqlite_synchronous"
        yield Finding(
            code=Check.DURABILITY,
            severity=Severity.INFO if chosen_here else severity.get(name, Severity.WARNING),
            sentence=f"{name} is {value}: {_DURABLE[name]}",
            advice="leave the setting out to have FULL" if chosen_here else "turn it on",
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
        sentence=f"this machine's clock is {lasting(off_seconds)} {way} the database's. Leases and"
        " due times go by the database's and are right; a run_at that is computed here, times in"
        " logs and the order of lists are not",
        advice="let a time service set the clock of this machine, and of the database's",
        command="timedatectl status",
        facts=facts,
    )


def _connections(connections: Connections) -> Finding:
    used, usable = connections.used, connections.usable
    facts = {"used": used, "usable": usable}
    sentence = f"{used:,} of {usable:,} connections of the server are used"
    share = used / max(usable, 1)
    if share < CONNECTIONS_WARNING:
        return fine(Check.CONNECTIONS, sentence, **facts)
    critical = share >= CONNECTIONS_CRITICAL
    return Finding(
        code=Check.CONNECTIONS,
        severity=Severity.CRITICAL if critical else Severity.WARNING,
        sentence=f"{sentence}; who gets none can't enqueue, and its workers wait",
        advice="raise max_connections, lower pool_size, or let clients go through PgBouncer; to see"
        " who has them",
        command="SELECT usename, application_name, count(*) FROM pg_stat_activity GROUP BY 1, 2;",
        facts=facts,
    )


def _pooler(pooler: Pooler) -> Finding:
    match pooler:
        case Pooler.NONE:
            return fine(Check.POOLER, "no pooler stands before the server", mode=pooler)
        case Pooler.SESSION:
            sentence = "a pooler stands before the server, in session mode as it seems"
            return fine(Check.POOLER, sentence, mode=pooler)
    return Finding(
        code=Check.POOLER,
        severity=Severity.INFO,
        sentence="a pooler in transaction mode stands before the server: all works, but nothing"
        " is prepared, and no wake-ups come through",
        advice="give workers that have much to do a direct address",
        facts={"mode": pooler},
    )


def _wakeups(trial: WakeupTrial, pooler: Pooler | None) -> Finding:
    facts = {"seconds": trial.seconds}
    if trial.seconds is not None:
        return fine(Check.WAKEUPS, f"a wake-up arrived in {lasting(trial.seconds)}", **facts)
    expected = pooler is Pooler.TRANSACTION
    return Finding(
        code=Check.WAKEUPS,
        severity=Severity.INFO if expected else Severity.WARNING,
        sentence=f"wake-ups don't arrive ({trial.because}): a new job is found by polling only, up"
        " to poll_seconds later",
        advice="give workers a direct address, or lower poll_seconds"
        if expected
        else "see what the log of a worker says of listen_unavailable or wakeups_unavailable",
        facts={**facts, "because": trial.because},
    )
