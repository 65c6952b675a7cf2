"""An odd answer, from Salesforce or something in its place, fails only that one call, and an
unusable record doesn't block the others."""

from __future__ import annotations

import base64
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import msgspec
import pytest

from holdfast import State, StoreError, StoreUnavailable
from holdfast.domain.job import Lease
from holdfast.runtime.seam import Seam
from holdfast_systems.documents.salesforce.client import (
    Salesforce,
    SalesforceRefused,
    job_id_of,
    limits,
)
from holdfast_systems.documents.salesforce.client.clock import ServerClock
from holdfast_systems.documents.salesforce.store import SalesforceStore
from holdfast_systems.documents.salesforce.store.limits import DUE_ROWS_MAX
from tests.support.odd_answers import BROKEN, DEEP, UNREADABLE, OddServer, answer, odd_server
from tests.support.processes import Process, wait_until
from tests.systems.documents.bench import Bench, claim, new_job, success
from tests.systems.documents.organization import DATA, DOCUMENT
from tests.systems.documents.test_documents import LETTER, create

pytestmark = pytest.mark.heavy

LOGIN = "/services/oauth2/token"
GOOD_ID = "a00Hf0000000001AAA"
ENDLESS = "an endless body"
ODD_INSTANCES = [
    "http://",
    "http://.",
    "http://a..b",
    f"http://{'a' * 64}",
    f"http://{'é' * 64}",
    "http://[::1",
    "http://a:99999",
    "http://u:p@127.0.0.1:1",
    "http://@127.0.0.1:1",
    "http://127.0.0.1:1?",
    "http://127.0.0.1:1#",
]


def json_answer(value: object, status: str = "200 OK") -> bytes:
    return answer(msgspec.json.encode(value), status=status)


def page(*rows: object, **more: object) -> bytes:
    return json_answer({"records": rows, "done": True, "totalSize": len(rows), **more})


@asynccontextmanager
async def organization() -> AsyncIterator[tuple[OddServer, str]]:
    """A server that accepts every login, and its URL."""
    async with odd_server() as odd:
        granted = {"access_token": "00D!token", "instance_url": odd.url}
        odd.answers[LOGIN] = json_answer(granted)
        host = odd.url.removeprefix("http://")
        yield odd, f"salesforce+http://integration:secret@{host}"


def every_call(client: Salesforce) -> list[Coroutine[Any, Any, Any]]:
    return [
        client.query("SELECT Id FROM A"),
        client.count("SELECT COUNT() FROM A"),
        client.find_id("SELECT Id FROM A"),
        client.insert("A", {}),
        client.insert_all("A", [{}]),
        client.update_each("A", [{"Id": GOOD_ID}]),
    ]


async def test_no_answer_is_more_than_the_failure_of_its_call() -> None:
    async with organization() as (odd, url), Salesforce(url) as client:
        for name, odd.answer in {**BROKEN, **UNREADABLE}.items():
            if name == ENDLESS:
                continue
            for call in every_call(client):
                with pytest.raises(StoreUnavailable):
                    await call


async def test_an_endless_answer_is_not_read_to_its_end() -> None:
    async with organization() as (odd, url), Salesforce(url) as client:
        odd.answer = BROKEN[ENDLESS]
        with pytest.raises(StoreUnavailable, match=f"longer than {limits.ANSWER_BYTES_MAX} bytes"):
            await client.query("SELECT Id FROM A")


@pytest.mark.parametrize(
    "login",
    [
        *({"access_token": token, "instance_url": "http://a"} for token in ("", "a\r\nb", "é", 7)),
        *({"access_token": "a", "instance_url": url} for url in ("", "https://a", "ftp://a", 7)),
        *({"access_token": "a", "instance_url": url} for url in ODD_INSTANCES),
    ],
)
async def test_a_login_that_gives_nothing_usable_is_unavailable(login: dict[str, object]) -> None:
    async with organization() as (odd, url):
        odd.answers[LOGIN] = json_answer(login)
        with pytest.raises(StoreUnavailable, match="does not speak Salesforce's API"):
            await Salesforce(url).open()


@pytest.mark.parametrize("instance", ODD_INSTANCES)
async def test_an_odd_login_in_place_of_an_ended_session_fails_only_its_call(instance: str) -> None:
    async with organization() as (odd, url), Salesforce(url) as client:
        granted = odd.answers[LOGIN]
        odd.answers[LOGIN] = json_answer({"access_token": "a", "instance_url": instance})
        odd.answer = answer(b"", status="401 Unauthorized")
        for call in every_call(client):
            with pytest.raises(StoreUnavailable):
                await call
        odd.answers[LOGIN], odd.answer = granted, page()
        assert await client.count("SELECT COUNT() FROM A") == 0


@pytest.mark.parametrize("body", [b'{"error": "\xff"}', DEEP, b'{"error": 5}', b"[]"])
async def test_a_login_is_refused_whatever_the_reason_is(body: bytes) -> None:
    async with organization() as (odd, url), Salesforce(url) as client:
        odd.answers[LOGIN] = answer(body, status="400 Bad Request")
        odd.answer = answer(b"", status="401 Unauthorized")
        with pytest.raises(StoreUnavailable, match="rejected the login"):
            await client.count("SELECT COUNT() FROM A")


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("GET", {"records": {}, "done": True, "totalSize": 1}),
        ("GET", {"records": [], "done": "yes", "totalSize": 0}),
        ("GET", {"records": [], "done": False, "totalSize": 0, "nextRecordsUrl": "@127.0.0.1:1/"}),
        ("GET", {"records": [{"Id": 7}], "done": True, "totalSize": 1}),
        ("POST", {"id": 7}),
        ("POST", {"id": "../x"}),
        ("POST", []),
        ("PATCH", []),
        ("PATCH", [{"success": True, "id": 7}]),
        ("PATCH", [{"success": True}]),
        ("PATCH", [{"success": False, "errors": [7]}]),
        ("PATCH", [{"success": True, "id": GOOD_ID}] * 2),
    ],
)
async def test_wrong_shapes_are_unavailable(method: str, body: object) -> None:
    async with organization() as (odd, url), Salesforce(url) as client:
        odd.answers[method] = json_answer(body)
        calls = {
            "GET": client.find_id("SELECT Id FROM A"),
            "POST": client.insert("A", {}),
            "PATCH": client.update_each("A", [{"Id": GOOD_ID}]),
        }
        for name, call in calls.items():
            if name != method:
                call.close()
        with pytest.raises(StoreUnavailable, match="does not speak Salesforce's API"):
            await calls[method]


async def test_a_refusal_is_told_in_a_few_words_whatever_it_says() -> None:
    async with organization() as (odd, url), Salesforce(url) as client:
        for code in ("x" * 5000, "a\nb", "", 7):
            error = [{"errorCode": code, "message": "y" * 5000}]
            odd.answer = json_answer(error, "400 Bad Request")
            with pytest.raises(SalesforceRefused) as refused:
                await client.insert("A", {})
            assert refused.value.code == "HTTP_400"
            assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "header",
    [
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 01 Jan 9999 00:00:00 GMT",
        "Thu, 01 Jan 1970 00:00:00 -0000",
        "Mon, 01 Jan 2026 00:00:00 +9999",
        "\xff",
    ],
)
def test_an_odd_date_moves_no_clock(header: str) -> None:
    clock = ServerClock(Seam())
    clock.read(header)
    assert abs((clock.now() - Seam().now()).total_seconds()) < 60


def row(**fields: object) -> dict[str, object]:
    filled = {"Id": GOOD_ID, "Template__c": "letter", "Data__c": "{}", "LockVersion__c": 0}
    return {**filled, **fields}


@asynccontextmanager
async def store_on(odd: OddServer, url: str, *rows: object) -> AsyncIterator[SalesforceStore]:
    """A store on an organization with these records, one of which can be claimed."""
    odd.answers["GET"] = page(*rows)
    odd.answers["PATCH"] = json_answer([{"success": True, "id": GOOD_ID}])
    store = SalesforceStore(url, Seam(), max_attempts=4)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


ODD_ROWS: list[object] = [
    None,
    7,
    [],
    {},
    row(Id=7),
    row(Id="x"),
    row(Id="a00Hf0000000002AAA", LockVersion__c="many"),
    row(Id="a00Hf0000000003AAA", Attempts__c=1e300),
    row(Id="a00Hf0000000004AAA", Fence__c={}),
]


async def test_an_odd_record_keeps_nobody_from_the_others() -> None:
    async with organization() as (odd, url), store_on(odd, url, *ODD_ROWS, row()) as store:
        (job,) = await claim(store, limit=1)
        assert job.id == job_id_of(GOOD_ID)
        odd.answers["GET"] = page(*ODD_ROWS)
        with pytest.raises(StoreUnavailable, match=r"record a00Hf00000.* can't be claimed"):
            await claim(store)
        for number in (2, 3, 4):
            assert f"a00Hf000000000{number}AAA" in odd.asked[-1]  # asks for others


async def test_a_text_that_is_none_is_for_the_handler_to_refuse() -> None:
    odd_row = row(Template__c=7, Data__c=[1], RequestHash__c=True, CorrelationId__c={"a": 1})
    async with organization() as (odd, url), store_on(odd, url, odd_row) as store:
        (job,) = await claim(store, limit=1)
        arguments = msgspec.json.decode(job.arguments)
        assert (arguments["template"], arguments["data"]) == ("7", [1])
        odd.answers["GET"] = page(row(**odd_row, Status__c="QUEUED", CreatedDate="soon"))
        found = await store.get(job.id)
        assert found is not None
        assert found.state is State.QUEUED


@pytest.mark.parametrize("status", ["400 Bad Request", "403 Forbidden", "404 Not Found"])
async def test_a_refused_question_is_unavailable_and_no_workers_end(status: str) -> None:
    async with organization() as (odd, url), store_on(odd, url, row()) as store:
        odd.answers["PATCH"] = answer(b"<html>", "text/html", status)
        with pytest.raises(StoreUnavailable):
            await claim(store)
        lease = Lease(job_id_of(GOOD_ID), 1)
        odd.answers["GET"] = answer(b"<html>", "text/html", status)
        for call in (claim(store), store.counts(), store.renew([lease], 1.0)):
            with pytest.raises(StoreUnavailable):
                await call


async def test_a_fraction_in_a_number_is_no_hindrance(bench: Bench) -> None:
    """Salesforce's API stores 1.5 in a field without decimal places."""
    numbers = {"LockVersion__c": 1.005, "Attempts__c": 0.5, "Priority__c": 1.5, "Fence__c": 7.5}
    job_id = await bench.create(**numbers)
    store = await bench.store()
    (job,) = await claim(store)
    assert (job.id, job.attempt, job.fence) == (job_id, 1, 8)
    assert (await bench.record(job_id))["LockVersion__c"] == 2.005
    assert await store.renew([job.lease], 30.0) == []
    assert await store.settle([success(job)]) == []
    record = await bench.record(job_id)
    assert (record["Status__c"], record["LockVersion__c"]) == ("SUCCEEDED", 4.005)


async def test_records_that_can_not_be_claimed_hold_up_no_others(bench: Bench) -> None:
    full = {"LockVersion__c": 10**15 - 1, "Priority__c": 9}  # one more has no room in the field
    bodies = [{"Template__c": "letter", **full} for _ in range(DUE_ROWS_MAX)]
    written = await bench.customer.insert_all(DOCUMENT, bodies)
    good = await bench.create()
    store = await bench.store()
    (job,) = await claim(store, limit=1)
    assert job.id == good
    with pytest.raises(StoreUnavailable, match=r"can't be claimed.*NUMBER_OUTSIDE") as told:
        await claim(store, limit=1)
    assert any(str(each.id) in str(told.value) for each in written)
    assert await claim(store, limit=1) == []


async def test_a_record_that_is_locked_for_a_while_is_not_left_out(bench: Bench) -> None:
    job_id = await bench.create()
    store = await bench.store()
    await bench.fault(rows=3, code="UNABLE_TO_LOCK_ROW")
    for _ in range(3):
        assert await claim(store) == []
    (job,) = await claim(store)
    assert job.id == job_id


async def test_a_worker_survives_odd_answers_to_whatever_it_asks(
    bench: Bench, tmp_path: Path
) -> None:
    command = ["-m", "holdfast.cli.main", "worker", "holdfast_systems.documents.app:hf"]
    environment = {
        "SALESFORCE_URL": bench.url,
        "HOLDFAST_LEASE_SECONDS": "2",
        "HOLDFAST_POLL_SECONDS": "0.1",
        "HOLDFAST_RECLAIM_SECONDS": "0.2",
    }
    first = await create(bench, LETTER)
    worker = Process("worker", command, tmp_path, environment)
    try:
        await generated(bench, first)
        odd = [("GET", 200, b'{"records": "\xff"}'), ("GET", 400, b'[{"errorCode": "\xff"}]')]
        for method, status, body in [*odd, ("GET", 403, DEEP), ("PATCH", 200, b"[]")]:
            told = base64.b64encode(body).decode()
            await bench.fault(method=method, status=status, body=told)
        job_id = await create(bench, LETTER)

        async def all_are_used() -> bool:
            faults = (await bench.switch("GET", "faults"))["faults"]
            return not any(fault["times"] for fault in faults)

        await wait_until(all_are_used, "odd answers to all that was asked")
        await generated(bench, job_id)
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0
    finally:
        worker.kill()


async def generated(bench: Bench, job_id: UUID) -> None:
    async def is_done() -> bool:
        return bool((await bench.record(job_id))["Status__c"] == "SUCCEEDED")

    await wait_until(is_done, "a document")


@pytest.mark.parametrize("body", [b'{"Template__c": "\xff"}', DEEP, b"\xff", b"{", b'{"a": 1e999}'])
async def test_the_local_salesforce_refuses_what_is_no_json(bench: Bench, body: bytes) -> None:
    status, told = await sent(bench, f"/sobjects/{DOCUMENT}", body)
    assert (status, told[0]["errorCode"]) == (400, "JSON_PARSER_ERROR")


async def test_the_local_salesforce_refuses_what_is_nested_too_deeply(bench: Bench) -> None:
    call = {"method": "POST", "url": f"{DATA}/sobjects/{DOCUMENT}", "referenceId": "a"}
    nested: Any = []
    for _ in range(700):
        nested = [nested]
    body = msgspec.json.encode({"compositeRequest": [{**call, "body": nested}]})
    status, told = await sent(bench, "/composite", body)
    assert (status, told[0]["errorCode"]) == (400, "JSON_PARSER_ERROR")


async def sent(bench: Bench, path: str, body: bytes) -> tuple[int, Any]:
    form = {"grant_type": "client_credentials", "client_id": "admin"}
    async with aiohttp.ClientSession(bench.address) as http:
        login = await http.post(LOGIN, data={**form, "client_secret": "admin-secret"})
        token = (await login.json())["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        async with http.post(f"{DATA}{path}", data=body, headers=headers) as response:
            return response.status, await response.json()


async def test_enqueueing_is_refused_and_not_half_told() -> None:
    async with organization() as (odd, url), store_on(odd, url) as store:
        rolled_back = {"statusCode": "ALL_OR_NONE_OPERATION_ROLLED_BACK"}
        odd.answers["POST"] = json_answer([{"success": False, "errors": [rolled_back]}])
        with pytest.raises(StoreError, match="ROLLED_BACK"):
            await store.enqueue([new_job()])
