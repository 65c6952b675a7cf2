"""The application: routes, guards, errors, and the OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Final

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute

from holdfast.api.callers import Guarded
from holdfast.api.document import make_document
from holdfast.api.envelope import Envelope
from holdfast.api.failures import ERRORS, answer_error
from holdfast.api.fixed_paths import FixedPaths
from holdfast.api.limits import STREAM_KEEP_ALIVE_SECONDS
from holdfast.api.routes import (
    audit,
    breakers,
    bulk,
    counts,
    dead,
    events,
    groups,
    health,
    job_changes,
    job_details,
    jobs,
    keys,
    leases,
    names,
    overview,
    problems,
    queues,
    results,
    samples,
    workers,
)
from holdfast.api.service import Service
from holdfast.api.traffic import Counted
from holdfast.app import Holdfast
from holdfast.domain.errors import ConfigurationError
from holdfast.version import VERSION

ROUTES: Final = (
    # Routes are matched in this order: /v1/jobs/{job_id} would also match /v1/jobs/events.
    events.routes,
    jobs.routes,
    health.routes,
    job_changes.routes,
    job_details.routes,
    counts.routes,
    dead.routes,
    groups.routes,
    bulk.routes,
    queues.routes,
    breakers.routes,
    workers.routes,
    names.routes,
    overview.routes,
    samples.routes,
    problems.routes,
    results.routes,
    leases.routes,
    keys.routes,
    audit.routes,
)


def make_api(
    hf: Holdfast,
    *,
    upkeep: bool = True,
    stream_keep_alive_seconds: float = STREAM_KEEP_ALIVE_SECONDS,
    pages: Callable[[Service], Sequence[BaseRoute]] | None = None,
) -> FastAPI:
    """Return the HTTP API of an app, as an ASGI application. `holdfast serve` runs it.

    With `upkeep`, it also does the work that workers share, such as reclaiming expired leases, so
    a service whose workers all lease over HTTP needs no Python worker. `pages` makes the routes of
    the dashboard, which guard themselves: `holdfast.dashboard.make_pages`. If the app's database is
    open for reading only, there are no others but those that tell how the service is.
    """
    service = Service(hf, upkeep=upkeep, stream_keep_alive_seconds=stream_keep_alive_seconds)

    @asynccontextmanager
    async def lifespan(_api: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    api = FastAPI(
        title="Holdfast", version=VERSION, lifespan=lifespan, docs_url=None,
        redoc_url=None, separate_input_output_schemas=False, redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # the envelope does that
    )  # fmt: skip
    api.state.service = service
    # From the innermost to the outermost. Starlette creates them at the first request.
    api.add_middleware(FixedPaths, routes=api.routes)
    api.add_middleware(Envelope)
    api.add_middleware(Counted, traffic=service.traffic)
    for kind in ERRORS:
        api.add_exception_handler(kind, answer_error)
    served = (health.routes,) if hf.settings.read_only else (*ROUTES, *hf._routes)
    for make_routes in served:
        router = make_routes(service)
        _check_guarded(router)
        # Not `include_router`: every request would then search router by router.
        api.router.routes.extend(router.routes)
    if pages is not None:
        api.router.routes.extend(pages(service))
    api.openapi = cache(lambda: make_document(api))  # type: ignore[method-assign]
    return api


def _check_guarded(router: APIRouter) -> None:
    for route in router.routes:
        if not isinstance(route, Guarded):
            raise ConfigurationError(
                f"{route} is not guarded: create its router with holdfast.api.Router"
            )
