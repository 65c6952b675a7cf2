"""/ui/run: a job is run by hand, once, with exactly the arguments that were entered."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pytest

from holdfast import Holdfast, Job
from holdfast.dashboard.forms import Form
from holdfast.dashboard.forms.hints import FILTERS
from holdfast.dashboard.site import templates
from holdfast.domain.schemas import describe
from tests.domain.test_schemas import TYPES, signature_of
from tests.support.dashboard import Browser, browsing
from tests.support.html_forms import fields_of

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m\"'"
PATH = "/ui/run/ship"


@dataclass
class Line:
    sku: str
    count: int = 1


@pytest.fixture
async def browser(local_hf: Holdfast) -> AsyncIterator[Browser]:
    @local_hf.job(queue="parcels", tags=["x"])
    async def ship(
        order: int,
        lines: list[Line],
        weight: float = 1.0,
        day: date | None = None,
        price: Decimal | None = None,
        note: str = "",
    ) -> None:
        """Ship an order.

        Args:
            order: Its number.
        """

    @local_hf.job
    async def nothing() -> None: ...

    async with browsing(local_hf) as browser:
        await browser.get("/")
        yield browser


async def form(browser: Browser, path: str = PATH) -> dict[str, str]:
    return fields_of((await browser.get(path)).text)


async def run(browser: Browser, **entered: str) -> httpx.Response:
    return await browser.post(PATH, await form(browser) | {"do": "run"} | entered)


async def made_by(hf: Holdfast, answer: httpx.Response) -> Job:
    assert answer.status_code == 303, answer.text
    found = re.fullmatch("/ui/jobs/(.+)", answer.headers["location"])
    assert found
    return await hf.get(UUID(found[1]))


async def jobs(hf: Holdfast) -> int:
    return len((await hf.jobs.list()).jobs)


async def test_the_names_lead_to_forms(browser: Browser) -> None:
    page = (await browser.get("/ui/run")).text
    assert 'href="/ui/run/ship"' in page
    assert "Ship an order." in page
    assert "parcels" in page
    shown = (await browser.get(PATH)).text
    assert "Its number." in shown
    assert "takes no arguments" in (await browser.get("/ui/run/nothing")).text
    missing = await browser.get("/ui/run/shop")
    assert missing.status_code == 404
    assert "did you mean" in missing.text


async def test_what_was_entered_is_what_is_enqueued(local_hf: Holdfast, browser: Browser) -> None:
    added = fields_of((await browser.post(PATH, await form(browser) | {"do": "add /lines"})).text)
    assert added["items:/lines"].split() == ["0"]
    entered = {
        "value:/order": "9223372036854775807",
        "value:/weight": "0.30000000000000004",
        "value:/price": "1.10",
        "value:/lines/0/sku": "a\r\nb",
        "value:/day": "2026-11-18",
        "way:/note": "0",
        "queue": "quick",
        "priority": "-3",
        "tags": "a, b",
        "delay_seconds": "0.5",
        "do": "run",
    }
    job = await made_by(local_hf, await browser.post(PATH, added | entered))
    assert msgspec.json.encode(job.arguments) == (
        b'{"order":9223372036854775807,"lines":[{"sku":"a\\nb"}],"weight":0.30000000000000004,'
        b'"day":"2026-11-18","price":"1.10","note":""}'
    )
    assert (job.queue, job.priority, job.tags, job.tenant) == ("quick", -3, ("a", "b"), "default")


@pytest.mark.parametrize(
    ("entered", "field", "problem"),
    [
        ({"value:/order": "9223372036854775808"}, "value:/order", "does not fit in 64 bits"),
        ({"value:/weight": "1e400"}, "value:/weight", "out of range for a double"),
        ({"value:/weight": "heavy"}, "value:/weight", "not a number"),
        ({"value:/day": "2026-02-31"}, "value:/day", "Invalid RFC3339 encoded date"),
        ({"value:/price": "dear"}, "value:/price", "decimal"),
        ({"priority": "high"}, "priority", "Expecting value"),
        ({"priority": "40000"}, "priority", "&lt;= 32767"),
        ({"queue": "a\u2028b"}, "queue", "control characters"),
        ({"delay_seconds": "-1"}, "delay_seconds", "&gt;= 0"),
        ({"tags": "a " * 33}, "tags", "length"),
    ],
)
async def test_an_error_is_shown_at_its_field_and_nothing_is_enqueued(
    local_hf: Holdfast, browser: Browser, entered: dict[str, str], field: str, problem: str
) -> None:
    answer = await run(browser, **{"value:/order": "7"} | entered)
    assert answer.status_code in (400, 422), answer.text
    place = re.search(
        rf'name="{field}" aria-describedby="([^"]+)"|name="{field}"[^>]*aria-describedby="([^"]+)"',
        answer.text,
    )
    assert place, answer.text
    error_id = (place[1] or place[2]).split()[-1]
    said = answer.text.partition(f'id="{error_id}"')[2].partition("</p>")[0]
    assert problem in said
    kept = fields_of(answer.text)
    assert kept[field] == entered[field].strip() or kept[field] == entered[field]
    assert kept["value:/order"] == (entered.get("value:/order") or "7")
    assert await jobs(local_hf) == 0


async def test_a_form_that_is_sent_twice_makes_one_job(
    local_hf: Holdfast, browser: Browser
) -> None:
    sent = await form(browser) | {"value:/order": "7", "do": "run"}
    first, second = [await browser.post(PATH, sent) for _ in range(2)]
    assert first.headers["location"] == second.headers["location"]
    changed = await browser.post(PATH, sent | {"value:/order": "8"})
    assert changed.status_code == 409
    assert "run it again to make another" in changed.text
    again = await browser.post(PATH, fields_of(changed.text) | {"do": "run"})
    assert (await made_by(local_hf, again)).arguments["order"] == 8
    assert await jobs(local_hf) == 2


async def test_an_idempotency_key_of_the_viewer_counts(
    local_hf: Holdfast, browser: Browser
) -> None:
    first = await run(browser, **{"value:/order": "7", "idempotency_key": "mine"})
    second = await run(browser, **{"value:/order": "7", "idempotency_key": "mine"})
    assert first.headers["location"] == second.headers["location"]
    assert (await made_by(local_hf, first)).idempotency_key == "mine"
    other = await run(browser, **{"value:/order": "8", "idempotency_key": "mine"})
    assert other.status_code == 422
    assert await jobs(local_hf) == 1


async def test_a_tenants_key_runs_jobs_of_its_tenant_only(
    local_hf: Holdfast, browser: Browser
) -> None:
    await browser.log_in(await local_hf.keys.create("a", scopes=["enqueue"], tenant="acme"))
    assert 'name="tenant"' not in (await browser.get(PATH)).text
    own = await made_by(local_hf, await run(browser, **{"value:/order": "7"}))
    assert own.tenant == "acme"
    denied = await run(browser, **{"value:/order": "7", "tenant": "globex"})
    assert denied.status_code == 403
    assert await jobs(local_hf) == 1


async def test_a_key_that_sees_all_tenants_chooses_one(
    local_hf: Holdfast, browser: Browser
) -> None:
    job = await made_by(local_hf, await run(browser, **{"value:/order": "7", "tenant": "globex"}))
    assert job.tenant == "globex"


def rendered(form: Form) -> str:
    environment = templates().overlay()
    environment.filters = {**environment.filters, **FILTERS}
    text = '{% from "form.html" import fields with context %}{{ fields(form) }}'
    return environment.from_string(text).render(form=form, csrf_token="")


@pytest.mark.parametrize("name", TYPES)
def test_a_browser_sends_back_the_arguments_that_a_form_was_filled_in_with(name: str) -> None:
    hint, given = TYPES[name]
    schema = describe(signature_of(hint), None).arguments
    for value in given:
        page = rendered(Form.of(schema, {"it": value}))
        sent = Form.posted(schema, fields_of(page)).arguments()
        assert msgspec.json.encode(sent) == msgspec.json.encode({"it": value})


ODD: list[Any] = [
    {}, {"a": None}, {"a": ""}, {"a": "\n x \n"}, {"a": HOSTILE}, {"a": 5.0},
    {"a": {"b": [1, {}]}}, {"b": True}, {"b": False}, {"b": None}, {"c": None},
    {"c": {"x": 1.5, "": 2}}, {"c": {HOSTILE: 1}}, {"d": ["1", "</textarea><script>"]},
    {"e": {"type": "n", "n": 1}}, {"e": {"type": "s", "s": "x"}}, {HOSTILE: 7},
]  # fmt: skip
SCHEMA: Any = {
    "type": "object",
    "title": HOSTILE,
    "properties": {
        "a": {"type": ["string", "null"], "description": HOSTILE, "default": HOSTILE},
        "b": {"type": ["boolean", "null"], "default": False},
        "c": {"type": ["object", "null"], "additionalProperties": {"type": "number"}},
        "d": {"type": "array", "items": {"enum": ["1", "</textarea><script>", HOSTILE]}},
        "e": {
            "oneOf": [
                {"properties": {"type": {"const": "n"}, "n": {"type": "integer"}},
                 "required": ["type", "n"], "title": HOSTILE},
                {"properties": {"type": {"const": "s"}, "s": {"type": "string"}},
                 "required": ["type", "s"]},
            ]
        },
        HOSTILE: {"type": "integer", "title": HOSTILE},
    },
    "additionalProperties": False,
}  # fmt: skip


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_hostile_schemas_and_arguments_are_shown_and_sent_back_as_they_are(value: Any) -> None:
    page = rendered(Form.of(SCHEMA, value))
    assert "<script>" not in page
    assert "\x1b" not in page
    sent = Form.posted(SCHEMA, fields_of(page))
    assert msgspec.json.encode(sent.arguments()) == msgspec.json.encode(value)
