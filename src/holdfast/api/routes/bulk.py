"""/v1/bulk: change many jobs in the background, each exactly once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import Request
from msgspec import Meta
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.bodies import read_body
from holdfast.api.callers import AsCaller, Caller, Router
from holdfast.api.cursors import next_page, read_cursor
from holdfast.api.examples import EXAMPLES, WHEN
from holdfast.api.fields import Because
from holdfast.api.idempotency import once
from holdfast.api.limits import BULK_RATE_MAX, PAGE_JOBS_DEFAULT, PAGE_JOBS_MAX
from holdfast.api.openapi import describes
from holdfast.api.pages import JobFilter, own_tenant
from holdfast.api.problems import At, Problem
from holdfast.api.queries import read_query
from holdfast.api.service import Service
from holdfast.domain.bulk import BulkAction, BulkChange
from holdfast.domain.job import Filter, Job
from holdfast.domain.limits import BULK_IDS_MAX, BULK_RATE_MIN
from holdfast.domain.states import State

Rate = Annotated[
    float,
    Meta(
        ge=BULK_RATE_MIN,
        le=BULK_RATE_MAX,
        description="Rate limit, in jobs per second. Null: no limit.",
    ),
]


class BulkFilter(JobFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs to change: those that match all of these now."""

    states: Annotated[
        tuple[State, ...],
        Meta(
            description="Default: queued and running jobs for `cancel`, dead and failed jobs for"
            " `requeue`. Required for `retry`."
        ),
    ] = ()


class NewBulkChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of many jobs, with either a filter or a list of IDs."""

    action: BulkAction
    filter: BulkFilter | None = None
    ids: Annotated[list[UUID], Meta(min_length=1, max_length=BULK_IDS_MAX)] | None = None
    jobs_per_second: Rate | None = None
    because: Because | None = None
    again: Annotated[bool, Meta(description="Include jobs that were already requeued.")] = False
    start: Annotated[bool, Meta(description="Start immediately, without a preview.")] = False


class BulkQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of changes to return."""

    limit: Annotated[int, Meta(ge=1, le=PAGE_JOBS_MAX)] = PAGE_JOBS_DEFAULT
    cursor: Annotated[str | None, Meta(description="From the `next` of the previous page.")] = None


class BulkList(msgspec.Struct, frozen=True):
    """Changes, newest first, without samples. `next` is the path of the next page, or null on the
    last page."""

    changes: list[BulkChange]
    next: str | None


CHANGE_ID = "01a1eb4e-7c00-7000-8000-00000000005e"
EXAMPLES[NewBulkChange] = {
    "action": "requeue",
    "filter": {"states": ["dead"], "fingerprint": "5f1c9a20"},
    "jobs_per_second": 50,
    "because": "the mail server is back",
}
EXAMPLES[BulkChange] = {
    "id": CHANGE_ID,
    "action": "requeue",
    "state": "running",
    "filter": {"states": ["dead"], "fingerprint": "5f1c9a20"},
    "jobs_per_second": 50,
    "by": "operations",
    "because": "the mail server is back",
    "total": 1200,
    "requeued_before": 3,
    "counts": [{"state": "dead", "name": "send_mail", "jobs": 1200}],
    "sample": [{**EXAMPLES[Job], "state": "dead", "name": "send_mail"}],
    "done": 500,
    "changed": 499,
    "moved_on": 1,
    "rate": 49.8,
    "seconds_left": 14.1,
    "created_at": WHEN,
    "started_at": WHEN,
}
EXAMPLES[BulkList] = {"changes": [EXAMPLES[BulkChange]], "next": None}


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/bulk", tags=["Bulk changes"])

    @router.post(
        "",
        **describes(
            "operate",
            {201: BulkChange},
            ["bad-arguments"],
            body=NewBulkChange,
            headers={"Location": "The path of the change"},
            idempotency="required",
        ),
    )
    async def create_bulk_change(request: Request, caller: AsCaller) -> Response:
        """Preview a bulk change, which cancels, retries or requeues many jobs.

        The response counts the jobs and shows a few. Nothing changes until you start the change.
        The preview fixes its jobs: jobs that match later are not part of it. It has at most
        100,000 jobs; `capped` is true if more match.
        """
        new = await read_body(request, NewBulkChange)
        response = await _create(request, caller, new)
        if new.start:
            service.bulk.wake()
        return response

    @router.get("", **describes("read", {200: BulkList}, query=BulkQuery))
    async def list_bulk_changes(request: Request, caller: AsCaller) -> Response:
        """List bulk changes, newest first. They are kept as long as ended jobs."""
        query = read_query(request, BulkQuery)
        bound = (request.url.path, caller.tenant)
        page = await caller.bulk.list(query.limit, read_cursor(query.cursor, *bound))
        following, headers = next_page(request, page.after, *bound)
        return answer({"changes": page.changes, "next": following}, headers=headers)

    @router.get("/{change_id}", **describes("read", {200: BulkChange}, ["bulk-change-not-found"]))
    async def get_bulk_change(change_id: UUID, caller: AsCaller) -> Response:
        """Get a bulk change and its progress."""
        return answer(await caller.bulk.get(change_id))

    _add_verbs(router, service)
    return router


def _add_verbs(router: Router, service: Service) -> None:
    described = describes("operate", {200: BulkChange}, ["bulk-change-not-found", "wrong-state"])

    @router.post("/{change_id}/start", **described)
    async def start_bulk_change(change_id: UUID, caller: AsCaller) -> Response:
        """Start a previewed change. Safe to repeat: a running change is not affected."""
        changed = await _change(caller, "start", change_id, caller.bulk.start)
        service.bulk.wake()
        return changed

    @router.post("/{change_id}/pause", **described)
    async def pause_bulk_change(change_id: UUID, caller: AsCaller) -> Response:
        """Pause a running change. No further job is changed until it is resumed."""
        return await _change(caller, "pause", change_id, caller.bulk.pause)

    @router.post("/{change_id}/resume", **described)
    async def resume_bulk_change(change_id: UUID, caller: AsCaller) -> Response:
        """Resume a paused change where it stopped."""
        changed = await _change(caller, "resume", change_id, caller.bulk.resume)
        service.bulk.wake()
        return changed

    @router.post("/{change_id}/cancel", **described)
    async def cancel_bulk_change(change_id: UUID, caller: AsCaller) -> Response:
        """Stop a change for good. Jobs that it has already changed stay changed."""
        return await _change(caller, "cancel", change_id, caller.bulk.cancel)


async def _create(request: Request, caller: Caller, new: NewBulkChange) -> Response:
    jobs = _jobs(caller, new)
    async with once(request, caller, new, required=True) as attempt:
        if attempt.replayed is not None:
            return attempt.replayed
        # The search may take seconds: too long for a transaction.
        preview = await caller.bulk._preview(
            new.action,
            jobs,
            jobs_per_second=new.jobs_per_second,
            by=caller.name,
            because=new.because,
            again=new.again,
        )

        async def work(connection: Any) -> Response:
            change = await caller.bulk._record(preview, start=new.start, connection=connection)
            await caller.audit(
                "bulk.create",
                change.id,
                jobs=change.total,
                because=new.because,
                connection=connection,
            )
            return answer(change, 201, {"location": f"/v1/bulk/{change.id}"})

        return await attempt.finish(work)


def _jobs(caller: Caller, new: NewBulkChange) -> Filter | list[UUID]:
    if (new.filter is None) == (new.ids is None):
        text = "send either a filter or a list of ids"
        raise Problem("bad-request", text, [At(text, pointer="")])
    if new.filter is None:
        return new.ids or []
    own_tenant(caller, new.filter.tenant)
    return Filter(**{name: getattr(new.filter, name) for name in Filter.__struct_fields__})


async def _change(
    caller: Caller,
    verb: str,
    change_id: UUID,
    apply: Callable[[UUID], Awaitable[BulkChange]],
) -> Response:
    change = await caller.bulk.get(change_id)
    async with caller.audited(f"bulk.{verb}", change_id, jobs=change.total - change.done):
        changed = await apply(change_id)
    return answer(msgspec.structs.replace(changed, sample=change.sample))
