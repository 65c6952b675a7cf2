"""How the local Salesforce decides between writers, and what it rolls back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from tests.support.processes import wait_until
from tests.systems.documents.organization import DATA, DOCUMENT, document

pytestmark = pytest.mark.heavy


async def token(http: aiohttp.ClientSession, user: str) -> str:
    form = {
        "grant_type": "client_credentials",
        "client_id": user,
        "client_secret": f"{user}-secret",
    }
    async with http.post("/services/oauth2/token", data=form) as answer:
        return str((await answer.json())["access_token"])


class User:
    """One user's calls; each returns the status and the body of its answer."""

    def __init__(self, http: aiohttp.ClientSession, access_token: str) -> None:
        self._http = http
        self._headers = {"Authorization": f"Bearer {access_token}"}

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        url = f"{DATA}/{path}"
        async with self._http.request(method, url, json=body, headers=self._headers) as answer:
            return answer.status, await answer.json() if await answer.read() else None

    async def insert(self, **fields: object) -> str:
        _, made = await self.call("POST", f"sobjects/{DOCUMENT}", document(**fields))
        return str(made["id"])

    async def get(self, record_id: str) -> dict[str, Any]:
        _, record = await self.call("GET", f"sobjects/{DOCUMENT}/{record_id}")
        return dict(record)

    async def patch(self, record_id: str, **fields: object) -> tuple[int, Any]:
        return await self.call("PATCH", f"sobjects/{DOCUMENT}/{record_id}", fields)

    async def switch(self, method: str, body: object = None) -> Any:
        async with self._http.request(method, "/_local/faults", json=body) as answer:
            answer.raise_for_status()
            return await answer.json() if await answer.read() else None


@pytest.fixture
async def http(address: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(address) as made:
        yield made


@pytest.fixture
async def integration(http: aiohttp.ClientSession) -> User:
    return User(http, await token(http, "integration"))


@pytest.fixture
async def admin(http: aiohttp.ClientSession) -> User:
    return User(http, await token(http, "admin"))


async def test_of_many_writers_of_the_same_version_one_wins(integration: User) -> None:
    records = [await integration.insert() for _ in range(5)]

    async def claim(worker: int) -> list[bool]:
        updates = [
            {
                "attributes": {"type": DOCUMENT},
                "id": record_id,
                "LockedBy__c": f"worker {worker}",
                "LockVersion__c": 1,
            }
            for record_id in records
        ]
        _, results = await integration.call("PATCH", "composite/sobjects", {"records": updates})
        return [result["success"] for result in results]

    claims = await asyncio.gather(*(claim(worker) for worker in range(20)))

    for place, record_id in enumerate(records):
        winners = [worker for worker, claimed in enumerate(claims) if claimed[place]]
        assert len(winners) == 1
        record = await integration.get(record_id)
        assert record["LockedBy__c"] == f"worker {winners[0]}"
        assert record["LockVersion__c"] == 1


@pytest.mark.parametrize("version", [None, 0, 2])
async def test_the_integration_user_raises_the_version_by_exactly_one(
    integration: User, version: int | None
) -> None:
    record_id = await integration.insert()
    fields = {} if version is None else {"LockVersion__c": version}

    status, body = await integration.patch(record_id, Status__c="PROCESSING", **fields)

    assert status == 400
    assert body[0]["errorCode"] == "FIELD_CUSTOM_VALIDATION_EXCEPTION"
    assert body[0]["fields"] == ["LockVersion__c"]
    assert (await integration.get(record_id))["Status__c"] == "QUEUED"


async def test_an_edit_by_somebody_else_raises_the_version(integration: User, admin: User) -> None:
    record_id = await integration.insert()

    assert (await admin.patch(record_id, Priority__c=5))[0] == 204
    assert (await integration.get(record_id))["LockVersion__c"] == 1
    assert (await integration.patch(record_id, LockVersion__c=1))[0] == 400
    assert (await integration.patch(record_id, LockVersion__c=2))[0] == 204


async def test_all_or_none_means_none(integration: User) -> None:
    kept = await integration.insert(RequestHash__c="kept")
    records = [
        document(RequestHash__c="new"),
        document(RequestHash__c="kept"),
    ]

    _, results = await integration.call(
        "POST", "composite/sobjects", {"allOrNone": True, "records": records}
    )

    codes = [result["errors"][0]["statusCode"] for result in results]
    assert codes == ["ALL_OR_NONE_OPERATION_ROLLED_BACK", "DUPLICATE_VALUE"]
    status, _ = await integration.call("GET", f"sobjects/{DOCUMENT}/RequestHash__c/new")
    assert status == 404
    assert (await integration.get(kept))["RequestHash__c"] == "kept"


def composite(all_or_none: bool, last: dict[str, object]) -> dict[str, Any]:
    path = f"{DATA}/sobjects/{DOCUMENT}"
    calls = [
        {"method": "POST", "url": path, "referenceId": "first", "body": document()},
        {
            "method": "PATCH",
            "url": f"{path}/@{{first.id}}",
            "referenceId": "second",
            "body": {"OutputFileId__c": "@{first.id}", "LockVersion__c": 1},
        },
        {"method": "POST", "url": path, "referenceId": "third", "body": last},
    ]
    return {"allOrNone": all_or_none, "compositeRequest": calls}


async def test_a_composite_call_refers_to_what_came_before(integration: User) -> None:
    status, body = await integration.call("POST", "composite", composite(True, document()))
    answers = {each["referenceId"]: each for each in body["compositeResponse"]}

    assert status == 200
    assert [each["httpStatusCode"] for each in answers.values()] == [201, 204, 201]
    made = answers["first"]["body"]["id"]
    assert answers["first"]["httpHeaders"]["Location"].endswith(made)
    assert (await integration.get(made))["OutputFileId__c"] == made


async def test_a_composite_call_is_undone_as_a_whole(integration: User) -> None:
    before = await count(integration)

    _, body = await integration.call("POST", "composite", composite(True, {}))

    replies = body["compositeResponse"]
    codes = [reply["body"][0]["errorCode"] for reply in replies]
    assert codes == ["PROCESSING_HALTED", "PROCESSING_HALTED", "REQUIRED_FIELD_MISSING"]
    assert await count(integration) == before


async def test_a_composite_call_may_fail_in_part(integration: User) -> None:
    before = await count(integration)
    calls = composite(False, {})
    broken = {"method": "GET", "url": f"{DATA}/sobjects/{DOCUMENT}/@{{third.id}}"}
    calls["compositeRequest"].append({**broken, "referenceId": "fourth"})

    _, body = await integration.call("POST", "composite", calls)

    statuses = [each["httpStatusCode"] for each in body["compositeResponse"]]
    assert statuses == [201, 204, 400, 400]
    assert body["compositeResponse"][3]["body"][0]["errorCode"] == "PROCESSING_HALTED"
    assert await count(integration) == before + 1


@pytest.mark.parametrize("refused", [{}, document(Status__c="LOST")])
async def test_a_batch_in_a_composite_call_is_undone_with_it(
    integration: User, refused: dict[str, object]
) -> None:
    before = await count(integration)
    batch = {"records": [document(), refused or document()]}
    calls = composite(True, {} if not refused else document())
    calls["compositeRequest"].insert(
        0,
        {
            "method": "POST",
            "url": f"{DATA}/composite/sobjects",
            "referenceId": "batch",
            "body": batch,
        },
    )

    _, body = await integration.call("POST", "composite", calls)

    assert len(body["compositeResponse"]) == 4
    assert await count(integration) == before


async def count(user: User) -> int:
    _, body = await user.call("GET", f"query?q=SELECT+COUNT()+FROM+{DOCUMENT}")
    return int(body["totalSize"])


async def test_more_than_200_records_are_too_many(integration: User) -> None:
    records = [document() for _ in range(201)]

    status, body = await integration.call("POST", "composite/sobjects", {"records": records})

    assert (status, body[0]["errorCode"]) == (400, "EXCEEDED_MAX_ENTITIES_LIMIT")


async def test_a_lost_answer_leaves_the_work_done(integration: User) -> None:
    before = await count(integration)
    await integration.switch("POST", {"method": "POST", "after": True})

    status, body = await integration.call("POST", f"sobjects/{DOCUMENT}", document())

    assert (status, body[0]["errorCode"]) == (503, "SERVER_UNAVAILABLE")
    assert await count(integration) == before + 1


async def test_a_locked_row_fails_alone(integration: User) -> None:
    await integration.switch("POST", {"rows": 1, "code": "UNABLE_TO_LOCK_ROW"})
    records = [document(), document()]

    _, results = await integration.call("POST", "composite/sobjects", {"records": records})

    assert [result["success"] for result in results] == [False, True]
    assert results[0]["errors"][0]["statusCode"] == "UNABLE_TO_LOCK_ROW"


async def test_a_held_call_waits_until_it_is_released(integration: User) -> None:
    await integration.switch("POST", {"hold": True, "method": "PATCH"})
    record_id = await integration.insert()
    patching = asyncio.ensure_future(integration.patch(record_id, LockVersion__c=1))

    async def waits() -> bool:
        return bool((await integration.switch("GET"))["waiting"])

    await wait_until(waits, "held")
    assert (await integration.get(record_id))["LockVersion__c"] == 0
    await integration.switch("DELETE")
    assert (await patching)[0] == 204


async def test_times_are_kept_in_whole_seconds(integration: User) -> None:
    record_id = await integration.insert(LockedUntil__c="2026-11-16T04:00:00.987+01:00")

    query = (
        f"SELECT LockedUntil__c FROM {DOCUMENT} "
        f"WHERE Id = '{record_id}' AND LockedUntil__c <= 2026-11-16T03:00:00Z"
    )
    _, found = await integration.call("GET", f"query?q={quote(query)}")

    assert [each["LockedUntil__c"] for each in found["records"]] == ["2026-11-16T03:00:00.000+0000"]
