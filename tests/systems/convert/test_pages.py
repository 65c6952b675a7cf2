"""Convert in the dashboard: conversions, their PDF and XML, and nothing of another tenant."""

from __future__ import annotations

from pathlib import Path

from holdfast.dashboard.systems import Status
from holdfast_systems.convert.pages import ConvertPages
from tests.promises.stage import both_stores
from tests.support.system_pages import all_rows, caller, shows_nothing_else
from tests.systems.convert.bench import Bench
from tests.systems.convert.scripted import script

HOSTILE = "../../<script>alert(1)</script>\u202e.pdf"


@both_stores
async def test_a_conversion_is_shown_with_the_pdf_that_came_and_the_xml(bench: Bench) -> None:
    pdf = script()
    job_id = await bench.convert.submit(pdf, "text", HOSTILE, tenant="acme")
    pages, who = ConvertPages(bench.convert), caller(bench.hf, "acme")
    (queued,) = await all_rows(pages, who)
    assert queued.cells[1] == Status("queued", "wait")
    await bench.hf.run_due()
    (row,) = await all_rows(pages, who)
    assert (row.id, row.tenant) == (str(job_id), "acme")
    assert row.cells[1] == Status("complete", "good")
    item = await pages.item(who, row.id)
    assert item is not None
    assert [link.name for link in item.files] == ["upload.pdf", "result.xml"]
    assert dict(item.facts)["PDF bytes"] == len(pdf)
    contents = []
    for link in item.files:
        file = await pages.file(who, row.id, link.name)
        assert file is not None
        assert isinstance(file.content, Path)
        assert file.media_type == link.media_type
        contents.append(file.content.read_bytes())
    assert contents == [pdf, b"<document>1</document>"]
    assert await pages.file(who, row.id, HOSTILE) is None


@both_stores
async def test_a_failed_conversion_says_why_and_offers_no_xml(bench: Bench) -> None:
    job_id = await bench.submit({"status": 400})
    await bench.hf.run_due()
    pages, who = ConvertPages(bench.convert), caller(bench.hf, "default")
    item = await pages.item(who, str(job_id))
    assert item is not None
    assert item.status == Status("failed", "bad")
    assert item.error is not None
    assert item.error.startswith("GW_4XX: ")
    assert [link.name for link in item.files] == ["upload.pdf"]
    assert await pages.file(who, str(job_id), "result.xml") is None


@both_stores
async def test_a_tenant_sees_only_its_own_and_an_operator_sees_all(bench: Bench) -> None:
    tenants = ["a", "b", "a", "b", "a"]
    for tenant in tenants:
        await bench.convert.submit(script(), "text", f"{tenant}.pdf", tenant=tenant)
    pages = ConvertPages(bench.convert)
    assert [row.tenant for row in await all_rows(pages, caller(bench.hf))] == tenants[::-1]
    mine, others = [await all_rows(pages, caller(bench.hf, each)) for each in "ab"]
    assert (len(mine), len(others)) == (3, 2)
    who = caller(bench.hf, "a")
    assert await pages.item(who, others[0].id) is None
    assert await pages.file(who, others[0].id, "upload.pdf") is None
    await shows_nothing_else(pages, who)
