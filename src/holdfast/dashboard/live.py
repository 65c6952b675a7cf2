"""Tell open pages that something may have changed, so that they read themselves again.

One hub per process listens for wake-ups and looks at the counts of jobs, while pages are open. The
events carry no data: each page reads what its own viewer may see.

When something changed is told only to those who see all tenants. To the viewers of one tenant it
would tell when others are busy, so their pages are told at a steady pace, whatever happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from logging import WARNING
from secrets import token_hex
from typing import Final

import msgspec

from holdfast.api.service import Service
from holdfast.dashboard.limits import (
    LIVE_COUNTED_MAX,
    LIVE_LOOK_SECONDS,
    LIVE_QUIET_SECONDS,
    LIVE_REFRESH_SECONDS,
)
from holdfast.domain.errors import StoreError
from holdfast.domain.scope import all_tenants
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff, is_set_within
from holdfast.stores.protocol import CountsUpTo, Diagnosis, Listening, Store, capability
from holdfast.wakeups.protocol import Listener, Wakeup

RETRY_SECONDS_MIN: Final = 0.5
RETRY_SECONDS_MAX: Final = 10.0
REST: Final = 20  # times as long as the look took: a busy database gets fewer


class Viewer:
    """What one page has yet to be told. With a pace, it is told after these seconds in any case."""

    def __init__(self, is_behind: bool, pace_seconds: float | None = None) -> None:
        self.ready = asyncio.Event()
        self.stopped = False  # the server is stopping
        self._pace_seconds = pace_seconds
        if is_behind:
            self.ready.set()

    async def changed(self, within_seconds: float) -> bool:
        """Wait for a change, up to this long, and return whether there was one."""
        pace_seconds = self._pace_seconds
        if not self.stopped:
            await is_set_within(self.ready, pace_seconds or within_seconds)
        is_changed = self.ready.is_set() or pace_seconds is not None
        self.ready.clear()
        return is_changed and not self.stopped

    def stop(self) -> None:
        self.stopped = True
        self.ready.set()


class Live:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._backoff = Backoff(service.hf._seam, RETRY_SECONDS_MIN, RETRY_SECONDS_MAX)
        self._viewers: set[Viewer] = set()
        self._paced: set[Viewer] = set()
        self._hinted = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._name = token_hex(4)  # the numbers of another process mean nothing here
        self._number = 0
        self._seen = b""

    @property
    def event_id(self) -> str:
        """What a page knows that has heard of every change so far."""
        return f"{self._name}-{self._number}"

    @property
    def is_beating(self) -> bool:
        return self._beating is not None

    def hint(self) -> None:
        """Something may have changed."""
        self._hinted.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """End all streams when the server stops, at the latest at the end of the block."""
        stopping = asyncio.create_task(self._stop_in_time())
        try:
            yield
        finally:
            self._service.stopping.set()
            await stopping
            if self._beating is not None:
                await asyncio.wait([self._beating])

    async def _stop_in_time(self) -> None:
        await self._service.stopping.wait()
        for viewer in self._viewers | self._paced:
            viewer.stop()
        self._hinted.set()

    @contextmanager
    def watching(self, last_event_id: str = "") -> Iterator[Viewer]:
        """Tell the viewer of changes until the end of the block. One that has missed some, or that
        nobody knows of, is told at once."""
        is_behind = last_event_id not in ("", self.event_id)
        # While nobody watched, nobody looked.
        viewer = Viewer(is_behind or (last_event_id != "" and not self._viewers))
        if self._service.stopping.is_set():
            viewer.stop()
        self._viewers.add(viewer)
        if self._beating is None:
            with all_tenants():
                self._beating = asyncio.create_task(self._beat_while_watched())
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)
            if not self._viewers:
                self._hinted.set()

    @contextmanager
    def pacing(self) -> Iterator[Viewer]:
        """Tell the viewer at a steady pace until the end of the block, and of nothing else."""
        viewer = Viewer(is_behind=False, pace_seconds=LIVE_LOOK_SECONDS)
        if self._service.stopping.is_set():
            viewer.stop()
        self._paced.add(viewer)
        try:
            yield viewer
        finally:
            self._paced.discard(viewer)

    async def _beat_while_watched(self) -> None:
        try:
            while self._is_needed:
                await self._listen_and_beat()
        finally:
            self._beating = None

    async def _listen_and_beat(self) -> None:
        listener: Listener | None = None
        try:
            listener = await self._listen()
            await self._beat()
        except Exception as error:
            # Whatever it is, keep the streams open: the next look may succeed.
            self._log(error)
            self._tell()  # so that pages say that they are not up to date
            await is_set_within(self._service.stopping, self._backoff.next_seconds())
        finally:
            if listener is not None:
                with suppress(StoreError):
                    await listener.close()

    @property
    def _is_needed(self) -> bool:
        return bool(self._viewers) and not self._service.stopping.is_set()

    async def _listen(self) -> Listener | None:
        store = capability(await self._service.hf._store(), Listening)
        return None if store is None else await store.listen(self._heard)

    def _heard(self, _wakeup: Wakeup) -> None:
        self._hinted.set()

    async def _beat(self) -> None:
        """Tell of a change as soon as there is a hint of one, or a look finds one."""
        clock = asyncio.get_running_loop().time
        told_at = clock()
        pause_seconds = LIVE_LOOK_SECONDS
        while self._is_needed:
            is_hinted = await is_set_within(self._hinted, pause_seconds)
            if not self._is_needed:
                return
            if not is_hinted:
                began_at = clock()
                is_hinted = await self._look() or clock() >= told_at + LIVE_REFRESH_SECONDS
                self._backoff.reset()
                pause_seconds = max(LIVE_LOOK_SECONDS, REST * (clock() - began_at))
            if is_hinted:
                self._hinted.clear()
                self._tell()
                told_at = clock()
                await is_set_within(self._service.stopping, LIVE_QUIET_SECONDS)

    async def _look(self) -> bool:
        """Whether the counts differ from those of the look before."""
        seen = msgspec.json.encode(await _counts(await self._service.hf._store()))
        before, self._seen = self._seen, seen
        return seen != before

    def _tell(self) -> None:
        self._number += 1
        for viewer in self._viewers:
            viewer.ready.set()

    def _log(self, error: Exception) -> None:
        text = f"can't see what changes for open pages: {str(error) or type(error).__name__}"
        expected = isinstance(error, StoreError | TimeoutError)
        logs.event(WARNING, "watch_failed", text, exception=None if expected else error)


async def _counts(store: Store) -> object:
    """Counts that change when jobs do; cheap with millions of jobs."""
    counted, diagnosis = capability(store, CountsUpTo), capability(store, Diagnosis)
    live = await store.counts() if counted is None else await counted.counts_up_to(LIVE_COUNTED_MAX)
    return live, None if diagnosis is None else (await diagnosis.pulse(1)).ended
