"""The list of jobs: a search, what it finds, and changes of many jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.callers import Caller
from holdfast.api.cursors import make_cursor, read_cursor
from holdfast.api.limits import BULK_RATE_MAX, JOBS_COUNTED_MAX, PAGE_JOBS_DEFAULT
from holdfast.dashboard.changes import BULK, create_change
from holdfast.dashboard.format import plain
from holdfast.dashboard.limits import SEARCH_FURTHER_JOBS_MAX, SEARCH_JOBS_MAX
from holdfast.dashboard.page import Pages, Visit
from holdfast.dashboard.searching import JOBS, known_values, read_search, search_url, text_url
from holdfast.dashboard.timeline import took_seconds
from holdfast.domain.completion import complete
from holdfast.domain.errors import BadArguments
from holdfast.domain.job import DEFAULT_TENANT, Filter, Job
from holdfast.domain.limits import (
    BULK_RATE_MIN,
    PAGE_LOOK_MAX,
    PAGE_ROWS_MAX,
    SEARCH_CHARS_MAX,
)
from holdfast.domain.search import BadSearch, Search, with_states
from holdfast.domain.states import State

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

# What the counts of the tabs can be limited to.
_COUNTED: Final = {"states", "queue", "tenant"}


class Found(NamedTuple):
    """One page of a search. `looked_at` is about how many jobs it looked at without filling the
    page, or None if it filled the page, or there are no more."""

    jobs: Sequence[Job]
    next_url: str | None
    looked_at: int | None


class Tab(NamedTuple):
    """The jobs of one state, or of all. `jobs` is None if only the search itself could tell."""

    label: str
    url: str
    is_current: bool
    jobs: str | None


class Refused(NamedTuple):
    """Why a change of many jobs was not created, at which field, and the form as it was sent."""

    field: str
    reason: str
    form: dict[str, str]
    ids: frozenset[str]


def pages(site: Site) -> Pages:
    pages = Pages()
    known = known_values()
    site.templates.globals["search_url"] = search_url

    @pages.get(JOBS, needs="read")
    async def show_jobs(visit: Visit) -> Response:
        return await _show(visit, visit.query.get("q", "").strip())

    @pages.get("/ui/suggest", needs="read")
    async def suggest(visit: Visit) -> Response:
        text = visit.query.get("q", "")[-SEARCH_CHARS_MAX:]
        values = await known.of(visit.caller, visit.now)
        completions = [
            {**each._asdict(), "label": plain(each.label)} for each in complete(text, values)
        ]
        return answer({"completions": completions})

    @pages.post(f"{JOBS}/change", needs="operate")
    async def change_jobs(visit: Visit) -> Response:
        form = await visit.form()
        text = form.get("q", "")
        ids = [value for name, value in visit.fields if name == "id"]
        try:
            jobs = _chosen(visit, form, ids)
            change = await create_change(
                visit,
                form.get("action", ""),
                jobs,
                jobs_per_second=_rate(form.get("rate", "").strip()),
                because=form.get("because", "").strip() or None,
            )
        except _Unusable as error:
            refused = Refused(error.field, str(error), form, frozenset(ids))
        except BadArguments as error:
            refused = Refused("action", str(error), form, frozenset(ids))
        else:
            return visit.redirect(f"{BULK}/{change.id}")
        return await _show(visit, text, refused)

    return pages


async def _show(visit: Visit, text: str, refused: Refused | None = None) -> Response:
    try:
        search = read_search(visit.caller, text, visit.now)
    except BadSearch as error:
        return visit.render(
            "jobs.html", title="Jobs", status=400, text=text, error=error, found=None
        )
    if search.job_id is not None:
        return visit.redirect(f"{JOBS}/{search.job_id}")
    found = await _find(visit, text, search)
    return visit.render(
        "jobs.html",
        title="Jobs",
        status=422 if refused else 200,
        text=text,
        error=None,
        found=found,
        tabs=await _tabs(visit.caller, text, search.filter),
        across=any(job.tenant != DEFAULT_TENANT for job in found.jobs),
        first_url=text_url(text) if "cursor" in visit.query else None,
        unsuccessful_url=_unsuccessful_url(text, search.filter, found),
        refused=refused,
        took=took_seconds,
        searched_further=_looked_at(search.filter, SEARCH_FURTHER_JOBS_MAX),
        fingerprint=search.filter.fingerprint,
    )


async def _find(visit: Visit, text: str, search: Search) -> Found:
    # An age in the search is another time on the next page, so the cursor is bound to the text.
    bound = (JOBS, visit.caller.tenant, text)
    look_max = SEARCH_FURTHER_JOBS_MAX if "further" in visit.query else SEARCH_JOBS_MAX
    page = await visit.caller.jobs.list(
        search.filter,
        PAGE_JOBS_DEFAULT,
        read_cursor(visit.query.get("cursor"), *bound),
        look_max=look_max,
    )
    if page.after is None:
        return Found(page.jobs, None, None)
    cursor = make_cursor(page.after, *bound)
    if len(page.jobs) == PAGE_JOBS_DEFAULT:
        return Found(page.jobs, text_url(text, cursor=cursor), None)
    further = text_url(text, cursor=cursor, further="1")
    return Found(page.jobs, further, _looked_at(search.filter, look_max))


def _looked_at(filter: Filter, look_max: int) -> int:
    """A fingerprint takes reading whole jobs, so that a search for one looks at fewer."""
    steps = look_max // PAGE_LOOK_MAX
    return steps * (PAGE_LOOK_MAX if filter.fingerprint is None else PAGE_ROWS_MAX)


async def _tabs(caller: Caller, text: str, filter: Filter) -> list[Tab]:
    counts = await _counts(caller, filter)
    chosen = set(filter.states)
    tabs = [Tab("All", text_url(with_states(text, ())), not chosen, None)]
    return tabs + [
        Tab(
            state.capitalize(),
            text_url(with_states(text, (state,))),
            chosen == {state},
            None if counts is None else counts.get(state, "0"),
        )
        for state in State
    ]


async def _counts(caller: Caller, filter: Filter) -> dict[State, str] | None:
    """How many jobs each state has, if counting them is cheap: of a queue, or of all queues."""
    if any(
        getattr(filter, name) is not None
        for name in Filter.__struct_fields__
        if name not in _COUNTED
    ):
        return None
    found = await caller.jobs.counts_up_to(JOBS_COUNTED_MAX, filter.tenant)
    counted: dict[State, int] = {}
    # Of one tenant, waiting jobs may not have been counted in any queue.
    is_limited = caller.tenant is not None or filter.tenant is not None
    capped = {State.QUEUED} if found.is_capped and is_limited else set()
    for count in found.counts:
        if filter.queue in (None, count.queue):
            counted[count.state] = counted.get(count.state, 0) + count.jobs
            capped |= {count.state} if count.is_capped else set()
    return {state: f"{jobs:,}{'+' if state in capped else ''}" for state, jobs in counted.items()}


def _unsuccessful_url(text: str, filter: Filter, found: Found) -> str | None:
    """A search by error code alone looks at successful jobs, too: they may have failed before."""
    if found.looked_at is None or filter.error_code is None or filter.states:
        return None
    return text_url(with_states(text, (State.DEAD, State.FAILED, State.CANCELED)))


class _Unusable(Exception):
    """A field of the form can't be used."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field


def _chosen(visit: Visit, form: dict[str, str], ids: Sequence[str]) -> Filter | list[UUID]:
    if form.get("which") == "all":
        try:
            return read_search(visit.caller, form.get("q", ""), visit.now).filter
        except BadSearch as error:
            raise _Unusable("which", str(error)) from None
    if not ids:
        raise _Unusable("which", "select at least one job in the list, or all that match")
    try:
        return [UUID(value) for value in ids]
    except ValueError:
        raise _Unusable("which", "one of the selected IDs is not a job ID") from None


def _rate(text: str) -> float | None:
    if not text:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not BULK_RATE_MIN <= rate <= BULK_RATE_MAX:
        reason = f"use a number of jobs per second from {BULK_RATE_MIN} to {BULK_RATE_MAX:,}"
        raise _Unusable("rate", reason)
    return rate
