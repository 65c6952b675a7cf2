"""/v1/workers: the workers on this database."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.callers import Router
from holdfast.api.examples import EXAMPLES
from holdfast.api.openapi import describes
from holdfast.api.service import Service
from holdfast.domain.workers import WorkerStatus


class WorkerList(msgspec.Struct, frozen=True):
    """Live workers and recently lost ones, latest heartbeat first."""

    workers: list[WorkerStatus]


EXAMPLES[WorkerList] = {"workers": [EXAMPLES[WorkerStatus]]}


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/workers", tags=["Workers"])

    @router.get("", **describes("read", {200: WorkerList}, across=True))
    async def list_workers() -> Response:
        """List live workers and recently lost ones."""
        return answer(WorkerList(list(await service.hf.workers.list())))

    return router
