"""The application: routes, guards, errors, and the OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from logging import ERROR, WARNING
from typing import Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from holdfast.api.callers import Guarded
from holdfast.api.document import make_document
from holdfast.api.envelope import Envelope
from holdfast.api.limits import STREAM_KEEP_ALIVE_SECONDS
from holdfast.api.problems import At, Problem, problem_of
from holdfast.api.routes import (
    audit,
    breakers,
    bulk,
    counts,
    dead,
    events,
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
    workers,
)
from holdfast.api.service import Service
from holdfast.api.traffic import Counted
from holdfast.app import Holdfast
from holdfast.domain.errors import ConfigurationError, HoldfastError
from holdfast.observability import logs

ROUTES: Final = (
    # Routes are matched in this order: /v1/jobs/{job_id} would also match /v1/jobs/events.
    events.routes,
    jobs.routes,
    health.routes,
    job_changes.routes,
    job_details.routes,
    counts.routes,
    dead.routes,
    bulk.routes,
    queues.routes,
    breakers.routes,
    workers.routes,
    names.routes,
    overview.routes,
    problems.routes,
    results.routes,
    leases.routes,
    keys.routes,
    audit.routes,
)
_OF_HTTP: Final = {404: "not-found", 405: "no-such-method"}


def make_api(
    hf: Holdfast,
    *,
    upkeep: bool = True,
    stream_keep_alive_seconds: float = STREAM_KEEP_ALIVE_SECONDS,
) -> FastAPI:
    """Return the HTTP API of an app, as an ASGI application. `holdfast serve` runs it.

    With `upkeep`, it also does the work that workers share, such as reclaiming expired leases, so
    a service whose workers all lease over HTTP needs no Python worker.
    """
    service = Service(hf, upkeep=upkeep, stream_keep_alive_seconds=stream_keep_alive_seconds)

    @asynccontextmanager
    async def lifespan(_api: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    api = FastAPI(
        title="Holdfast", version=version("holdfast"), lifespan=lifespan, docs_url=None,
        redoc_url=None, separate_input_output_schemas=False, redirect_slashes=False,
    )  # fmt: skip
    api.state.service = service
    api.add_middleware(Envelope)
    api.add_middleware(Counted, traffic=service.traffic)
    for kind, handler in (
        (Problem, _problem),
        (HoldfastError, _holdfast_error),
        (RequestValidationError, _invalid),
        (HTTPException, _http_error),
        (ClientDisconnect, _gone),
        (Exception, _unexpected),
    ):
        api.add_exception_handler(kind, handler)
    for make_routes in (*ROUTES, *hf._routes):
        router = make_routes(service)
        _check_guarded(router)
        # Not `include_router`: every request would then search router by router.
        api.router.routes.extend(router.routes)
    api.openapi = cache(lambda: make_document(api))  # type: ignore[method-assign]
    return api


def _check_guarded(router: APIRouter) -> None:
    for route in router.routes:
        if not isinstance(route, Guarded):
            raise ConfigurationError(
                f"{route} is not guarded: create its router with holdfast.api.Router"
            )


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response(request.state.correlation_id)


async def _holdfast_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HoldfastError)
    problem = problem_of(error)
    if problem.kind.status == 503:
        told, correlation_id = _told(request, error), request.state.correlation_id
        logs.event(WARNING, "request_failed", told, correlation_id=correlation_id)
    elif problem.kind.status == 500:
        _log(request, error)
    return problem.response(request.state.correlation_id)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [
        At(each["msg"].removeprefix("Value error, "), parameter=str(each["loc"][-1]))
        for each in error.errors()
    ]
    detail = "; ".join(f"{each.parameter}: {each.detail}" for each in errors)
    return Problem("bad-request", detail, errors).response(request.state.correlation_id)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _OF_HTTP.get(error.status_code, "bad-request")
    problem = Problem(code, f"{request.method} {request.url.path}: {error.detail}")
    problem.headers.update(error.headers or {})
    return problem.response(request.state.correlation_id)


async def _gone(_request: Request, _error: Exception) -> Response:
    """Nobody reads this: the client disconnected while sending."""
    return Response(status_code=400)


async def _unexpected(request: Request, error: Exception) -> Response:
    _log(request, error)
    text = "unexpected error; look for the correlation ID in the server's log"
    return Problem("internal-error", text).response(request.state.correlation_id)


def _log(request: Request, error: Exception) -> None:
    logs.event(
        ERROR,
        "request_failed",
        _told(request, error),
        exception=error,
        correlation_id=request.state.correlation_id,
    )


def _told(request: Request, error: Exception) -> str:
    return f"{request.method} {request.url.path}: {type(error).__name__}: {error}"
