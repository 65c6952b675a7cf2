"""/v1/counts: how many jobs there are. Large counts are capped."""

from __future__ import annotations

import msgspec
from fastapi import Request
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.callers import AsCaller, Router
from holdfast.api.examples import EXAMPLES
from holdfast.api.limits import JOBS_COUNTED_MAX
from holdfast.api.openapi import describes
from holdfast.api.pages import own_tenant
from holdfast.api.queries import read_query
from holdfast.api.service import Service
from holdfast.domain.states import State


class CountsQuery(msgspec.Struct, frozen=True):
    """Whose jobs to count."""

    tenant: str | None = None


class QueueCount(msgspec.Struct, frozen=True):
    """How many jobs of a queue are in a state. With `is_capped`, there are more."""

    queue: str
    state: State
    jobs: int
    is_capped: bool


class Counts(msgspec.Struct, frozen=True):
    """Jobs by queue and state. With `is_capped`, not all waiting jobs were counted."""

    counts: list[QueueCount]
    is_capped: bool


EXAMPLES[Counts] = {
    "counts": [
        {"queue": "images", "state": "queued", "jobs": 10_000, "is_capped": True},
        {"queue": "images", "state": "running", "jobs": 4, "is_capped": False},
    ],
    "is_capped": True,
}


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/counts", tags=["Jobs"])

    @router.get("", **describes("read", {200: Counts}, query=CountsQuery))
    async def count_jobs(request: Request, caller: AsCaller) -> Response:
        """Count jobs by queue and state. Up to 10,000 waiting jobs per queue are counted exactly;
        more are shown as 10,000 with `is_capped`."""
        query = read_query(request, CountsQuery)
        tenant = own_tenant(caller, query.tenant)
        found = await caller.jobs.counts_up_to(JOBS_COUNTED_MAX, tenant)
        counts = [QueueCount(*each) for each in found.counts]
        return answer(Counts(counts, found.is_capped))

    return router
