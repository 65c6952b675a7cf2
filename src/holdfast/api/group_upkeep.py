"""Keep the groups of errors up to date. Every server does this; one would be enough."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from logging import WARNING
from typing import Final

from holdfast.app import Holdfast
from holdfast.domain.errors import HoldfastError, NotInThisStore
from holdfast.domain.limits import GROUP_STEP_JOBS_MAX
from holdfast.domain.texts import error_text
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff

EVERY_SECONDS: Final = 1.0
LATE_EVERY_SECONDS: Final = 5.0
RETRY_SECONDS_MAX: Final = 60.0


class GroupUpkeep:
    def __init__(self, hf: Holdfast) -> None:
        self._fold = hf.dead._fold
        self._seam = hf._seam
        self._may_count = not hf.settings.read_only

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        keeping = asyncio.create_task(self._run())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])

    async def look(self) -> bool:
        """Count what has ended since, for somebody who wants to see the groups now. Return whether
        that was all of it."""
        if self._may_count:
            with suppress(HoldfastError):
                return await self._fold.newest() < GROUP_STEP_JOBS_MAX
        return False

    async def _run(self) -> None:
        backoff = Backoff(self._seam, EVERY_SECONDS, RETRY_SECONDS_MAX)
        late_at = self._seam.monotonic() + LATE_EVERY_SECONDS
        while True:
            began = self._seam.monotonic()
            wait_seconds = EVERY_SECONDS * (0.5 + self._seam.random.random())
            try:
                if await self._fold.newest() == GROUP_STEP_JOBS_MAX:
                    # Rest as long as it worked, so that others can write.
                    wait_seconds = self._seam.monotonic() - began
                elif began >= late_at:
                    await self._fold.late()
                    late_at = self._seam.monotonic() + LATE_EVERY_SECONDS
                backoff.reset()
            except NotInThisStore:
                return
            except HoldfastError:  # no database, or no tables yet: `/v1/health/ready` says so
                wait_seconds = backoff.next_seconds()
            except Exception as error:
                text = "could not bring the error groups up to date; will try again"
                logs.event(WARNING, "upkeep_failed", text, error_text=error_text(error))
                wait_seconds = backoff.next_seconds()
            await asyncio.sleep(wait_seconds)
