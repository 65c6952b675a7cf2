"""Searches for jobs on the dashboard: what a caller's text means, and what can complete it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from holdfast.api.callers import Caller
from holdfast.dashboard.kept import KeptByTenant
from holdfast.dashboard.limits import SUGGESTIONS_JOBS_MAX, SUGGESTIONS_KEPT_SECONDS
from holdfast.domain.job import Filter, Job
from holdfast.domain.limits import PAGE_LOOK_MAX
from holdfast.domain.search import Search, bad, format_search, parse_search, terms
from holdfast.domain.states import UNSUCCESSFUL

JOBS: Final = "/ui/jobs"

Values = Mapping[str, Iterable[str]]


def search_url(filter: Filter | None = None, **fields: Any) -> str:
    """The list of the jobs that match a filter, or the fields of one."""
    if "state" in fields:
        fields["states"] = (fields.pop("state"),)
    return text_url(format_search(filter or Filter(**fields)))


def text_url(text: str, **parameters: str) -> str:
    """The list of the jobs that a search finds."""
    query = {"q": text, **parameters} if text else parameters
    return f"{JOBS}?{urlencode(query)}" if query else JOBS


def read_search(caller: Caller, text: str, now: datetime) -> Search:
    """Read a search, or raise BadSearch, also if it names a tenant that the caller can't see."""
    search = parse_search(text, now)
    if caller.tenant is not None and search.filter.tenant not in (None, caller.tenant):
        (term,) = (each for each in terms(text) if each.key == "tenant")
        raise bad("your key belongs to another tenant; leave this out", term.start, term.end)
    return search


def known_values() -> KeptByTenant[Values]:
    """The values that a search can be completed with, as each tenant may know them. They are kept
    for some seconds, because every key that somebody presses asks for them."""
    return KeptByTenant(_read_values, SUGGESTIONS_KEPT_SECONDS)


async def _read_values(caller: Caller) -> Values:
    """What the newest jobs have, and the newest that did not succeed; names of queues and jobs that
    the database or the code knows."""
    counted = await caller.jobs.counts_up_to(1)
    jobs = [*await _newest(caller, Filter()), *await _newest(caller, Filter(states=UNSUCCESSFUL))]
    values = {
        "queue": sorted({count.queue for count in counted.counts} | {job.queue for job in jobs}),
        "name": sorted({*caller.hf.names} | {job.name for job in jobs}),
        "error": sorted({job.error_code for job in jobs if job.error_code}),
        "tag": sorted({tag for job in jobs for tag in job.tags}),
    }
    if caller.tenant is None:
        values["tenant"] = sorted({job.tenant for job in jobs})
    return values


async def _newest(caller: Caller, filter: Filter) -> Iterable[Job]:
    page = await caller.jobs.list(filter, SUGGESTIONS_JOBS_MAX, look_max=PAGE_LOOK_MAX)
    return page.jobs
