"""What is there: attempts, counts, queues, breakers, workers, and why a job waits."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast.domain.breakers import BreakerSeen
from holdfast.domain.errors import JobNotFound
from holdfast.domain.job import Attempt, Count, Filter
from holdfast.domain.limits import LATENCY_JOBS_MAX, OVERVIEW_FAILURES_MAX
from holdfast.domain.overview import Overview, latency, latency_by_queue, with_quiet
from holdfast.domain.queues import QueueSeen
from holdfast.domain.states import State
from holdfast.domain.texts import check_text
from holdfast.domain.why import Why, explain
from holdfast.domain.workers import WorkerSeen
from holdfast.holding import Holds
from holdfast.steering import check_id


class Seeing(Holds):
    """The part of a Holdfast object that looks, and changes nothing."""

    async def attempts(self, job_id: UUID) -> Sequence[Attempt]:
        """The attempts that did not succeed, oldest first."""
        check_id(job_id)
        return await (await self._store()).attempts(job_id)

    async def counts(self, tenant: str | None = None) -> Sequence[Count]:
        check_text("tenant", tenant)
        return await (await self._store()).counts(tenant)

    async def queues(self) -> Sequence[QueueSeen]:
        """The queues that have live jobs, or of which an operator has said something."""
        return await (await self._store()).queues()

    async def breakers(self) -> Sequence[BreakerSeen]:
        """The breakers of which something is known, open ones first."""
        return await (await self._store()).breakers()

    async def overview(self) -> Overview:
        """One look at everything: queues, workers, open breakers, what has ended, how long the
        newest of it took, and the newest failures."""
        store = await self._store()
        pulse = await store.pulse(LATENCY_JOBS_MAX)
        failed = Filter(states=(State.FAILED, State.DEAD))
        return Overview(
            now=pulse.now,
            queues=with_quiet(await store.queues(), pulse.ended),
            workers=await store.workers(),
            breakers=[each for each in await store.breakers() if each.is_open or each.letting_go],
            ended=pulse.ended,
            latency=latency(pulse.newest),
            latency_by_queue=latency_by_queue(pulse.newest),
            failures=(await self.page(failed, OVERVIEW_FAILURES_MAX)).jobs,
        )

    async def workers(self) -> Sequence[WorkerSeen]:
        """The workers that are there, and those that were lost lately."""
        return await (await self._store()).workers()

    async def why(self, job_id: UUID) -> Why:
        """Say why a job is not running: a code, a sentence, and the facts behind it."""
        check_id(job_id)
        circumstances = await (await self._store()).circumstances(job_id)
        if circumstances is None:
            raise JobNotFound(job_id)
        return explain(circumstances)
