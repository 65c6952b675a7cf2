"""Strays: jobs that are leased to this worker without its knowledge.

When the answer to a claim is lost, the database may have executed the claim. Its jobs never
started. They are released, with their attempts, before their leases expire: that would count as a
crash.
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
from holdfast.worker.setup import Setup


class Strays:
    """`known` returns the leases that are not strays. Only the claimer may call `release`, between
    two claims: the jobs of a claim in progress are not known yet.

    The server may still execute a claim long after its connection is gone. So strays are possible
    for the length of a lease. They are looked for at once, and again every third of it.
    """

    def __init__(self, setup: Setup, known: Callable[[], Sequence[Lease]]) -> None:
        self._store = setup.store
        self._seam = setup.seam
        self._settings = setup.settings
        self._worker_id = setup.worker_id
        self._known = known
        self._backoff = Backoff(setup.seam, 0.1, 1.0)
        self._look_at = inf
        self._until = 0.0

    @property
    def are_possible(self) -> bool:
        return self._look_at < inf

    @property
    def seconds_left(self) -> float:
        """Seconds until it is time to look again."""
        return max(0.0, self._look_at - self._seam.monotonic())

    def doubt(self) -> None:
        """A claim got no answer: look at once, and for the length of a lease."""
        self._look_at = self._seam.monotonic()
        self._until = self._look_at + self._settings.lease_seconds

    async def release(self) -> None:
        """Release strays, if it is time to look."""
        if self.seconds_left == 0:
            await self._look()

    async def release_last(self) -> None:
        """Release strays before the worker exits, as soon as the database answers."""
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
            text = "the answer to a claim was lost; its jobs keep their attempts"
            logs.event(WARNING, "strays_released", text, worker_id=self._worker_id, count=released)
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
