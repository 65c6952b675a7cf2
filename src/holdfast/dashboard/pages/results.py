"""/ui/jobs/{job_id}/result: the exact JSON of a result, and the files in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from starlette.responses import Response

from holdfast.api.answers import encode
from holdfast.api.problems import Problem
from holdfast.dashboard.page import Pages, Visit
from holdfast.dashboard.results.exhibit import FILTERS
from holdfast.dashboard.results.files import File, find_files
from holdfast.domain.job import Job

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

# A file is shown, but it runs nothing, loads nothing, and is in no frame of another site.
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'self'"
)
_SHOWN: Final = ("picture", "pdf")


def pages(site: Site) -> Pages:
    pages = Pages()
    site.templates.filters.update(FILTERS)

    @pages.get("/ui/jobs/{job_id}/result", needs="read")
    async def download_result(visit: Visit) -> Response:
        job = await _get(visit)
        return _file(
            encode(job.result), "application/json", f"result-{job.id}.json", is_shown=False
        )

    @pages.get("/ui/jobs/{job_id}/result/{number}", needs="read")
    async def show_file(visit: Visit) -> Response:
        job, number = await _get(visit), visit.path["number"]
        found = next((each for each in find_files(job.result) if str(each.number) == number), None)
        if found is None:
            raise Problem("not-found", f"the result of job {job.id} has no such file")
        is_shown = found.kind in _SHOWN and visit.query.get("download") is None
        return _file(found.data, _content_type(found), found.name, is_shown=is_shown)

    return pages


async def _get(visit: Visit) -> Job:
    try:
        job_id = UUID(visit.path["job_id"])
    except ValueError:
        raise Problem("job-not-found", "this is not the ID of a job") from None
    return await visit.caller.jobs.get(job_id)


def _content_type(file: File) -> str:
    is_text = file.kind in ("xml", "csv", "text") or file.media_type == "image/svg+xml"
    return f"{file.media_type}; charset=utf-8" if is_text else file.media_type


def _file(data: bytes, content_type: str, name: str, *, is_shown: bool) -> Response:
    # The browser's own viewer shows a PDF, and it does not start in a sandbox.
    sandbox = "" if content_type == "application/pdf" and is_shown else "sandbox; "
    disposition = "inline" if is_shown else "attachment"
    return Response(
        data,
        headers={
            "content-type": content_type,
            "content-disposition": f'{disposition}; filename="{name}"',
            "content-security-policy": sandbox + _POLICY,
            "x-frame-options": "SAMEORIGIN",
        },
    )
