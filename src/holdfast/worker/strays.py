"""Strays: jobs that are leased to this worker without its knowledge.

A claim whose answer was lost may have been carried out. Its jobs never started: they are released,
with their attempt, before their leases run out, which would count as a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import WARNING
from math import inf

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import Lease
from holdfast.domain.limits import CLAIM_BATCH_MAX
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store


class Strays:
    """`known` answers the leases that are no strays. Only who claims may call `release`, between
    two claims: one under way is not known yet.

    The server may still be at work on a claim when its connection is long gone. So strays are
    possible for the length of a lease, and looked for at once and every third of it.
    """

    def __init__(
        self,
        store: Store,
        seam: Seam,
        settings: Settings,
        worker_id: str,
        known: Callable[[], Sequence[Lease]],
    ) -> None:
        self._store = store
        self._seam = seam
        self._settings = settings
        self._worker_id = worker_id
        self._known = known
        self._backoff = Backoff(seam, 0.1, 1.0)
        self._look_at = inf
        self._until = 0.0

    @property
    def are_possible(self) -> bool:
        return self._look_at < inf

    @property
    def seconds_left(self) -> float:
        """Until it is time to look again."""
        return max(0.0, self._look_at - self._seam.monotonic())

    def doubt(self) -> None:
        """A claim got no answer: look at once, and for the length of a lease."""
        self._look_at = self._seam.monotonic()
        self._until = self._look_at + self._settings.lease_seconds

    async def release(self) -> None:
        """Release what strays, if it is time to look."""
        if self.seconds_left == 0:
            await self._look()

    async def release_last(self) -> None:
        """Release what strays before the worker is gone, when the database answers."""
        while self.are_possible and not await self._look():
            await self._backoff.wait()

    async def _look(self) -> bool:
        try:
            released = await self._release_all()
        except StoreUnavailable as error:
            logs.event(WARNING, "claim_failed", str(error), worker_id=self._worker_id)
            self._look_at = self._seam.monotonic() + self._backoff.next_seconds()
            return False
        self._backoff.reset()
        if released:
            logs.event(
                WARNING,
                "strays_released",
                "the answer to a claim was lost; its jobs keep their attempts",
                worker_id=self._worker_id,
                count=released,
            )
        now = self._seam.monotonic()
        self._look_at = now + self._settings.renewal_seconds if now < self._until else inf
        return True

    async def _release_all(self) -> int:
        released = 0
        while True:
            step = await self._store.release_strays(self._worker_id, self._known(), CLAIM_BATCH_MAX)
            released += step
            if step < CLAIM_BATCH_MAX:
                return released
