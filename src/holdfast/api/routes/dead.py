"""/v1/dead: jobs that did not succeed, and what went wrong."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from fastapi import Request
from msgspec import Meta
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.callers import AsCaller, Router
from holdfast.api.examples import EXAMPLES, JOB_ID, WHEN
from holdfast.api.openapi import describes
from holdfast.api.pages import JobFilter, JobPage, PageOfDead, answer_page, make_filter
from holdfast.api.queries import read_query
from holdfast.api.routes.job_changes import DESCRIBES_REQUEUE, requeue
from holdfast.api.routes.jobs import LINK
from holdfast.api.service import Service
from holdfast.domain.groups import ErrorGroup
from holdfast.domain.limits import GROUPS_LOOK_MAX


class GroupsQuery(JobFilter, frozen=True, kw_only=True):
    """A filter, and how many of the newest matching jobs to read."""

    look_max: Annotated[int, Meta(ge=1, le=GROUPS_LOOK_MAX)] = GROUPS_LOOK_MAX


class ErrorGroups(msgspec.Struct, frozen=True):
    """Groups of errors, largest first. `looked_at` is the number of jobs read; `is_all` is false if
    there are more."""

    groups: list[ErrorGroup]
    looked_at: int
    is_all: bool


EXAMPLES[ErrorGroups] = {
    "groups": [
        {
            "fingerprint": "31e65b1a8f5a",
            "name": "resize",
            "error_code": "ValueError",
            "shape": "ValueError: image # is empty",
            "jobs": 14,
            "first_seen": WHEN,
            "last_seen": WHEN,
            "queues": ["images"],
            "example_id": JOB_ID,
            "example_text": "ValueError: image 17 is empty",
        }
    ],
    "looked_at": 14,
    "is_all": True,
}


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/dead", tags=["Dead letters"])

    @router.get("", **describes("read", {200: JobPage}, query=PageOfDead, headers=LINK))
    async def list_dead_jobs(request: Request, caller: AsCaller) -> Response:
        """List the jobs that ended as dead or failed, newest first."""
        return await answer_page(request, caller, PageOfDead, caller.dead.list)

    @router.get("/groups", **describes("read", {200: ErrorGroups}, query=GroupsQuery))
    async def group_dead_jobs(request: Request, caller: AsCaller) -> Response:
        """Group dead and failed jobs by what went wrong. Use a group's fingerprint to filter lists
        and bulk changes."""
        query = read_query(request, GroupsQuery)
        found = await caller.dead.groups(make_filter(caller, query), look_max=query.look_max)
        return answer(ErrorGroups(list(found.groups), found.looked_at, found.is_all))

    @router.post("/{job_id}/requeue", **DESCRIBES_REQUEUE)
    async def requeue_dead_job(job_id: UUID, request: Request, caller: AsCaller) -> Response:
        """Enqueue a copy of a job that did not succeed, optionally with new arguments."""
        return await requeue(request, caller, job_id, caller.dead.requeue)

    return router
