"""Watch jobs for clients, with one database query per tick for all of them."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from hashlib import blake2b
from itertools import islice
from logging import WARNING
from typing import Final
from uuid import UUID

import msgspec

from holdfast.api.limits import SINGLE_READS_MAX, STREAM_KEEP_ALIVE_SECONDS
from holdfast.domain.encrypted_jobs import JobCipher
from holdfast.domain.errors import JobNotFound, NotInThisStore, StoreError
from holdfast.domain.job import JobStatus, Watched
from holdfast.domain.scope import all_tenants
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff, is_set_within
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Store, Watching, capability

QUICK_SECONDS: Final = 0.1  # between two ticks, after a change
CALM_SECONDS: Final = 1.0  # after several ticks without one
SLOWDOWN: Final = 1.5
REST: Final = 20  # times as long as the tick took: a busy database gets fewer
SINGLE_READS_SECONDS: Final = 2.0  # between two ticks of a store that reads one job at a time
READ_SECONDS_MAX: Final = 10.0
RETRY_SECONDS_MIN: Final = 0.25
RETRY_SECONDS_MAX: Final = 5.0
DIGEST_BYTES: Final = 6  # 8 characters

Changes = Mapping[UUID, JobStatus | None]


class Watcher:
    """What one client has yet to see: the latest status of each job that changed, or None for a job
    that is gone. A slow client misses intermediate states, and costs no extra memory."""

    def __init__(self) -> None:
        self._changes: dict[UUID, JobStatus | None] = {}
        self._ready = asyncio.Event()
        self.stopped = False  # the server is stopping

    async def changes(self, within_seconds: float) -> Changes:
        """Wait for a change, up to this long. At first, every job counts as changed."""
        if not self.stopped:
            await is_set_within(self._ready, within_seconds)
        self._ready.clear()
        changes, self._changes = self._changes, {}
        return changes

    def put(self, job_id: UUID, status: JobStatus | None) -> None:
        self._changes[job_id] = status
        self._ready.set()

    def stop(self) -> None:
        self.stopped = True
        self._ready.set()


class Watch:
    """Ticks are fast while jobs change, slow down when none does, and stop when nobody watches."""

    def __init__(
        self,
        store: Callable[[], Awaitable[Store]],
        seam: Seam,
        cipher: JobCipher,
        stopping: asyncio.Event,
        keep_alive_seconds: float = STREAM_KEEP_ALIVE_SECONDS,
    ) -> None:
        self.keep_alive_seconds = keep_alive_seconds
        self._store = store
        self._cipher = cipher
        self._backoff = Backoff(seam, RETRY_SECONDS_MIN, RETRY_SECONDS_MAX)
        self._stopping = stopping
        self._watchers: dict[UUID, set[Watcher]] = {}
        self._new: dict[UUID, None] = {}  # jobs with a watcher that has not seen them yet
        self._known: dict[UUID, str] = {}  # the versions of all jobs read so far, in turns
        self._wake = asyncio.Event()
        self._ticking: asyncio.Task[None] | None = None
        self._pace_seconds = QUICK_SECONDS
        self._due_at = 0.0

    @property
    def jobs(self) -> int:
        """How many jobs are watched."""
        return len(self._watchers)

    @property
    def is_ticking(self) -> bool:
        return self._ticking is not None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """End all watches when the server stops, at the latest at the end of the block."""
        stopping = asyncio.create_task(self._stop_in_time())
        try:
            yield
        finally:
            self._stopping.set()
            await stopping
            if self._ticking is not None:
                self._ticking.cancel()
                await asyncio.wait([self._ticking])

    async def _stop_in_time(self) -> None:
        await self._stopping.wait()
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.stop()

    async def look(self, job_ids: Collection[UUID], tenant: str | None) -> dict[UUID, JobStatus]:
        """Read these jobs now. Raise JobNotFound if one is missing or belongs to another tenant."""
        store = await self._store()
        if len(job_ids) > SINGLE_READS_MAX and capability(store, Watching) is None:
            name = type(store).__name__
            raise NotInThisStore(
                f"this store ({name}) can't watch more than {SINGLE_READS_MAX} jobs in one stream"
            )
        found = await self._changed(store, dict.fromkeys(job_ids, ""))
        statuses = {}
        for job_id in job_ids:
            job = found[job_id]
            if job is None or tenant not in (None, job.tenant):
                raise JobNotFound(job_id)
            statuses[job_id] = job.status
        return statuses

    @contextmanager
    def watching(self, job_ids: Collection[UUID]) -> Iterator[Watcher]:
        """Report changes of these jobs to the watcher until the end of the block."""
        watcher = Watcher()
        if self._stopping.is_set():
            watcher.stop()
        for job_id in job_ids:
            self._watchers.setdefault(job_id, set()).add(watcher)
            self._new[job_id] = None
        self._wake.set()
        if self._ticking is None:
            with all_tenants():
                self._ticking = asyncio.create_task(self._tick_while_watched())
        try:
            yield watcher
        finally:
            for job_id in job_ids:
                self._leave(job_id, watcher)
            if not self._watchers:
                self._wake.set()

    def _leave(self, job_id: UUID, watcher: Watcher) -> None:
        watchers = self._watchers.get(job_id, set())
        watchers.discard(watcher)
        if not watchers:
            self._forget(job_id)

    def _forget(self, job_id: UUID) -> None:
        self._watchers.pop(job_id, None)
        self._known.pop(job_id, None)
        self._new.pop(job_id, None)

    async def _tick_while_watched(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._watchers:
            began_at = clock()
            try:
                async with asyncio.timeout(READ_SECONDS_MAX):
                    await self._tick(began_at)
            except Exception as error:
                # Whatever it is, keep the streams open: the next read may succeed.
                self._log(error)
                await asyncio.sleep(self._backoff.next_seconds())
                continue
            self._backoff.reset()
            ended_at = clock()
            self._due_at = max(self._due_at, ended_at + REST * (ended_at - began_at))
            await is_set_within(self._wake, max(0.0, self._due_at - clock()))
            self._wake.clear()
        self._ticking = None

    async def _tick(self, now: float) -> None:
        """Read all jobs if they are due, otherwise only those that are new to a watcher."""
        store = await self._store()
        wanted = dict.fromkeys(self._new, "")
        if due := now >= self._due_at:
            wanted |= {each: self._known[each] for each in self._known if each not in wanted}
        together = capability(store, Watching) is not None
        if not together:
            wanted = dict(islice(wanted.items(), SINGLE_READS_MAX))
        changed = await self._changed(store, wanted) if wanted else {}
        for job_id, version in wanted.items():
            self._note_read(job_id, version)
        for job_id, job in changed.items():
            self._tell(job_id, job)
        quick = QUICK_SECONDS if together else SINGLE_READS_SECONDS
        if changed:
            self._pace_seconds = quick
        elif due:
            self._pace_seconds = min(self._pace_seconds * SLOWDOWN, max(CALM_SECONDS, quick))
        if changed or due:
            self._due_at = now + self._pace_seconds

    async def _changed(self, store: Store, known: Mapping[UUID, str]) -> dict[UUID, Watched | None]:
        changed = await _changed(store, known)
        return {
            job_id: None if job is None else self._cipher.shown_watched(job)
            for job_id, job in changed.items()
        }

    def _note_read(self, job_id: UUID, version: str) -> None:
        if not version:
            self._new.pop(job_id, None)
        if job_id in self._known:
            self._known[job_id] = self._known.pop(job_id)  # the others are read first next time

    def _tell(self, job_id: UUID, job: Watched | None) -> None:
        watchers = self._watchers.get(job_id, set())
        for watcher in watchers:
            watcher.put(job_id, None if job is None else job.status)
        if job is None or job.status.state.ended:
            self._forget(job_id)
        elif watchers:
            self._known[job_id] = job.version

    def _log(self, error: Exception) -> None:
        expected = isinstance(error, StoreError | TimeoutError)
        text = f"can't read the watched jobs: {str(error) or type(error).__name__}"
        logs.event(WARNING, "watch_failed", text, exception=None if expected else error)


async def _changed(store: Store, known: Mapping[UUID, str]) -> Mapping[UUID, Watched | None]:
    watching = capability(store, Watching)
    if watching is not None:
        return await watching.changed(known)
    found = {job_id: await _read(store, job_id) for job_id in known}
    return {
        job_id: job for job_id, job in found.items() if job is None or job.version != known[job_id]
    }


async def _read(store: Store, job_id: UUID) -> Watched | None:
    job = await store.get(job_id)
    if job is None:
        return None
    status = JobStatus.of(job)
    return Watched(f"{job.fence}/{version_of(status)}", job.tenant, job.name, status)


def version_of(status: JobStatus) -> str:
    """A short digest of the status, the same in every process."""
    digest = blake2b(msgspec.json.encode(status), digest_size=DIGEST_BYTES).digest()
    return urlsafe_b64encode(digest).decode()
