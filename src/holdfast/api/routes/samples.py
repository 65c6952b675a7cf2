"""/v1/samples: how queues were doing, for charts."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request
from msgspec import Meta, Struct
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.callers import Router
from holdfast.api.examples import EXAMPLES, WHEN
from holdfast.api.openapi import describes
from holdfast.api.pages import Time, check_times
from holdfast.api.queries import read_query
from holdfast.api.service import Service
from holdfast.domain.limits import SAMPLE_POINTS_MAX
from holdfast.domain.samples import Samples
from holdfast.operations.samples import POINTS


class SamplesQuery(Struct, frozen=True, kw_only=True):
    """Which samples to get."""

    queue: Annotated[str | None, Meta(description="By default, all queues together.")] = None
    since: Annotated[Time | None, Meta(description="By default, an hour before `until`.")] = None
    until: Annotated[Time | None, Meta(description="By default, now.")] = None
    points: Annotated[
        int, Meta(ge=1, le=SAMPLE_POINTS_MAX, description="The most samples to return.")
    ] = POINTS


EXAMPLES[Samples] = {
    "queue": "images",
    "since": WHEN,
    "until": WHEN,
    "step_seconds": 30,
    "samples": [
        {
            "at": WHEN,
            "covered_seconds": 30,
            "ready": 12,
            "scheduled": 3,
            "parked": 0,
            "running": 8,
            "oldest_seconds": 1.4,
            "succeeded": 240,
            "retried": 2,
            "failed": 1,
            "canceled": 0,
            "p50_seconds": 0.8,
            "p95_seconds": 2.1,
            "wait_p50_seconds": 0.003,
            "wait_p95_seconds": 0.4,
            "wait_p99_seconds": 1.2,
        }
    ],
}


def routes(service: Service) -> Router:
    router = Router(prefix="/v1", tags=["Health"])

    @router.get("/samples", **describes("read", {200: Samples}, query=SamplesQuery, across=True))
    async def get_samples(request: Request) -> Response:
        """Get depths, ages, throughput, failures, run times and waits of a queue over time.

        A sample is kept for 2 hours in full, for 2 days by the minute, and for 30 days by the
        quarter of an hour. Where no sample was taken, the values are null.
        """
        query = read_query(request, SamplesQuery)
        check_times(query)
        return answer(
            await service.hf.samples.get(
                query.queue, since=query.since, until=query.until, points=query.points
            )
        )

    return router
