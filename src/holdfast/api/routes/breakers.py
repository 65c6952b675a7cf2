"""/v1/breakers: what jobs depend on, and whether it is down."""

from __future__ import annotations

import msgspec
from fastapi import Request
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.bodies import read_optional_body
from holdfast.api.callers import AsCaller, Router
from holdfast.api.examples import EXAMPLES
from holdfast.api.fields import Because, BreakerInPath
from holdfast.api.openapi import describes
from holdfast.api.problems import Problem
from holdfast.api.service import Service
from holdfast.domain.breakers import BreakerStatus


class BreakerList(msgspec.Struct, frozen=True):
    """Breakers that have counted a failure or been opened, open ones first."""

    breakers: list[BreakerStatus]


class Open(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a breaker is opened."""

    because: Because | None = None


EXAMPLES[BreakerList] = {"breakers": [EXAMPLES[BreakerStatus]]}
EXAMPLES[Open] = {"because": "the gateway is being moved"}


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/breakers", tags=["Breakers"])
    breakers = service.hf.breakers

    async def shown(key: str) -> Response:
        found = await breakers.get(key)
        if found is None:
            raise Problem("not-found", f"the breaker {key!r} has no record")
        return answer(found)

    @router.get("", **describes("read", {200: BreakerList}, across=True))
    async def list_breakers() -> Response:
        """List breakers that have counted a failure or been opened."""
        return answer(BreakerList(list(await breakers.list())))

    @router.get(
        "/{key:name}", **describes("read", {200: BreakerStatus}, ["not-found"], across=True)
    )
    async def get_breaker(key: BreakerInPath) -> Response:
        """Get a breaker."""
        return await shown(key)

    @router.post(
        "/{key:name}/open",
        **describes(
            "operate",
            {200: BreakerStatus},
            ["not-found"],
            body=Open,
            body_required=False,
            across=True,
        ),
    )
    async def open_breaker(key: BreakerInPath, request: Request, caller: AsCaller) -> Response:
        """Open a breaker: park all its jobs, without probes, until it is closed."""
        body = await read_optional_body(request, Open)
        async with caller.audited("breaker.open", key, jobs=0, because=body.because):
            await breakers.open(key, by=caller.name, because=body.because)
        return await shown(key)

    @router.post(
        "/{key:name}/close",
        **describes("operate", {200: BreakerStatus}, ["wrong-state", "not-found"], across=True),
    )
    async def close_breaker(key: BreakerInPath, caller: AsCaller) -> Response:
        """Close a breaker: unpark its jobs and reset its count of failures."""
        async with caller.audited("breaker.close", key, jobs=0):
            await breakers.close(key)
        return await shown(key)

    @router.post(
        "/{key:name}/reset", **describes("operate", {204: None}, ["wrong-state"], across=True)
    )
    async def reset_breaker(key: BreakerInPath, caller: AsCaller) -> Response:
        """Close a breaker if it is open, and delete its record."""
        async with caller.audited("breaker.reset", key, jobs=0):
            await breakers.reset(key)
        return Response(status_code=204)

    return router
