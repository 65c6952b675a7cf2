"""/v1/queues: list, pause, resume and cap queues."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Request
from msgspec import Meta
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.bodies import read_body, read_optional_body
from holdfast.api.callers import AsCaller, Router
from holdfast.api.examples import EXAMPLES
from holdfast.api.fields import Because, QueueInPath
from holdfast.api.openapi import describes
from holdfast.api.service import Service
from holdfast.domain.limits import QUEUE_RUNNING_MAX
from holdfast.domain.queues import QueueStatus


class QueueList(msgspec.Struct, frozen=True):
    """Queues with live jobs, and queues that are paused or capped, by name."""

    queues: list[QueueStatus]


class Pause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a queue is paused."""

    because: Because | None = None


class Cap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many jobs of a queue may run at once, across all workers. Null removes the cap."""

    running_max: Annotated[int, Meta(ge=0, le=QUEUE_RUNNING_MAX)] | None


EXAMPLES[QueueList] = {"queues": [EXAMPLES[QueueStatus]]}
EXAMPLES[Pause] = {"because": "the image server is being moved"}
EXAMPLES[Cap] = {"running_max": 4}


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/queues", tags=["Queues"])
    queues = service.hf.queues

    @router.get("", **describes("read", {200: QueueList}, across=True))
    async def list_queues() -> Response:
        """List queues, with the number of waiting and running jobs."""
        return answer(QueueList(list(await queues.list())))

    @router.get("/{queue:name}", **describes("read", {200: QueueStatus}, across=True))
    async def get_queue(queue: QueueInPath) -> Response:
        """Get a queue. An unused queue is empty."""
        return answer(await queues.get(queue))

    @router.post(
        "/{queue:name}/pause",
        **describes(
            "operate",
            {200: QueueStatus},
            ["wrong-state"],
            body=Pause,
            body_required=False,
            across=True,
        ),
    )
    async def pause_queue(queue: QueueInPath, request: Request, caller: AsCaller) -> Response:
        """Pause a queue: no worker starts its jobs. Running jobs finish."""
        body = await read_optional_body(request, Pause)
        async with caller.audited("queue.pause", queue, jobs=0, because=body.because):
            await queues.pause(queue, by=caller.name, because=body.because)
        return answer(await queues.get(queue))

    @router.post(
        "/{queue:name}/resume",
        **describes("operate", {200: QueueStatus}, ["wrong-state"], across=True),
    )
    async def resume_queue(queue: QueueInPath, caller: AsCaller) -> Response:
        """Resume a paused queue."""
        async with caller.audited("queue.resume", queue, jobs=0):
            await queues.resume(queue)
        return answer(await queues.get(queue))

    @router.put(
        "/{queue:name}/cap", **describes("operate", {200: QueueStatus}, body=Cap, across=True)
    )
    async def cap_queue(queue: QueueInPath, request: Request, caller: AsCaller) -> Response:
        """Limit how many jobs of a queue run at once, across all workers. Running jobs finish."""
        body = await read_body(request, Cap)
        async with caller.audited("queue.cap", queue, jobs=0):
            await queues.cap(queue, body.running_max)
        return answer(await queues.get(queue))

    return router
