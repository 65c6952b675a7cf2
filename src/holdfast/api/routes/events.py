"""/v1/jobs/{id}/events: the state and progress of jobs as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from fastapi import Header, Request
from starlette.responses import Response

from holdfast.api.callers import AsCaller, Caller, Router
from holdfast.api.examples import JOB_ID, WHEN
from holdfast.api.limits import STREAM_JOBS_MAX
from holdfast.api.openapi import describes
from holdfast.api.problems import Problem
from holdfast.api.queries import read_query
from holdfast.api.service import Service
from holdfast.api.streams import EVENT_STREAM, EventStream, Write
from holdfast.api.watch import Changes, version_of
from holdfast.domain.errors import StoreError
from holdfast.domain.job import JobStatus

SCOPE: Final = "read"
RECONNECT_MS: Final = 2000
UNKNOWN: Final = "-"  # stands for a job that the client has not seen
EXAMPLE: Final = f"""\
retry: {RECONNECT_MS}

event: state
id: 3q2-796t
data: {{"job_id":"{JOB_ID}","state":"running","attempts":1,"max_attempts":5,"run_at":"{WHEN}",\
"started_at":"{WHEN}","finished_at":null,"progress":null,"error_code":null,"error_text":null}}

event: progress
id: 8J-YkpOU
data: {{"job_id":"{JOB_ID}","progress":{{"done":7}}}}

: keep-alive

"""

LastEventId = Annotated[
    str,
    Header(
        alias="Last-Event-ID",
        description="The ID of the last event that the client has. The stream continues there.",
    ),
]


class ManyJobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ids: Annotated[
        list[UUID],
        msgspec.Meta(
            min_length=1,
            max_length=STREAM_JOBS_MAX,
            description="The jobs to watch: `?ids=...&ids=...`",
        ),
    ]


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/jobs", tags=["Jobs"])
    described: dict[str, Any] = {
        "answers": {200: EXAMPLE, 204: None},
        "problems": ["job-not-found"],
        "media_type": EVENT_STREAM,
    }

    @router.get(
        "/events", response_class=EventStream, **describes(SCOPE, query=ManyJobs, **described)
    )
    async def watch_many(
        request: Request, caller: AsCaller, last_event_id: LastEventId = ""
    ) -> Response:
        """Stream the state and progress of up to 100 jobs, like `/v1/jobs/{job_id}/events` for one.
        The `end` event comes when all of them have ended."""
        ids = read_query(request, ManyJobs).ids
        return await watch(service, request, caller, list(dict.fromkeys(ids)), last_event_id)

    @router.get("/{job_id}/events", response_class=EventStream, **describes(SCOPE, **described))
    async def watch_one(
        request: Request, job_id: UUID, caller: AsCaller, last_event_id: LastEventId = ""
    ) -> Response:
        """Stream the state and progress of a job as server-sent events.

        The first event is `state`. Another `state` follows each change of state, and `progress` if
        only the progress changes. After the last `state` comes `end`: close the EventSource then.
        Otherwise it reconnects, gets 204, and stops. A slow client gets the latest state, not every
        state in between.
        """
        return await watch(service, request, caller, [job_id], last_event_id)

    return router


async def watch(
    service: Service, request: Request, caller: Caller, ids: Sequence[UUID], last_event_id: str
) -> Response:
    story = Story(ids, last_event_id)
    if story.is_over(await service.watch.look(ids, caller.tenant)):
        return Response(status_code=204)

    async def tell(write: Write) -> None:
        clock, keep_alive = asyncio.get_running_loop().time, service.watch.keep_alive_seconds
        check_at = clock() + keep_alive
        with service.watch.watching(ids) as watcher:
            await write(b"retry: %d\n\n" % RECONNECT_MS)
            while not (story.ended or watcher.stopped):
                changes = await watcher.changes(keep_alive)
                if clock() >= check_at:
                    if not await _may_go_on(service, request):
                        return
                    check_at = clock() + keep_alive
                await write(story.told(changes) or b": keep-alive\n\n")

    return EventStream(tell, service.waiting.counted(caller))


async def _may_go_on(service: Service, request: Request) -> bool:
    """Whether the key still allows this. It may have been revoked."""
    try:
        await service.gate.check_again(request)
    except StoreError:
        return True  # the database is down; the key may still be valid
    except Problem as problem:
        return problem.kind.status not in (401, 403)
    return True


class Story:
    """What a client knows about its jobs, and what it has yet to be told.

    The ID of each event encodes all that the client knows at that point, so any server can resume
    the stream without storing anything.
    """

    def __init__(self, ids: Sequence[UUID], last_event_id: str = "") -> None:
        versions = last_event_id.split(".")
        if len(versions) != len(ids):
            versions = [UNKNOWN] * len(ids)
        self._versions = dict(zip(ids, versions, strict=True))
        self._states: dict[UUID, JobStatus] = {}  # without the progress
        self._live = set(ids)
        self.ended = False

    def is_over(self, statuses: dict[UUID, JobStatus]) -> bool:
        """Whether the client knows that all jobs have ended."""
        return all(
            status.state.ended and version_of(status) == self._versions[job_id]
            for job_id, status in statuses.items()
        )

    def told(self, changes: Changes) -> bytes:
        """The events for these changes; none if the client already knows them."""
        events = []
        for job_id, status in changes.items():
            if status is None or status.state.ended:
                self._live.discard(job_id)
            if status is not None and (event := self._told_of(status)):
                events.append(event)
        if not self._live:
            self.ended = True
            events.append(self._event("end", {"job_ids": list(self._versions)}))
        return b"".join(events)

    def _told_of(self, status: JobStatus) -> bytes:
        job_id, version = status.job_id, version_of(status)
        without_progress = msgspec.structs.replace(status, progress=None)
        before, self._states[job_id] = self._states.get(job_id), without_progress
        if version == self._versions[job_id]:
            return b""
        self._versions[job_id] = version
        if before != without_progress:
            return self._event("state", status)
        return self._event("progress", {"job_id": job_id, "progress": status.progress})

    def _event(self, name: str, data: object) -> bytes:
        event_id = ".".join(self._versions.values())
        return b"event: %b\nid: %b\ndata: %b\n\n" % (
            name.encode(), event_id.encode(), msgspec.json.encode(data),
        )  # fmt: skip
