"""/ui/jobs/{job_id}/result: the exact JSON of a result, and the files in it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from starlette.responses import Response

from holdfast.api.answers import encode
from holdfast.api.problems import Problem
from holdfast.dashboard.files import file_response
from holdfast.dashboard.page import Pages, Visit
from holdfast.dashboard.results.exhibit import FILTERS
from holdfast.dashboard.results.files import find_files
from holdfast.domain.job import Job

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site


def pages(site: Site) -> Pages:
    pages = Pages()
    site.templates.filters.update(FILTERS)

    @pages.get("/ui/jobs/{job_id}/result", needs="read")
    async def download_result(visit: Visit) -> Response:
        job = await _get(visit)
        return file_response(f"result-{job.id}.json", "application/json", encode(job.result))

    @pages.get("/ui/jobs/{job_id}/result/{number}", needs="read")
    async def show_file(visit: Visit) -> Response:
        job, number = await _get(visit), visit.path["number"]
        found = next((each for each in find_files(job.result) if str(each.number) == number), None)
        if found is None:
            raise Problem("not-found", f"the result of job {job.id} has no such file")
        is_shown = "download" not in visit.query
        return file_response(found.name, found.media_type, found.data, is_shown=is_shown)

    return pages


async def _get(visit: Visit) -> Job:
    try:
        job_id = UUID(visit.path["job_id"])
    except ValueError:
        raise Problem("job-not-found", "this is not the ID of a job") from None
    return await visit.caller.jobs.get(job_id)
