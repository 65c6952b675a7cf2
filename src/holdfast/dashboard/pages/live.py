"""/ui/live: the event stream of an open page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from uuid import UUID

from starlette.responses import Response

from holdfast.api.openapi import ANY
from holdfast.api.problems import Problem
from holdfast.api.queries import bad_parameter
from holdfast.api.streams import EventStream, Write
from holdfast.dashboard.limits import LIVE_JOBS_MAX
from holdfast.dashboard.live import Viewer
from holdfast.dashboard.page import Pages, Visit
from holdfast.domain.errors import StoreError

if TYPE_CHECKING:
    from holdfast.api.service import Service
    from holdfast.dashboard.site import Site

RECONNECT_MS: Final = 2000


def pages(site: Site) -> Pages:
    pages = Pages()
    service = site.service

    @pages.get("/ui/live", needs=ANY)
    async def watch(visit: Visit) -> Response:
        """`changed` events. With `?job=...`, changes of that job are told at once, and not when the
        next look finds them. An event has an ID only if somebody else's changes may cause it."""
        job_ids = _job_ids(visit)
        if job_ids:
            await service.watch.look(job_ids, visit.caller.tenant)
        last_event_id = visit.request.headers.get("last-event-id", "")
        is_wide = visit.caller.tenant is None

        async def tell(write: Write) -> None:
            with site.live.watching(last_event_id) if is_wide else site.live.pacing() as viewer:
                async with _following(service, job_ids, viewer):
                    await write(b"retry: %d\n\n" % RECONNECT_MS)
                    await _tell_changes(visit, write, viewer)

        return EventStream(tell, service.waiting.counted(visit.caller))

    return pages


async def _tell_changes(visit: Visit, write: Write, viewer: Viewer) -> None:
    site = visit.site
    clock, keep_alive = asyncio.get_running_loop().time, site.service.watch.keep_alive_seconds
    check_at = clock() + keep_alive
    while not viewer.stopped:
        is_changed = await viewer.changed(keep_alive)
        if clock() >= check_at:
            if not await _may_go_on(visit):
                return
            check_at = clock() + keep_alive
        if is_changed and visit.caller.tenant is None:
            await write(b"event: changed\nid: %b\ndata: {}\n\n" % site.live.event_id.encode())
        elif is_changed:
            await write(b"event: changed\ndata: {}\n\n")
        else:
            await write(b": keep-alive\n\n")


async def _may_go_on(visit: Visit) -> bool:
    """Whether the session still lasts. Its key may have been revoked."""
    try:
        await visit.site.admit(visit.request, visit.site.sessions.find(visit.request))
    except StoreError:
        return True  # the database is down; the key may still be valid
    except Problem as problem:
        return problem.kind.status not in (401, 403)
    return True


@asynccontextmanager
async def _following(
    service: Service, job_ids: Sequence[UUID], viewer: Viewer
) -> AsyncIterator[None]:
    if not job_ids:
        yield
        return
    with service.watch.watching(job_ids) as watcher:

        async def follow() -> None:
            while not watcher.stopped:
                if await watcher.changes(service.watch.keep_alive_seconds):
                    viewer.ready.set()

        following = asyncio.create_task(follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait([following])


def _job_ids(visit: Visit) -> Sequence[UUID]:
    given = list(dict.fromkeys(visit.request.query_params.getlist("job")))
    try:
        job_ids = [UUID(each) for each in given]
    except ValueError:
        raise bad_parameter("job", "is not the ID of a job") from None
    if len(job_ids) > LIVE_JOBS_MAX:
        raise bad_parameter("job", f"is given more than {LIVE_JOBS_MAX} times")
    return job_ids
