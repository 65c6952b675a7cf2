"""Compute in the dashboard: requests, their results and pictures, and the form for new ones."""

from __future__ import annotations

from uuid import UUID

import pytest

from holdfast.dashboard.systems import FormRefused, Status
from holdfast_systems.compute.pages import APP_ID, ComputePages
from tests.promises.stage import both_stores
from tests.support.system_pages import all_rows, caller, part, shows_nothing_else
from tests.systems.compute.stage import INPUTS, OTHER_TENANT, TENANT, staged

pytestmark = pytest.mark.heavy


@both_stores
async def test_a_form_starts_a_request_that_is_shown_with_its_picture(store_url: str) -> None:
    async with staged(store_url) as stage:
        pages = ComputePages(stage.compute)
        who = caller(stage.hf, str(TENANT), "read", "enqueue")
        (form,) = pages.forms()
        assert (form.name, form.title) == ("house-fit@1.0.0", "Fit a house on a plot")
        item_id = await pages.run(who, form, INPUTS)
        await stage.ended(UUID(item_id))
        (row,) = await all_rows(pages, who)
        assert row.id == item_id
        assert row.cells[:2] == ("house-fit@1.0.0", Status("succeeded", "good"))
        item = await pages.item(who, item_id)
        assert item is not None
        assert dict(item.facts)["Application"] == APP_ID
        assert '"plot"' in part(item, "Inputs")
        assert '"score"' in part(item, "Outputs")
        (link,) = item.files
        assert (link.title, link.media_type) == ("svg", "image/svg+xml")
        file = await pages.file(who, item_id, link.name)
        assert file is not None
        assert isinstance(file.content, bytes)
        assert file.content.startswith(b"<svg")
        # The same inputs are the same request.
        assert await pages.run(who, form, INPUTS) == item_id


@both_stores
async def test_a_form_is_refused_where_it_is_wrong(store_url: str) -> None:
    async with staged(store_url, work=False) as stage:
        pages = ComputePages(stage.compute)
        who = caller(stage.hf, str(TENANT), "read", "enqueue")
        (form,) = pages.forms()
        with pytest.raises(FormRefused) as refused:
            await pages.run(who, form, {"plot": [[0, 0]], "house": {"storeys": 99}})
        assert {pointer for pointer, _ in refused.value.errors} == {"/plot", "/house/storeys"}
        assert await all_rows(pages, who) == []


@both_stores
async def test_a_failed_request_says_why(store_url: str) -> None:
    async with staged(store_url) as stage:
        stage.faults.status = 400
        job_id = await stage.run()
        await stage.ended(job_id)
        pages, who = ComputePages(stage.compute), caller(stage.hf, str(TENANT))
        item = await pages.item(who, str(job_id))
        assert item is not None
        assert item.status == Status("failed", "bad")
        assert item.error is not None
        assert item.error.startswith("APP_4XX: ")
        assert not item.files


@both_stores
async def test_a_tenant_sees_only_its_own_and_an_operator_sees_all(store_url: str) -> None:
    async with staged(store_url) as stage:
        mine, others = await stage.run(), await stage.run(tenant=OTHER_TENANT)
        await stage.ended(mine)
        await stage.ended(others, OTHER_TENANT)
        pages = ComputePages(stage.compute)
        everything = await all_rows(pages, caller(stage.hf), limit=1)
        assert [(row.id, row.tenant) for row in everything] == [
            (str(others), str(OTHER_TENANT)),
            (str(mine), str(TENANT)),
        ]
        who = caller(stage.hf, str(TENANT))
        assert [row.id for row in await all_rows(pages, who)] == [str(mine)]
        assert await pages.item(who, str(others)) is None
        picture = await pages.item(caller(stage.hf), str(others))
        assert picture is not None
        name = picture.files[0].name
        assert await pages.file(caller(stage.hf), str(others), name) is not None
        assert await pages.file(who, str(others), name) is None
        assert await pages.file(who, str(mine), name) is None
        await shows_nothing_else(pages, who)
