"""/v1/dead/groups: what went wrong, how often, and whether somebody has dealt with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
from fastapi import Request
from msgspec import Meta
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.bodies import read_optional_body
from holdfast.api.callers import AsCaller, Caller, Router
from holdfast.api.cursors import next_page, read_cursor
from holdfast.api.examples import EXAMPLES, JOB_ID, WHEN
from holdfast.api.fields import Name
from holdfast.api.limits import PAGE_JOBS_DEFAULT, PAGE_JOBS_MAX
from holdfast.api.openapi import describes
from holdfast.api.pages import own_tenant
from holdfast.api.queries import read_query
from holdfast.api.service import Service
from holdfast.domain.groups import ErrorGroup, GroupFilter, GroupJob, GroupOrder
from holdfast.operations.dead import Dead

Limit = Annotated[int, Meta(ge=1, le=PAGE_JOBS_MAX)]
Cursor = Annotated[str | None, Meta(description="From the `next` of the previous page.")]


class GroupsQuery(GroupFilter, frozen=True, kw_only=True):
    """Which groups to find, and which page of them to return."""

    tenant: Annotated[Name | None, Meta(description="Only for keys that see all tenants.")] = None
    order: GroupOrder = GroupOrder.RECENT
    limit: Limit = PAGE_JOBS_DEFAULT
    cursor: Cursor = None


class GroupJobsQuery(msgspec.Struct, frozen=True):
    """Which page of jobs to return."""

    limit: Limit = PAGE_JOBS_DEFAULT
    cursor: Cursor = None


class GroupList(msgspec.Struct, frozen=True):
    """Groups of errors. `next` is the path of the next page, or null on the last page. A page can
    have fewer groups than you asked for and still have a `next`."""

    groups: list[ErrorGroup]
    next: str | None


class GroupJobList(msgspec.Struct, frozen=True):
    """Jobs of a group that are still in the history, newest first. `next` is the path of the next
    page, or null on the last page."""

    jobs: list[GroupJob]
    next: str | None


class GroupNote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to note about the group. Without a note, it keeps its last one."""

    note: Name | None = None


class Resolution(GroupNote, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to note about the group, and in which version of the application it is resolved."""

    version: Annotated[
        Name | None,
        Meta(
            description="A job that fails later brings the group back, unless it ran in an older"
            " version: one with a smaller dotted number."
        ),
    ] = None


_FINGERPRINT = "31e65b1a8f5a"
EXAMPLES[ErrorGroup] = {
    "fingerprint": _FINGERPRINT,
    "name": "resize",
    "error_code": "ValueError",
    "shape": "ValueError: image * is empty",
    "state": "acknowledged",
    "jobs": 14,
    "jobs_ever": 20,
    "first_seen": WHEN,
    "last_seen": WHEN,
    "queues": ["images"],
    "tenants": [{"tenant": "acme", "jobs": 12}, {"tenant": "umbrella", "jobs": 2}],
    "example_id": JOB_ID,
    "state_since": WHEN,
    "state_by": "ann",
    "note": "asked the camera's maker",
}
EXAMPLES[GroupList] = {"groups": [EXAMPLES[ErrorGroup]], "next": None}
EXAMPLES[GroupJobList] = {
    "jobs": [
        {
            "job_id": JOB_ID,
            "tenant": "acme",
            "state": "dead",
            "queue": "images",
            "ended_at": WHEN,
        }
    ],
    "next": None,
}
EXAMPLES[GroupNote] = {"note": "asked the camera's maker"}
EXAMPLES[Resolution] = {"version": "2.4.1", "note": "empty images are refused now"}


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/dead/groups", tags=["Dead letters"])

    @router.get("", **describes("read", {200: GroupList}, query=GroupsQuery))
    async def list_error_groups(request: Request, caller: AsCaller) -> Response:
        """List the groups of dead and failed jobs by what went wrong. Use a group's fingerprint to
        filter lists and bulk changes."""
        query = read_query(request, GroupsQuery)
        filter = GroupFilter(
            **{name: getattr(query, name) for name in GroupFilter.__struct_fields__}
        )
        bound = (request.url.path, caller.tenant, query.tenant, query.order, filter)
        after = read_cursor(query.cursor, *bound)
        await service.groups.look()
        page = await _dead_of(caller, query.tenant).groups(
            filter, query.limit, after, order=query.order
        )
        following, headers = next_page(request, page.after, *bound)
        return answer({"groups": page.groups, "next": following}, headers=headers)

    @router.get("/{fingerprint}", **describes("read", {200: ErrorGroup}, ["not-found"]))
    async def get_error_group(fingerprint: str, caller: AsCaller) -> Response:
        """Get a group of errors."""
        return answer(await caller.dead.group(fingerprint))

    @router.get(
        "/{fingerprint}/jobs",
        **describes("read", {200: GroupJobList}, ["not-found"], query=GroupJobsQuery),
    )
    async def list_jobs_of_error_group(
        fingerprint: str, request: Request, caller: AsCaller
    ) -> Response:
        """List the jobs of a group, and what each was requeued as."""
        query = read_query(request, GroupJobsQuery)
        bound = (request.url.path, caller.tenant)
        after = read_cursor(query.cursor, *bound)
        await caller.dead.group(fingerprint)
        page = await caller.dead.group_jobs(fingerprint, query.limit, after)
        following, headers = next_page(request, page.after, *bound)
        return answer({"jobs": page.jobs, "next": following}, headers=headers)

    _add_verbs(router)
    return router


def _add_verbs(router: Router) -> None:
    def described(body: Any) -> dict[str, Any]:
        problems = ["not-found", "wrong-state", "bad-arguments"]
        return describes("operate", {200: ErrorGroup}, problems, body=body, body_required=False)

    @router.post("/{fingerprint}/acknowledge", **described(GroupNote))
    async def acknowledge_error_group(
        fingerprint: str, request: Request, caller: AsCaller
    ) -> Response:
        """Note that somebody works on a group."""
        body = await read_optional_body(request, GroupNote)
        change = caller.dead.acknowledge
        return await _change(caller, "acknowledge", fingerprint, body.note, change)

    @router.post("/{fingerprint}/resolve", **described(Resolution))
    async def resolve_error_group(fingerprint: str, request: Request, caller: AsCaller) -> Response:
        """Note that the cause of a group is gone. A job that fails later brings it back."""
        body = await read_optional_body(request, Resolution)
        return await _change(
            caller, "resolve", fingerprint, body.note, caller.dead.resolve, version=body.version
        )

    @router.post("/{fingerprint}/reopen", **described(GroupNote))
    async def reopen_error_group(fingerprint: str, request: Request, caller: AsCaller) -> Response:
        """Make a group new again."""
        body = await read_optional_body(request, GroupNote)
        return await _change(caller, "reopen", fingerprint, body.note, caller.dead.reopen)


async def _change(
    caller: Caller,
    verb: str,
    fingerprint: str,
    note: str | None,
    change: Callable[..., Awaitable[Sequence[ErrorGroup]]],
    **options: Any,
) -> Response:
    async with caller.audited(f"error_group.{verb}", fingerprint, jobs=0, because=note):
        (group,) = await change(fingerprint, by=caller.name, note=note, **options)
    return answer(group)


def _dead_of(caller: Caller, tenant: str | None) -> Dead:
    named = own_tenant(caller, tenant)
    return caller.dead if named is None else caller.hf.for_tenant(named).dead
