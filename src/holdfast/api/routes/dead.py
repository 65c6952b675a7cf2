"""/v1/dead: jobs that did not succeed."""

from __future__ import annotations

from uuid import UUID

from fastapi import Request
from starlette.responses import Response

from holdfast.api.callers import AsCaller, Router
from holdfast.api.openapi import describes
from holdfast.api.pages import JobPage, PageOfDead, answer_page
from holdfast.api.routes.job_changes import DESCRIBES_REQUEUE, requeue
from holdfast.api.routes.jobs import LINK
from holdfast.api.service import Service


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/dead", tags=["Dead letters"])

    @router.get("", **describes("read", {200: JobPage}, query=PageOfDead, headers=LINK))
    async def list_dead_jobs(request: Request, caller: AsCaller) -> Response:
        """List the jobs that ended as dead or failed, newest first."""
        return await answer_page(request, caller, PageOfDead, caller.dead.list)

    @router.post("/{job_id}/requeue", **DESCRIBES_REQUEUE)
    async def requeue_dead_job(job_id: UUID, request: Request, caller: AsCaller) -> Response:
        """Enqueue a copy of a job that did not succeed, optionally with new arguments."""
        return await requeue(request, caller, job_id, caller.dead.requeue)

    return router
