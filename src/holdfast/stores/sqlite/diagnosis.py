"""What keeps a job waiting, and the health of an SQLite file.

An examination reads the file part by part on a connection that changes nothing. Opening it like a
store would migrate it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from holdfast.domain import limits
from holdfast.domain.diagnosis.vitals import (
    LATELY_SECONDS,
    Capped,
    Due,
    EndedLately,
    Ends,
    Failure,
    FileStatus,
    HandedBack,
    IndexStatus,
    LeftHistory,
    Patience,
    Paused,
    Stuck,
    Vitals,
    WakeupTrial,
    Workload,
)
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.retention import DAY_SECONDS
from holdfast.domain.states import State
from holdfast.domain.why import Circumstances
from holdfast.runtime.seam import Seam
from holdfast.stores import migrations
from holdfast.stores.sqlite import breakers, queries, queues, workers
from holdfast.stores.sqlite.connections import Database
from holdfast.stores.sqlite.forks import Usage
from holdfast.stores.sqlite.rows import SQL, after, fetch, seconds_since, snapshot, to_time
from holdfast.stores.sqlite.schema import version_of
from holdfast.wakeups.local import LocalSignals
from holdfast.wakeups.protocol import Wakeup

T = TypeVar("T")

PART_SECONDS_MAX: Final = 3.0
TRIAL_SECONDS_MAX: Final = 5.0
_STEPS_BETWEEN_LOOKS = 10_000  # of SQLite's virtual machine
_BUSY_TIMEOUT = "PRAGMA busy_timeout = 2000"
_CHECK = "PRAGMA quick_check(5)"  # reports at most 5 problems
_DAYS_LATE = 2
_MOUNTS = Path("/proc/self/mounts")


def circumstances(
    connection: sqlite3.Connection, job_id: UUID, tenant: str | None, now: int
) -> Circumstances | None:
    """Read everything that `explain` needs in one snapshot."""
    bounds = {"id": str(job_id), "now": now, "limit": limits.AHEAD_COUNTED_MAX + 1}
    with snapshot(connection):
        job = queries.get(connection, job_id, tenant)
        if job is None:
            return None
        around = connection.execute(SQL["surroundings"].sql, bounds).fetchone()
        suspect, parked, probes = around or (0, 0, 0)
        attempts = queries.attempts(connection, job_id)
        breaker = [] if job.breaker is None else breakers.breakers(connection, now, job.breaker)
        return Circumstances(
            job=job,
            now=to_time(now),
            suspect=bool(suspect),
            parked=bool(parked),
            probes=probes,
            ahead=connection.execute(SQL["ahead"].sql, bounds).fetchone()[0],
            last_attempt=attempts[-1] if attempts else None,
            workers=workers.workers(connection, now),
            queue=queues.queue(connection, job.queue),
            breaker=next(iter(breaker), None),
        )


async def vitals(
    database: Database, signals: LocalSignals, seam: Seam, patience: Patience
) -> Vitals:
    wakeups = await _try_wakeup(signals, seam)
    examiner = Examiner(database, seam, patience)
    thread = seam.threads("holdfast-examiner", 1)
    try:
        return await asyncio.wrap_future(thread.submit(partial(examiner.read, wakeups)))
    except Exception as error:
        raise database.translated(error) from error
    finally:
        thread.close()


async def _try_wakeup(signals: LocalSignals, seam: Seam) -> WakeupTrial:
    """Send ourselves a wake-up for a queue that nobody uses."""
    token = f"holdfast-trial-{seam.token()}"
    arrived = asyncio.Event()
    listener = signals.listen(
        lambda wakeup: arrived.set() if wakeup.queue == token else None  # workers send some, too
    )
    if listener is None:
        return WakeupTrial(seconds=None, because=f"no socket can be bound in {signals.directory}")
    try:
        began = seam.monotonic()
        signals.send([Wakeup(queue=token)])
        async with asyncio.timeout(TRIAL_SECONDS_MAX):
            await arrived.wait()
        return WakeupTrial(seconds=seam.monotonic() - began)
    except TimeoutError:
        return WakeupTrial(seconds=None, because="it was sent and did not arrive")
    finally:
        await listener.close()
        signals.close()


class Examiner:
    """Reads the file part by part; notes and leaves out a part that can't be read."""

    def __init__(self, database: Database, seam: Seam, patience: Patience) -> None:
        self._database = database
        self._seam = seam
        self._patience = patience
        self._unread: dict[str, str] = {}
        self._usage = Usage(database.path, lambda: True)

    def read(self, wakeups: WakeupTrial) -> Vitals:
        path = self._database.path
        if not os.path.exists(path):
            raise ConfigurationError(
                f"there is no file {path}; the first use creates it, or run: holdfast migrate"
            )
        with self._usage.lock, closing(self._database.connect_examiner().connection) as connection:
            connection.execute(_BUSY_TIMEOUT)
            return self._read(connection, wakeups)

    def _read(self, connection: sqlite3.Connection, wakeups: WakeupTrial) -> Vitals:
        asked = self._seam.monotonic()
        version = self._part(connection, "the schema", version_of)
        answer_seconds = self._seam.monotonic() - asked
        known = migrations.steps("sqlite")[-1].version
        read_only_because = _read_only_because(self._database.path)
        fits = version in (known, known + 1)
        return Vitals(
            product=f"SQLite {sqlite3.sqlite_version} at {self._database.path}",
            answer_seconds=answer_seconds,
            schema_version=version,
            schema_known=known,
            writable=read_only_because is None,
            read_only_because=read_only_because,
            settings={"sqlite_synchronous": self._database.synchronous},
            wakeups=wakeups,
            indexes=self._part(
                connection, "indexes", partial(_indexes, min(version or 0, known)), version
            ),
            workload=self._part(connection, "jobs and workers", self._workload, fits),
            ended=self._part(connection, "ended jobs", self._ended, fits),
            history=self._part(connection, "the history", self._history, fits),
            file=self._file(connection),
            unread=self._unread,
        )

    def _part(
        self,
        connection: sqlite3.Connection,
        name: str,
        read: Callable[[sqlite3.Connection], T],
        fits: object = True,
    ) -> T | None:
        """Read a part if the schema `fits`; None if it doesn't, or the part can't be read."""
        until = self._seam.monotonic() + PART_SECONDS_MAX
        connection.set_progress_handler(
            lambda: int(self._seam.monotonic() > until), _STEPS_BETWEEN_LOOKS
        )
        try:
            return read(connection) if fits else None
        except (sqlite3.Error, OSError) as error:
            self._unread[name] = str(self._database.translated(error))
            return None

    def _workload(self, connection: sqlite3.Connection) -> Workload:
        now = self._database.now()
        return Workload(
            now=to_time(now),
            workers=workers.workers(connection, now),
            due=_due(connection, now),
            handed_back=_handed_back(connection, now),
            stuck=_stuck(connection, now, self._patience.stuck_seconds),
            paused=[
                Paused(**row | {"since": to_time(row["since"])})
                for row in fetch(connection, "vital_paused")
            ],
            capped=[Capped(**row) for row in fetch(connection, "vital_capped")],
            breakers=breakers.breakers(connection, now),
        )

    def _ended(self, connection: sqlite3.Connection) -> EndedLately:
        since = after(self._database.now(), -LATELY_SECONDS)
        ends = fetch(connection, "vital_ends", since=since, limit=limits.ENDED_LOOK_MAX)
        failures = fetch(connection, "vital_failures", since=since, limit=limits.FAILURES_LOOK_MAX)
        return EndedLately(
            ends=[
                Ends(**row | {"state": State(row["state"]), "lately": bool(row["lately"])})
                for row in ends
            ],
            failures=[Failure(**row) for row in failures],
        )

    def _history(self, connection: sqlite3.Connection) -> LeftHistory:
        until = after(self._database.now(), -_DAYS_LATE * DAY_SECONDS)
        bounds = {"until": until, "limit": limits.LEFTOVERS_COUNTED_MAX}
        return LeftHistory(
            leftovers=connection.execute(SQL["vital_leftovers"].sql, bounds).fetchone()[0],
            outlived=connection.execute(SQL["vital_outlived"].sql, bounds).fetchone()[0],
        )

    def _file(self, connection: sqlite3.Connection) -> FileStatus:
        path = os.path.realpath(self._database.path)
        damage = self._part(connection, "the file", _find_damage)
        disk = os.statvfs(os.path.dirname(path))
        log = f"{path}-wal"
        return FileStatus(
            path=self._database.path,
            size_bytes=os.path.getsize(path),
            log_bytes=os.path.getsize(log) if os.path.exists(log) else 0,
            free_bytes=disk.f_bavail * disk.f_frsize,
            disk_bytes=disk.f_blocks * disk.f_frsize,
            journal_mode=self._part(
                connection,
                "the journal",
                lambda connection: connection.execute("PRAGMA journal_mode").fetchone()[0],
            ),
            file_system=_file_system(path),
            check_ended=None if damage is None else damage.check_ended,
            damage=() if damage is None else damage.words,
        )


class _Damage(NamedTuple):
    check_ended: bool
    words: Sequence[str] = ()


def _find_damage(connection: sqlite3.Connection) -> _Damage:
    try:
        found = [" ".join(row[0].split()) for row in connection.execute(_CHECK)]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            return _Damage(check_ended=False)
        raise
    except sqlite3.DatabaseError as error:
        found = [str(error)]
    return _Damage(check_ended=True, words=[] if found == ["ok"] else found)


def _indexes(version: int, connection: sqlite3.Connection) -> list[IndexStatus]:
    there = {name for (name,) in connection.execute(SQL["vital_indexes"].sql)}
    wanted = migrations.indexes("sqlite", version)
    return [
        IndexStatus(name=name, create=create, there=name in there)
        for name, create in wanted.items()
    ]


def _due(connection: sqlite3.Connection, now: int) -> list[Due]:
    bounds = {"now": now, "limit": limits.DUE_LANES_MAX}
    jobs: Counter[tuple[str, str]] = Counter()
    oldest: dict[tuple[str, str], int] = {}
    for queue, priority in connection.execute(SQL["vital_lanes"].sql, bounds).fetchall():
        lane = {"queue": queue, "priority": priority, "now": now, "limit": limits.DUE_COUNTED_MAX}
        for name, count, first in connection.execute(SQL["vital_due"].sql, lane):
            jobs[queue, name] += count
            oldest[queue, name] = min(first, oldest.get((queue, name), first))
    return [
        Due(
            queue=queue,
            name=name,
            jobs=count,
            oldest_seconds=seconds_since(oldest[queue, name], now),
        )
        for (queue, name), count in jobs.items()
    ]


def _handed_back(connection: sqlite3.Connection, now: int) -> list[HandedBack]:
    """A job that was handed back is due again within HAND_BACK_SECONDS_MAX."""
    since, until = (after(now, sign * limits.HAND_BACK_SECONDS_MAX) for sign in (-1, 1))
    lanes = fetch(connection, "vital_lanes", now=until, limit=limits.DUE_LANES_MAX)
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    bounds = {"since": since, "until": until, "limit": limits.HANDED_BACK_LOOK_MAX}
    for lane in lanes:
        for row in fetch(connection, "vital_handed_back", **lane, **bounds):
            found.setdefault((lane["queue"], row["name"]), []).append(row)
    return [
        HandedBack(
            queue=queue,
            name=name,
            jobs=len(rows),
            releases=max(row["releases"] for row in rows),
            error_text=rows[0]["error_text"],
        )
        for (queue, name), rows in found.items()
    ]


def _stuck(connection: sqlite3.Connection, now: int, stuck_seconds: float) -> Stuck:
    bounds = {"until": after(now, -stuck_seconds), "limit": limits.STUCK_COUNTED_MAX}
    rows = connection.execute(SQL["vital_stuck"].sql, bounds).fetchall()
    return Stuck(
        jobs=len(rows),
        oldest_seconds=seconds_since(rows[0][1], now) if rows else 0.0,
        workers=sorted({worker for worker, _ in rows}),
    )


def _read_only_because(path: str) -> str | None:
    for part in (path, os.path.dirname(os.path.abspath(path))):
        if not os.access(part, os.W_OK):
            return f"{part} can't be written by this user"
    return None


def _file_system(path: str) -> str | None:
    """The type of the file's file system; None if the system doesn't say."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    return kind_of_mount(path, mounts)


def kind_of_mount(path: str, mounts: str) -> str | None:
    """Find the innermost mount; at the same place, the last one hides the earlier ones."""
    kind, depth = None, -1
    for line in mounts.splitlines():
        _, place, name, *_ = line.split(" ")
        place = place.replace("\\040", " ")
        parts = 0 if place == "/" else place.count("/")
        if parts >= depth and (place == "/" or f"{path}/".startswith(f"{place}/")):
            kind, depth = name, parts
    return kind
