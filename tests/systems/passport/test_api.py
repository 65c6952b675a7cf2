"""The routes: from an upload to a label over HTTP, for one tenant, with keys and scopes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from holdfast_systems.passport import verify
from holdfast_systems.passport.files import PAYLOAD, PICTURE, RECEIPT, read_files
from holdfast_systems.passport.limits import RULES_BYTES_MAX
from tests.promises.stage import both_stores
from tests.support.api import served
from tests.systems.passport.line import Line, on_sqlite
from tests.systems.passport.samples import DOCUMENT, ORDER, SOURCE, TENANT, sample_keys

pytestmark = pytest.mark.heavy

ROLES = {"all": ["read", "enqueue"], "reader": ["read"], "writer": ["enqueue"]}


@dataclass
class Client:
    line: Line
    http: httpx.AsyncClient
    keys: dict[str, str]

    async def call(
        self, method: str, path: str, *, key: str = "all", **options: Any
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.keys[key]}", **options.pop("headers", {})}
        return await self.http.request(method, f"/passport{path}", headers=headers, **options)

    async def post(self, path: str, status: int, **options: Any) -> Any:
        answer = await self.call("POST", path, **options)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def get(self, path: str, status: int = 200, **options: Any) -> Any:
        answer = await self.call("GET", path, **options)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def snapshot(self, *, sealed: bool = False) -> str:
        snapshot = await self.post("/snapshots", 201, json={})
        await self.post(
            f"/snapshots/{snapshot['id']}/documents?name=bom.csv", 202, content=DOCUMENT
        )
        await self.line.run()
        if sealed:
            await self.post(f"/snapshots/{snapshot['id']}/seal", 200)
        return str(snapshot["id"])

    async def rules(self, source: bytes = SOURCE) -> str:
        return str((await self.post("/rules", 201, content=source))["id"])

    async def order(self) -> dict[str, str]:
        """What to compile: a sealed snapshot and published rules."""
        rules_id = await self.rules()
        await self.post(f"/rules/{rules_id}/publish", 200)
        return {
            "passport_id": str(ORDER.passport_id),
            "snapshot_id": await self.snapshot(sealed=True),
            "rules_id": rules_id,
            "build_id": "build-7",
            "issued_at": "2026-11-16T03:00:00Z",
        }


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Client]:
    line = Line(url)
    await line.hf.migrate()
    async with served(line.hf) as http:
        made = {
            name: (await line.hf.keys.create(name, scopes=scopes, tenant=TENANT)).key
            for name, scopes in ROLES.items()
        }
        other = await line.hf.keys.create("other", scopes=["read", "enqueue"], tenant="another")
        yield Client(line, http, {**made, "stranger": other.key})


@pytest.fixture
async def client(store_url: str) -> AsyncIterator[Client]:
    async with opened(store_url) as client:
        yield client


@both_stores
async def test_a_passport_is_issued_and_fetched_over_http(client: Client, tmp_path: Any) -> None:
    order = await client.order()
    ordered = await client.post("/versions", 202, json=order)
    await client.line.run()
    version = f"/versions/{ordered['passport_version_id']}"
    shown = await client.get(version)
    assert (shown["build_id"], shown["key_id"], shown["has_qr"]) == ("build-7", "key-1", True)
    for name, path in ((PAYLOAD, PAYLOAD), (RECEIPT, f"{RECEIPT}?all_facts=1"), (PICTURE, PICTURE)):
        answer = await client.call("GET", f"{version}/{path}")
        assert answer.status_code == 200, answer.text
        (tmp_path / name).write_bytes(answer.content)
    found = verify(read_files(tmp_path), sample_keys().public_keys())
    assert (found.problems, found.unchecked) == ((), ())
    assert {"fact CELL-1", "fact CASE-1", "fact PLATE-1", "QR picture"} <= set(found.held)
    label = await client.call("GET", f"{version}/label.pdf")
    assert label.content.startswith(b"%PDF")
    assert label.headers["content-type"] == "application/pdf"
    events = (await client.get(f"/audit/{shown['id']}"))["events"]
    assert [event["event_type"] for event in events][:2] == ["PASSPORT_COMPILED", "PASSPORT_SIGNED"]
    assert await client.get(f"{version}/deliveries") == {"deliveries": []}
    job = await client.get(f"/jobs/{ordered['job_id']}")
    assert (job["type"], job["status"], job["priority"]) == ("COMPILE_PASSPORT", "SUCCEEDED", 1)
    assert job["payload"]["build_id"] == "build-7"


@both_stores
async def test_lists_have_pages_with_the_newest_first(client: Client) -> None:
    made = [(await client.post("/snapshots", 201, json={}))["id"] for _ in range(3)]
    first = (await client.get("/snapshots?limit=2"))["snapshots"]
    assert [each["id"] for each in first] == [made[2], made[1]]
    rest = (await client.get(f"/snapshots?after={made[1]}"))["snapshots"]
    assert [each["id"] for each in rest] == [made[0]]
    drafts = [await client.rules(SOURCE.replace(b"label", name)) for name in (b"one", b"two")]
    rules = (await client.get("/rules"))["rules"]
    assert [(each["id"], each["status"]) for each in rules] == [
        (drafts[1], "DRAFT"),
        (drafts[0], "DRAFT"),
    ]
    order = await client.order()
    for build in ("1", "2"):
        await client.post("/versions", 202, json={**order, "build_id": build})
        await client.line.run()
    versions = (await client.get("/versions?limit=1"))["versions"]
    assert [each["build_id"] for each in versions] == ["2"]
    own = f"passport_id={order['passport_id']}"
    rest = (await client.get(f"/versions?{own}&after={versions[0]['id']}"))["versions"]
    assert [each["build_id"] for each in rest] == ["1"]
    assert await client.get(f"/versions?passport_id={uuid4()}") == {"versions": []}
    jobs = (await client.get("/jobs?limit=100"))["jobs"]
    assert {"PARSE_FACTS", "COMPILE_PASSPORT", "SIGN_PASSPORT"} <= {each["type"] for each in jobs}
    assert [each["job_id"] for each in jobs] == sorted(each["job_id"] for each in jobs)[::-1]


@both_stores
async def test_a_malformed_payload_is_a_validation_error_everywhere(client: Client) -> None:
    body = {"name": "COMPILE_PASSPORT", "arguments": {"payload": {"snapshot_id": 17}}}
    headers = {"authorization": f"Bearer {client.keys['all']}"}
    answer = await client.http.post("/v1/jobs", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    job_id = answer.json()["id"]
    await client.line.run()
    shown = await client.get(f"/jobs/{job_id}")
    assert (shown["status"], shown["attempts"]) == ("FAILED", 1)
    error = shown["last_error"]
    assert error["code"] == "VALIDATION_ERROR"
    assert error["text"].startswith("malformed payload: ")
    engine = await client.http.get(f"/v1/jobs/{job_id}", headers=headers)
    assert engine.json()["error_code"] == "VALIDATION_ERROR"
    (event,) = (await client.get(f"/audit/{job_id}"))["events"]
    assert (event["event_type"], event["payload"]["code"]) == ("STEP_FAILED", "VALIDATION_ERROR")


@both_stores
async def test_a_version_whose_key_was_missing_is_signed_later(client: Client) -> None:
    order = await client.order()
    client.line.keys = OSError("no disk")
    ordered = await client.post("/versions", 202, json=order)
    await client.line.run()
    version = f"/versions/{ordered['passport_version_id']}"
    assert (await client.get(version))["signed_at"] is None
    refused = await client.get(f"{version}/qr.png", 422)
    assert refused["reason"] == "VALIDATION_ERROR"
    client.line.keys = sample_keys()
    await client.post(f"{version}/sign", 202)
    await client.line.run()
    assert (await client.get(version))["key_id"] == "key-1"


@on_sqlite
async def test_a_refusal_has_the_code_of_this_system(client: Client) -> None:
    open_id = str((await client.post("/snapshots", 201, json={}))["id"])
    documents = f"/snapshots/{open_id}/documents"
    unknown = uuid4()
    await client.post(f"{documents}?name=a.csv", 202, content=b"not,parsed,yet")
    wrong = await client.rules(SOURCE.replace(b"mass_kg > 0", b"mass_kg + 1"))
    refusals: list[tuple[str, dict[str, Any], int, str]] = [
        (f"/snapshots/{open_id}/seal", {}, 409, "SNAPSHOT_NOT_READY"),
        (f"/snapshots/{unknown}/seal", {}, 404, "VALIDATION_ERROR"),
        (f"/rules/{wrong}/publish", {}, 422, "RULE_TYPE_ERROR"),
        (f"/rules/{unknown}/publish", {}, 404, "VALIDATION_ERROR"),
        (f"/versions/{unknown}/sign", {}, 404, "VALIDATION_ERROR"),
        (f"{documents}?name=a", {"content": b""}, 422, "VALIDATION_ERROR"),
        (f"{documents}?name=a&schema_version=x", {"content": b"a"}, 422, "VALIDATION_ERROR"),
        (f"{documents}?name=%0A", {"content": b"a"}, 422, "VALIDATION_ERROR"),
        ("/rules", {"content": b"{"}, 422, "VALIDATION_ERROR"),
    ]
    for path, options, status, reason in refusals:
        answer = await client.post(path, status, **options)
        assert answer["reason"] == reason, path
    answer = await client.post("/rules", 413, content=bytes(RULES_BYTES_MAX + 1))
    assert answer["code"] == "too-large"
    for path, body in (
        ("/versions", {}),
        ("/versions", {**ORDER_BODY, "issued_at": "2026-11-16T03:00:00"}),
        ("/snapshots", {"id": "x"}),
        (documents, {}),
    ):
        assert (await client.post(path, 400, json=body))["code"] == "bad-request"
    for path in ("/snapshots?limit=0", "/jobs?limit=101", "/versions/x"):
        assert (await client.get(path, 400))["code"] == "bad-request"
    for path in ("snapshots", "rules", "versions", "jobs"):
        assert (await client.get(f"/{path}/{unknown}", 404))["code"] == "not-found"


ORDER_BODY = {
    "passport_id": str(ORDER.passport_id),
    "snapshot_id": str(ORDER.snapshot_id),
    "rules_id": str(ORDER.rules_id),
    "build_id": "x",
}


@both_stores
async def test_another_tenant_finds_nothing(client: Client) -> None:
    order = await client.order()
    ordered = await client.post("/versions", 202, json=order)
    await client.line.run()
    version = f"/versions/{ordered['passport_version_id']}"
    files = ("passport.json", "receipt.json", "qr.png", "label.pdf")
    paths = [
        f"/snapshots/{order['snapshot_id']}",
        f"/rules/{order['rules_id']}",
        f"/jobs/{ordered['job_id']}",
        *(version + rest for rest in ("", *(f"/{name}" for name in files))),
    ]
    for path in paths:
        assert (await client.call("GET", path)).status_code == 200, path
        await client.get(path, 404, key="stranger")
    for path in (f"/snapshots/{order['snapshot_id']}/seal", f"{version}/sign"):
        await client.post(path, 404, key="stranger")
    for name in ("snapshots", "rules", "versions", "jobs"):
        assert await client.get(f"/{name}", key="stranger") == {name: []}
    assert await client.get(f"/audit/{version.split('/')[-1]}", key="stranger") == {"events": []}


@on_sqlite
async def test_every_route_needs_a_key_with_its_scope(client: Client) -> None:
    routes = [
        (method.upper(), path.removeprefix("/passport"))
        for path, methods in (await client.http.get("/openapi.json")).json()["paths"].items()
        if path.startswith("/passport")
        for method in methods
        if method in ("get", "post")
    ]
    assert len(routes) == 21
    for method, path in routes:
        for name in ("snapshot_id", "rules_id", "version_id", "job_id", "aggregate_id"):
            path = path.replace(f"{{{name}}}", str(UUID(int=0)))
        key = "writer" if method == "GET" else "reader"
        denied = await client.call(method, path, key=key)
        assert denied.status_code == 403, (method, path)
        nobody = await client.http.request(method, f"/passport{path}")
        assert nobody.status_code == 401, (method, path)


@on_sqlite
async def test_who_did_it_is_in_the_audit_log(client: Client) -> None:
    snapshot_id = await client.snapshot(sealed=True)
    events = (await client.get(f"/audit/{snapshot_id}"))["events"]
    told = {event["event_type"]: event["payload"]["by"] for event in events}
    assert told == {"SNAPSHOT_OPENED": "all", "SNAPSHOT_SEALED": "all"}
    rows = await client.line.rows("passport_audit_events")
    assert {json.loads(row["payload"])["by"] for row in rows if row["job_id"] is None} == {"all"}
