"""Files in a result are served so that nothing in them runs, and to those who may see the job."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from starlette.responses import Response

from holdfast import Holdfast, Job
from holdfast.dashboard import Pages, Site, Visit
from tests.dashboard.test_results import PDF, PNG, SVG, XML, base64
from tests.support.dashboard import Browser, browsing

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"
RESULT: Any = {
    "big": 9223372036854775807,
    "sum": 0.1 + 0.2,
    "zero": -0.0,
    "pictures": [{"media_type": "image/svg+xml", "name": "a b.svg", "data": SVG}, base64(PNG)],
    "pdf": {"content_type": "application/pdf", "data": base64(PDF)},
    "xml": XML,
    "csv": {"media_type": "text/csv", "name": HOSTILE, "data": f"a,{HOSTILE}\n1,2\n"},
    "html": {"media_type": "text/html", "data": base64(b"<script>alert(1)</script>")},
    HOSTILE: HOSTILE,
    "link": "javascript:alert(1)",
}


def showing(site: Site) -> Pages:
    """A page with the view of a job's result."""
    pages = Pages()
    template = site.templates.from_string(
        '{% from "result.html" import result_view, head with context %}'
        "{{ head() }}{{ result_view(job) }}"
    )

    @pages.get("/ui/test/{job_id}", needs="read")
    async def show(visit: Visit) -> Response:
        job = await visit.caller.jobs.get(UUID(visit.path["job_id"]))
        return Response(template.render(job=job, csrf_token=""), media_type="text/html")

    return pages


@pytest.fixture
async def browser(local_hf: Holdfast) -> AsyncIterator[Browser]:
    async with browsing(local_hf, showing) as browser:
        yield browser


async def job_with(hf: Holdfast, result: Any, tenant: str = "default") -> Job:
    name = f"make_{uuid4().hex}"

    @hf.job(name=name)
    async def make() -> Any:
        return result

    job = await hf.for_tenant(tenant).enqueue(make)
    await hf.run_due()
    return await hf.get(job.id)


async def test_the_json_is_exact(local_hf: Holdfast, browser: Browser) -> None:
    job = await job_with(local_hf, RESULT)
    answer = await browser.get(f"/ui/jobs/{job.id}/result")
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert answer.headers["content-disposition"].startswith("attachment; ")
    assert answer.text.startswith(
        '{"big":9223372036854775807,"sum":0.30000000000000004,"zero":-0.0,'
    )


@pytest.mark.parametrize(
    ("number", "media_type", "disposition", "data"),
    [
        (0, "image/svg+xml; charset=utf-8", 'inline; filename="a_b.svg"', SVG.encode()),
        (1, "image/png", 'inline; filename="1.png"', PNG),
        (2, "application/pdf", 'inline; filename="2.pdf"', PDF),
        (3, "application/xml; charset=utf-8", 'attachment; filename="3.xml"', XML.encode()),
        (4, "text/csv; charset=utf-8", "attachment; filename=", f"a,{HOSTILE}\n1,2\n".encode()),
        (5, "application/octet-stream", "attachment; filename=", b"<script>alert(1)</script>"),
    ],
)
async def test_a_file_has_its_type_and_runs_nothing(
    local_hf: Holdfast,
    browser: Browser,
    number: int,
    media_type: str,
    disposition: str,
    data: bytes,
) -> None:
    job = await job_with(local_hf, RESULT)
    answer = await browser.get(f"/ui/jobs/{job.id}/result/{number}")
    assert (answer.status_code, answer.content) == (200, data)
    headers = answer.headers
    assert headers["content-type"] == media_type
    assert headers["content-disposition"].startswith(disposition)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "SAMEORIGIN"
    rules = [each.strip() for each in headers["content-security-policy"].split(";")]
    assert "default-src 'none'" in rules
    assert "frame-ancestors 'self'" in rules
    assert not any(each.startswith("script-src") for each in rules)
    assert ("sandbox" in rules) == (media_type != "application/pdf")
    saved = await browser.get(f"/ui/jobs/{job.id}/result/{number}?download=1")
    assert saved.headers["content-disposition"].startswith("attachment; ")
    assert "sandbox" in saved.headers["content-security-policy"]


async def test_there_is_no_other_file(local_hf: Holdfast, browser: Browser) -> None:
    job = await job_with(local_hf, RESULT)
    for path in (f"{job.id}/result/6", f"{job.id}/result/-1", f"{uuid4()}/result/0", "x/result"):
        assert (await browser.get(f"/ui/jobs/{path}")).status_code == 404


async def test_another_tenants_result_does_not_exist(local_hf: Holdfast, browser: Browser) -> None:
    job = await job_with(local_hf, RESULT, tenant="globex")
    await browser.log_in(await local_hf.keys.create("a", scopes=["read"], tenant="acme"))
    for path in ("result", "result/0"):
        assert (await browser.get(f"/ui/jobs/{job.id}/{path}")).status_code == 404


async def test_a_result_is_shown_as_what_it_is(local_hf: Holdfast, browser: Browser) -> None:
    job = await job_with(local_hf, RESULT)
    page = (await browser.get(f"/ui/test/{job.id}")).text
    place = f"/ui/jobs/{job.id}/result"
    assert f'<img src="{place}/0"' in page
    assert f'<img src="{place}/1"' in page
    assert f'<iframe src="{place}/2' in page
    assert "&lt;a&gt;\n  &lt;b&gt;1&lt;/b&gt;\n&lt;/a&gt;" in page
    assert '<td class="number"><span' in page
    assert f'href="{place}" download' in page
    for hostile in ("<script>alert", "\u202e", "\x1b", "<svg xmlns", 'href="javascript:'):
        assert hostile not in page


async def test_a_list_of_flat_objects_is_shown_as_a_table(
    local_hf: Holdfast, browser: Browser
) -> None:
    job = await job_with(local_hf, [{"sku": HOSTILE, "count": 2**53 + 1}])
    page = (await browser.get(f"/ui/test/{job.id}")).text
    assert '<th scope="col">sku</th>' in page
    assert "9007199254740993" in page
    assert "<script>alert" not in page


@pytest.mark.parametrize(
    "result", [None, 0, "", [], {}, "a" * 200_000], ids=lambda each: repr(each)[:20]
)
async def test_any_other_result_is_shown_as_json(
    local_hf: Holdfast, browser: Browser, result: Any
) -> None:
    job = await job_with(local_hf, result)
    page = (await browser.get(f"/ui/test/{job.id}")).text
    assert "<pre" in page
    assert ("Only the beginning is shown" in page) == (result == "a" * 200_000)
    assert len(page) < 100_000
