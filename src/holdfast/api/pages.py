"""Job filters in the query of a request, and pages of jobs in its response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.answers import answer, encode
from holdfast.api.callers import Caller
from holdfast.api.cursors import next_page, read_cursor
from holdfast.api.examples import EXAMPLES
from holdfast.api.limits import (
    PAGE_BYTES_MAX,
    PAGE_JOBS_DEFAULT,
    PAGE_JOBS_MAX,
    PAGE_STEP_JOBS_MAX,
)
from holdfast.api.problems import Problem
from holdfast.api.queries import bad_parameter, read_query
from holdfast.domain.errors import BadArguments
from holdfast.domain.job import Filter, Job, Page
from holdfast.domain.states import State
from holdfast.domain.times import check_time

Time = Annotated[datetime, Meta(tz=True)]
List = Callable[[Filter, int, UUID | None], Awaitable[Page]]

_FILTER_FIELDS: Final = frozenset(Filter.__struct_fields__)


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to find: those that match all of these."""

    queue: str | None = None
    name: str | None = None
    tenant: Annotated[str | None, Meta(description="Only for keys that see all tenants.")] = None
    tag: str | None = None
    correlation_id: str | None = None
    parent_id: Annotated[UUID | None, Meta(description="The job whose handler enqueued them.")] = (
        None
    )
    error_code: str | None = None
    fingerprint: Annotated[
        str | None, Meta(description="The fingerprint of a group of errors.")
    ] = None
    since: Annotated[
        Time | None, Meta(description="Ended at or after this time; if not ended, created.")
    ] = None
    until: Annotated[
        Time | None, Meta(description="Ended before this time; if not ended, created.")
    ] = None


class PageOfJobs(JobFilter, frozen=True, kw_only=True):
    """A filter, and which page of the matching jobs to return."""

    state: Annotated[list[State], Meta(description="Repeat it for several states.")] = []
    limit: Annotated[int, Meta(ge=1, le=PAGE_JOBS_MAX)] = PAGE_JOBS_DEFAULT
    cursor: Annotated[str | None, Meta(description="From the `next` of the previous page.")] = None


class PageOfDead(JobFilter, frozen=True, kw_only=True):
    """A filter for jobs that did not succeed, and which page of them to return."""

    state: Annotated[
        list[Literal["dead", "failed", "canceled"]],
        Meta(description="Default: dead and failed jobs."),
    ] = []
    limit: Annotated[int, Meta(ge=1, le=PAGE_JOBS_MAX)] = PAGE_JOBS_DEFAULT
    cursor: Annotated[str | None, Meta(description="From the `next` of the previous page.")] = None


class JobPage(msgspec.Struct, frozen=True):
    """Jobs, newest first. `next` is the path of the next page, or null on the last page.

    A page can have fewer jobs than you asked for and still have a `next`: one request reads a
    limited number of jobs and returns a limited number of bytes.
    """

    jobs: list[Job]
    next: str | None


EXAMPLES[JobPage] = {
    "jobs": [EXAMPLES[Job]],
    "next": "/v1/jobs?state=queued&cursor=AeblNqiwHq0kAaHtEBT-dpePCoHC8ga2XA",
}


def own_tenant(caller: Caller, named: str | None) -> str | None:
    """The tenant whose jobs to read, or None for all, which only some callers see."""
    if caller.tenant is not None and named not in (None, caller.tenant):
        raise Problem("not-allowed", "the key belongs to another tenant; omit the tenant")
    return named


def make_filter(caller: Caller, query: Any) -> Filter:
    """Return the engine's filter. A caller with a tenant sees no other tenant."""
    own_tenant(caller, query.tenant)
    check_times(query)
    values = {name: getattr(query, name) for name in _FILTER_FIELDS if name != "states"}
    return Filter(states=tuple(map(State, getattr(query, "state", ()))), **values)


def check_times(query: Any) -> None:
    """Reject a `since` or `until` that no database can compare with."""
    for name in ("since", "until"):
        try:
            if (time := getattr(query, name)) is not None:
                check_time(name, time)
        except BadArguments as error:
            raise bad_parameter(name, str(error).removeprefix(f"{name} ")) from None


async def answer_page(
    request: Request, caller: Caller, kind: type[PageOfJobs | PageOfDead], list_jobs: List
) -> Response:
    """Return one page of the jobs that match the request's query."""
    query = read_query(request, kind)
    filter = make_filter(caller, query)
    bound = (request.url.path, caller.tenant, filter)
    after = read_cursor(query.cursor, *bound)
    found, after = await _fill(list_jobs, filter, query.limit, after)
    following, headers = next_page(request, after, *bound)
    return answer({"jobs": found, "next": following}, headers=headers)


async def _fill(
    list_jobs: List, filter: Filter, limit: int, after: UUID | None
) -> tuple[Sequence[msgspec.Raw], UUID | None]:
    """Read in steps: the jobs of one page may have 250 MB of arguments and results in total."""
    found: list[msgspec.Raw] = []
    bytes_left = PAGE_BYTES_MAX
    while len(found) < limit:
        wanted = min(limit - len(found), PAGE_STEP_JOBS_MAX)
        page = await list_jobs(filter, wanted, after)
        for job in page.jobs:
            data = encode(job)
            bytes_left -= len(data)
            if bytes_left < 0 and found:
                return found, after
            found.append(msgspec.Raw(data))
            after = job.id
        after = page.after
        if after is None or len(page.jobs) < wanted:
            break
    return found, after
