"""A system's pages, drawn from what it says of itself, whatever that is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast
from holdfast.api import Caller
from holdfast.dashboard.systems import (
    Code,
    File,
    FileLink,
    Form,
    FormRefused,
    Item,
    ItemLink,
    JobLink,
    JsonText,
    Listing,
    Row,
    Status,
    Table,
)
from tests.support.dashboard import Browser, browsing
from tests.support.html_forms import fields_of

HOSTILE = '"><script>alert(1)</script>\u202e\x1b[31m{{ 7 * 7 }}'
ESCAPED = "&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;\\u202e\\x1b[31m{{ 7 * 7 }}"
JOB = UUID(int=7)
HASH = "ab" * 32
FILES = {
    "drawing.svg": ("image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
    "label.pdf": ("application/pdf", b"%PDF-1.7"),
    "page.html": ("text/html", b"<script>alert(1)</script>"),
    "result.xml": ("application/xml", b"<document/>"),
}


@dataclass
class Parcels:
    """Has two parcels, of the tenants `a` and `b`."""

    folder: Path
    slug: str = "parcels"
    title: str = "Parcels"
    about: str = "What is on its way."

    async def list(self, caller: Caller, after: str | None, limit: int) -> Listing:
        values = (HOSTILE, Status("on its way", "busy"), Code(HASH), Decimal("0.10"), None)
        rows = [Row(each, values, each) for each in self._of(caller)]
        begin = 0 if after is None else [row.id for row in rows].index(after) + 1
        page = rows[begin : begin + 1]
        return Listing(
            ("Name", "Status", "Hash", "Weight", "Left"),
            page,
            page[-1].id if begin + 1 < len(rows) else None,
        )

    async def item(self, caller: Caller, item_id: str) -> Item | None:
        if item_id not in self._of(caller):
            return None
        table = Table(
            "Scans",
            ("Time", "Job", "Next", "Note"),
            [(datetime(2026, 11, 18, tzinfo=UTC), JobLink(JOB), ItemLink("b", HOSTILE), 17)],
        )
        return Item(
            HOSTILE,
            (("Name", HOSTILE), ("Weight", Decimal("0.10")), ("Left", None)),
            status=Status(HOSTILE, "bad"),
            error=HOSTILE,
            files=[FileLink(name, HOSTILE, kind) for name, (kind, _) in FILES.items()],
            parts=(table, JsonText("Data", '{"n":0.10,"big":12345678901234567890}'), _EMPTY),
        )

    async def file(self, caller: Caller, item_id: str, name: str) -> File | None:
        if item_id not in self._of(caller) or name not in FILES:
            return None
        media_type, content = FILES[name]
        if name != "result.xml":
            return File(name, media_type, content)
        path = self.folder / "result"
        path.write_bytes(content)
        return File(name, media_type, path)

    def _of(self, caller: Caller) -> tuple[str, ...]:
        return ("a", "b") if caller.tenant is None else (caller.tenant,)


_EMPTY = Table("Claims", ("Time",), (), "Nobody complained.")


@pytest.fixture
async def browser(local_hf: Holdfast, tmp_path: Path) -> AsyncIterator[Browser]:
    local_hf.add_pages(lambda _service: Parcels(tmp_path))
    async with browsing(local_hf) as browser:
        yield browser


async def test_a_system_is_in_the_menu_of_those_who_may_read(
    local_hf: Holdfast, browser: Browser
) -> None:
    assert '<a href="/ui/systems/parcels">' in (await browser.get("/")).text
    await browser.log_in(await local_hf.keys.create("loader", scopes=["enqueue"]))
    assert "/ui/systems/parcels" not in (await browser.get("/")).text
    assert (await browser.get("/ui/systems/parcels")).status_code == 403


async def test_a_list_has_pages_and_shows_tenants_to_those_who_see_all(
    local_hf: Holdfast, browser: Browser
) -> None:
    first = (await browser.get("/ui/systems/parcels")).text
    assert "What is on its way." in first
    assert "<script>alert" not in first
    assert ESCAPED in first
    assert f'title="{HASH}">{HASH[:18]}…' in first
    assert '<span class="number">0.10</span>' in first
    assert 'data-label="Tenant"' in first
    assert 'href="/ui/systems/parcels?after=a" rel="next"' in first
    second = (await browser.get("/ui/systems/parcels?after=a")).text
    assert 'id="item-b"' in second
    assert 'id="item-a"' not in second
    await browser.log_in(await local_hf.keys.create("ann", scopes=["read"], tenant="a"))
    own = (await browser.get("/ui/systems/parcels")).text
    assert 'data-label="Tenant"' not in own


async def test_an_item_is_shown_with_its_parts_and_files(browser: Browser) -> None:
    page = (await browser.get("/ui/systems/parcels/a")).text
    assert "<script>alert" not in page
    assert page.count(ESCAPED) > 5
    assert f'href="/ui/jobs/{JOB}"' in page
    assert 'href="/ui/systems/parcels/b"' in page
    assert "12345678901234567890" in page
    assert "0.10" in page
    assert "Nobody complained." in page
    assert '<img src="/ui/systems/parcels/a/files/drawing.svg"' in page
    assert '<iframe src="/ui/systems/parcels/a/files/label.pdf#navpanes=0"' in page
    assert 'href="/ui/systems/parcels/a/files/page.html?download"' in page
    assert 'src="/ui/systems/parcels/a/files/page.html"' not in page


async def test_files_can_not_harm_the_browser(browser: Browser) -> None:
    told = {}
    for name, (_, content) in FILES.items():
        answer = await browser.get(f"/ui/systems/parcels/a/files/{name}")
        assert answer.content == content
        assert answer.headers["x-content-type-options"] == "nosniff"
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("sandbox; default-src 'none'") or name == "label.pdf"
        assert "frame-ancestors 'self'" in policy
        kind, shown = (
            answer.headers[each].partition(";")[0]
            for each in ("content-type", "content-disposition")
        )
        told[name] = kind, shown
    assert told == {
        "drawing.svg": ("image/svg+xml", "inline"),
        "label.pdf": ("application/pdf", "inline"),
        "page.html": ("application/octet-stream", "attachment"),
        "result.xml": ("application/xml", "attachment"),
    }
    kept = await browser.get("/ui/systems/parcels/a/files/label.pdf?download")
    assert kept.headers["content-disposition"] == 'attachment; filename="label.pdf"'
    assert kept.headers["content-security-policy"].startswith("sandbox; ")


async def test_what_is_not_there_or_not_the_callers_is_404(
    local_hf: Holdfast, browser: Browser
) -> None:
    await browser.log_in(await local_hf.keys.create("ann", scopes=["read"], tenant="a"))
    for path in ("b", "b/files/label.pdf", "a/files/passwd", "a/files/..%2f..%2fetc%2fpasswd", "x"):
        answer = await browser.get(f"/ui/systems/parcels/{path}")
        assert answer.status_code == 404, path
    assert (await browser.get("/ui/systems/parcels/a")).status_code == 200


def filled(page: str, name: str, grams: str) -> dict[str, str]:
    return fields_of(page) | {"value:/name": name, "value:/grams": grams, "do": "run"}


class Weighed(Parcels):
    """Parcels that can be sent by hand."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.sent: list[Any] = []

    def forms(self) -> Sequence[Form]:
        properties = {"name": {"type": "string"}, "grams": {"type": "integer", "maximum": 100}}
        schema = {"type": "object", "properties": properties, "required": ["name", "grams"]}
        return [Form("letter@1", "Send a letter", schema), Form("parcel@1", HOSTILE, schema)]

    async def run(self, caller: Caller, form: Form, inputs: Any) -> str:
        if inputs["name"] == "nobody":
            raise FormRefused([("/name", "nobody lives there")])
        self.sent.append((form.name, inputs))
        return "a"


async def test_work_is_started_by_a_form_with_errors_at_its_fields(
    local_hf: Holdfast, tmp_path: Path
) -> None:
    system = Weighed(tmp_path)
    local_hf.add_pages(lambda _service: system)
    place = "/ui/systems/parcels/run"
    async with browsing(local_hf) as browser:
        assert f'href="{place}"' in (await browser.get("/ui/systems/parcels")).text
        shown = (await browser.get(place)).text
        assert "Send a letter" in shown
        assert "<script>alert" not in shown
        wrong = await browser.post(f"{place}?form=parcel@1", filled(shown, "nobody", "1.5"))
        assert wrong.status_code == 422
        refused = await browser.post(f"{place}?form=parcel@1", filled(shown, "nobody", "7"))
        assert refused.status_code == 422
        assert "nobody lives there" in refused.text
        assert system.sent == []
        done = await browser.post(f"{place}?form=parcel@1", filled(shown, "Zoë", "7"))
        assert (done.status_code, done.headers["location"]) == (303, "/ui/systems/parcels/a")
        assert system.sent == [("parcel@1", {"name": "Zoë", "grams": 7})]
        assert (await browser.get(f"{place}?form=none")).status_code == 404
        viewer = await local_hf.keys.create("ann", scopes=["read"])
        await browser.log_in(viewer)
        assert (await browser.get(place)).status_code == 403
        assert (await browser.post(place, filled(shown, "Zoë", "7"))).status_code == 403
        assert f'href="{place}"' not in (await browser.get("/ui/systems/parcels")).text
    assert len(system.sent) == 1
