"""/v1/health: for load balancers and orchestrators; /metrics: for Prometheus."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.callers import Router
from holdfast.api.examples import EXAMPLES
from holdfast.api.health import MESSENGERS
from holdfast.api.openapi import PUBLIC, describes
from holdfast.api.problems import At, unavailable
from holdfast.api.service import Service
from holdfast.domain.messengers import QUEUE_UNAVAILABLE
from holdfast.observability import exposition


class Alive(msgspec.Struct, frozen=True):
    """The process is up."""

    status: Literal["live"] = "live"


class Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    """The service can take requests. While a messenger is down, `fallback` says how workers find
    new jobs."""

    status: Literal["ready"]
    fallback: str | None = None


EXAMPLES[Alive] = {"status": "live"}
EXAMPLES[Ready] = {"status": "ready"}


def routes(service: Service) -> Router:
    router = Router()

    @router.get("/v1/health/live", tags=["Health"], **describes(PUBLIC, {200: Alive}))
    async def get_liveness() -> Response:
        """Check that the process is up. If this doesn't respond, restart it."""
        return answer(Alive())

    @router.get(
        "/v1/health/ready", tags=["Health"], **describes(PUBLIC, {200: Ready}, ["not-ready"])
    )
    async def get_readiness() -> Response:
        """Check that the service can take requests: the database answers within 2 seconds and its
        schema matches, the worker in this process, if any, is running, and the server isn't
        stopping. With the setting `messengers_required`, all messengers must be live, too: if one
        is down, `reason` is QUEUE_UNAVAILABLE."""
        if failing := await service.health.failing():
            problem = unavailable(f"failing checks: {', '.join(failing)}", "not-ready")
            problem.errors = [At(name) for name in failing]
            if MESSENGERS in failing:
                problem.reason = QUEUE_UNAVAILABLE
            raise problem
        return answer(Ready("ready", service.health.fallback))

    @router.get(
        "/metrics",
        tags=["Health"],
        **describes("read", {200: _EXAMPLE}, across=True, media_type="text/plain"),
    )
    async def get_metrics() -> Response:
        """Get the metrics of this process and its database, in Prometheus text format."""
        text = await service.hf.metrics()
        return Response(text, headers={"content-type": exposition.content_type()})

    return router


_EXAMPLE = """\
# HELP holdfast_enqueued_total Jobs that this process enqueued.
# TYPE holdfast_enqueued_total counter
holdfast_enqueued_total{name="resize",queue="images"} 42.0
"""
