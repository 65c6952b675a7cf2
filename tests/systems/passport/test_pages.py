"""Passport in the dashboard: versions, their files, and nothing of another tenant."""

from __future__ import annotations

from uuid import UUID

from holdfast.dashboard.systems import Code, ItemLink, Status
from holdfast_systems.passport.pages import PassportPages
from tests.support.system_pages import all_rows, caller, part, shows_nothing_else
from tests.systems.passport.line import Line
from tests.systems.passport.samples import TENANT


def pages_of(line: Line) -> PassportPages:
    return PassportPages(line.passport, line.passport._tables)


async def test_a_version_is_shown_with_its_files_and_what_happened(line: Line) -> None:
    endpoint = await line.webhooks.subscribe("https://example.com", tenant=TENANT, preset="bpc")
    version_id = str(await line.issue())
    pages, who = pages_of(line), caller(line.hf, TENANT)
    (row,) = await all_rows(pages, who)
    assert (row.id, row.cells[1]) == (version_id, Status("issued", "good"))
    item = await pages.item(who, version_id)
    assert item is not None
    facts = dict(item.facts)
    assert facts["Build"] == "build-7"
    assert [link.name for link in item.files] == [
        "qr.png",
        "label.pdf",
        "passport.json",
        "receipt.json",
    ]
    begins = {"qr.png": b"\x89PNG", "label.pdf": b"%PDF", "passport.json": b"{"}
    for link in item.files:
        file = await pages.file(who, version_id, link.name)
        assert file is not None
        assert isinstance(file.content, bytes)
        assert file.media_type == link.media_type
        assert file.content.startswith(begins.get(link.name, b"{"))
    assert part(item, "Payload").encode() == (
        (await line.passport.sealed(TENANT, UUID(version_id))).payload
    )
    assert [row[0] for row in part(item, "Documents")] == ["bom.csv"]
    (delivery,) = part(item, "Deliveries")
    assert isinstance(delivery[0], ItemLink)
    assert (delivery[0].system, delivery[4]) == ("webhooks", Code(str(endpoint.id)))
    assert "PASSPORT_COMPILED" in {row[1] for row in part(item, "Events")}


async def test_a_version_that_is_not_signed_yet_offers_what_there_is(line: Line) -> None:
    line.keys = Exception("no keys today")
    order = await line.prepare()
    await line.passport.compile(TENANT, order)
    await line.run()
    pages, who = pages_of(line), caller(line.hf, TENANT)
    (row,) = await all_rows(pages, who)
    item = await pages.item(who, row.id)
    assert item is not None
    assert item.status == Status("compiled", "wait")
    assert [link.name for link in item.files] == ["passport.json"]
    assert await pages.file(who, row.id, "label.pdf") is None


async def test_a_tenant_sees_only_its_own_and_an_operator_sees_all(line: Line) -> None:
    tenants = [TENANT, "other", "third"]
    issued = {tenant: str(await line.issue(tenant)) for tenant in tenants}
    pages = pages_of(line)
    for tenant in tenants:
        (row,) = await all_rows(pages, caller(line.hf, tenant))
        assert (row.id, row.tenant) == (issued[tenant], tenant)
    stranger = caller(line.hf, "stranger")
    assert await all_rows(pages, stranger) == []
    assert await pages.item(stranger, issued[TENANT]) is None
    assert await pages.file(stranger, issued[TENANT], "qr.png") is None
    assert await pages.list(stranger, issued[TENANT], 10) == await pages.list(stranger, None, 10)
    everything = await all_rows(pages, caller(line.hf))
    assert [row.tenant for row in everything] == tenants[::-1]
    await shows_nothing_else(pages, caller(line.hf))
