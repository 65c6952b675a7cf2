"""Documents in the dashboard: records, their files, and who may see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast import StoreUnavailable
from holdfast.dashboard.systems import Status
from holdfast_systems.documents.desk import Desk
from holdfast_systems.documents.pages import DocumentPages
from holdfast_systems.documents.system import Documents
from tests.support.system_pages import all_rows, caller, part, shows_nothing_else
from tests.systems.documents.bench import Bench
from tests.systems.documents.test_documents import create

pytestmark = pytest.mark.heavy


@pytest.fixture
async def documents(bench: Bench) -> AsyncIterator[Documents]:
    documents = Documents(bench.url, poll_seconds=0.1, grace_seconds=0.0)
    async with documents.hf:
        yield documents


@pytest.fixture
async def pages(documents: Documents) -> AsyncIterator[DocumentPages]:
    stopping = asyncio.Event()
    desk = Desk(documents.hf, documents.url, documents.generate_document, stopping)
    yield DocumentPages(desk, "default")
    stopping.set()
    if desk._closing is not None:
        await desk._closing


async def test_a_record_is_shown_with_the_file_that_was_generated(
    bench: Bench, documents: Documents, pages: DocumentPages
) -> None:
    made = await create(bench, CorrelationId__c="batch-7")
    failed = await create(bench, Template__c="no such template")
    who = caller(documents.hf)
    before = {row.id: row.cells[1] for row in await all_rows(pages, who)}
    assert before == dict.fromkeys((str(made), str(failed)), Status("QUEUED", "wait"))
    await documents.hf.run_due()
    rows = {row.id: row.cells for row in await all_rows(pages, who, limit=1)}
    assert rows[str(made)][1:4] == (Status("SUCCEEDED", "good"), "letter", "batch-7")
    item = await pages.item(who, str(made))
    assert item is not None
    assert '"Your mooring"' in part(item, "Data")
    (link,) = item.files
    file = await pages.file(who, str(made), link.name)
    assert file is not None
    assert isinstance(file.content, bytes)
    assert file.content.startswith(b"%PDF")
    wrong = await pages.item(who, str(failed))
    assert wrong is not None
    assert (wrong.status, wrong.files) == (Status("FAILED", "bad"), ())
    assert wrong.error is not None
    assert wrong.error.startswith("RENDER_ERROR")
    assert await pages.file(who, str(failed), link.name) is None


async def test_only_the_tenant_of_the_documents_sees_them(
    bench: Bench, documents: Documents, pages: DocumentPages
) -> None:
    made = str(await create(bench))
    for tenant, sees in (("default", True), (None, True), ("acme", False)):
        who = caller(documents.hf, tenant)
        assert [row.id for row in await all_rows(pages, who)] == [made] * sees
        assert (await pages.item(who, made) is not None) == sees
    await shows_nothing_else(pages, caller(documents.hf))


async def test_an_organization_that_is_down_is_told_as_such(
    bench: Bench, documents: Documents, pages: DocumentPages
) -> None:
    made = str(await create(bench))
    who = caller(documents.hf)
    assert await pages.item(who, made) is not None
    await bench.fault(status=503, times=100)
    with pytest.raises(StoreUnavailable):
        await pages.list(who, None, 10)
