"""Delete expired rows in small steps. Every server does this; one would be enough."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from logging import WARNING
from typing import Final

from holdfast.domain.errors import NotInThisStore
from holdfast.domain.limits import TIDY_ROWS_MAX
from holdfast.domain.texts import error_text
from holdfast.observability import logs
from holdfast.runtime.seam import Seam

Step = Callable[[], Awaitable[int]]

EVERY_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.1  # between two steps, so that others can write


class Expiry:
    """Runs the steps, repeating each for as long as it deletes TIDY_ROWS_MAX rows."""

    def __init__(self, seam: Seam, steps: Sequence[Step]) -> None:
        self._random = seam.random
        self._steps = steps

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tidying = asyncio.create_task(self._run())
        try:
            yield
        finally:
            tidying.cancel()
            await asyncio.wait([tidying])

    async def _run(self) -> None:
        while True:
            # Out of step with other servers, which delete the same rows.
            await asyncio.sleep(EVERY_SECONDS * (0.5 + self._random.random()))
            try:
                await self.tidy()
            except NotInThisStore:
                return
            except Exception as error:
                text = "could not delete expired rows; will try again in a minute"
                logs.event(WARNING, "upkeep_failed", text, error_text=error_text(error))

    async def tidy(self) -> None:
        """Delete everything that has expired."""
        for step in self._steps:
            deleted = TIDY_ROWS_MAX
            while deleted >= TIDY_ROWS_MAX:
                deleted = await step()
                await asyncio.sleep(PAUSE_SECONDS)
