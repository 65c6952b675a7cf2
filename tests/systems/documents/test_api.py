"""The routes: documents while the caller waits, and batches with progress and cancelation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast_systems.documents.system import Documents
from tests.support.api import served
from tests.systems.documents.bench import Bench
from tests.systems.documents.organization import DOCUMENT
from tests.systems.documents.test_documents import LETTER, text_of

pytestmark = pytest.mark.heavy

WANTED: dict[str, Any] = {"template": "letter", "data": LETTER}


@pytest.fixture
async def documents(bench: Bench) -> Documents:
    return Documents(bench.url, poll_seconds=0.1, grace_seconds=0.0)


@pytest.fixture
async def http(documents: Documents) -> AsyncIterator[httpx.AsyncClient]:
    async with served(documents.hf) as client:
        yield client


async def test_post_documents_answers_with_the_document(
    bench: Bench, http: httpx.AsyncClient
) -> None:
    answer = await http.post("/documents", json={**WANTED, "correlation_id": "order-7"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/pdf")
    assert "the ropes #have arrived." in text_of(answer.content)
    shown = (await http.get(f"/documents/{answer.headers['document-id']}")).json()
    assert (shown["status"], shown["attempts"]) == ("SUCCEEDED", 1)
    assert (shown["correlation_id"], shown["error"]) == ("order-7", None)
    (file,) = await bench.files()
    assert file["Id"] == shown["output_file_id"] == answer.headers["output-file-id"]
    again = await http.get(f"/documents/{shown['id']}/file")
    assert again.content == answer.content


async def test_the_same_request_hash_is_one_document(bench: Bench, http: httpx.AsyncClient) -> None:
    wanted = {**WANTED, "request_hash": "order-7"}
    answers = await asyncio.gather(*[http.post("/documents", json=wanted) for _ in range(4)])
    answers.append(await http.post("/documents", json=wanted))
    assert {answer.status_code for answer in answers} <= {200, 409}
    done = [answer for answer in answers if answer.status_code == 200]
    assert len({answer.content for answer in done}) == 1
    assert answers[-1].status_code == 200
    assert len(await bench.files()) == 1
    other = await http.post("/documents", json={**wanted, "data": {}})
    assert (other.status_code, other.json()["type"]) == (422, "/v1/problems/idempotency-conflict")


async def test_what_can_not_be_rendered_is_refused_with_its_code(
    bench: Bench, http: httpx.AsyncClient
) -> None:
    answer = await http.post("/documents", json={"template": "none"})
    assert (answer.status_code, answer.json()["reason"]) == (422, "RENDER_ERROR")
    (record,) = await bench.customer.query(f"SELECT Status__c, Error__c FROM {DOCUMENT}")
    assert record["Status__c"] == "FAILED"
    assert record["Error__c"].startswith("RENDER_ERROR: ")


async def test_a_document_that_could_not_be_uploaded_is_left_to_the_workers(
    bench: Bench, http: httpx.AsyncClient
) -> None:
    fault = {"status": 503, "code": "SERVER_UNAVAILABLE", "path": "ContentVersion"}
    await bench.fault(times=9, **fault)
    answer = await http.post("/documents", json=WANTED)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")
    (record,) = await bench.customer.query(f"SELECT Status__c, Attempts__c FROM {DOCUMENT}")
    assert (record["Status__c"], record["Attempts__c"]) == ("QUEUED", 1)


async def test_a_queued_record_is_taken_from_the_queue_by_its_hash(
    bench: Bench, http: httpx.AsyncClient, documents: Documents
) -> None:
    keyed = documents.generate_document.options(idempotency_key="order-7")
    job = await keyed.enqueue("letter", LETTER)
    answer = await http.post("/documents", json={**WANTED, "request_hash": "order-7"})
    assert (answer.status_code, answer.headers["document-id"]) == (200, str(job.id))


async def test_a_batch_shows_its_progress(http: httpx.AsyncClient, documents: Documents) -> None:
    body = {"batch": "march", "documents": [WANTED] * 3 + [{"template": "none"}]}
    created = await http.post("/documents/batches", json=body)
    assert created.status_code == 202
    again = await http.post("/documents/batches", json=body)
    assert again.json() == created.json()
    before = (await http.get("/documents/batches/march")).json()
    assert (before["total"], before["ended"], before["statuses"]["QUEUED"]) == (4, 0, 4)
    await documents.hf.run_due()
    after = (await http.get("/documents/batches/march")).json()
    assert (after["total"], after["ended"]) == (4, 4)
    assert (after["statuses"]["SUCCEEDED"], after["statuses"]["FAILED"]) == (3, 1)
    assert (await http.get("/documents/batches/april")).status_code == 404


async def test_a_batch_is_canceled(http: httpx.AsyncClient) -> None:
    body = {"batch": "march", "documents": [WANTED] * 203}
    assert (await http.post("/documents/batches", json=body)).status_code == 202
    canceled = await http.post("/documents/batches/march/cancel")
    assert canceled.json() == {"batch": "march", "canceled": 203}
    shown = (await http.get("/documents/batches/march")).json()
    assert shown["statuses"]["CANCELED"] == 203


async def test_keys_of_another_service_guard_the_routes(bench: Bench, tmp_path: Path) -> None:
    service = Holdfast(f"sqlite:///{tmp_path}/service.db")
    documents = Documents(bench.url)
    documents.add_routes(service)
    await service.migrate()
    ours = await service.keys.create("ours", scopes=["enqueue"], tenant="default")
    other = await service.keys.create("other", scopes=["enqueue"], tenant="another")
    statuses = []
    async with documents.hf, served(service) as client:
        for key in (ours.key, other.key, "hfk_none"):
            headers = {"authorization": f"Bearer {key}"}
            answer = await client.post("/documents", json=WANTED, headers=headers)
            statuses.append(answer.status_code)
    assert statuses == [200, 403, 401]


async def test_rendering_processes_see_no_secrets(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SALESFORCE_URL", "salesforce://id:secret@example.com")
    assert (await http.post("/documents", json=WANTED)).status_code == 200
    (names,) = environments("documents.rendering.child")
    assert names == {"PATH", "PYTHONPATH"}


def environments(command: str) -> list[set[str]]:
    """The names of the variables of each child of this process that runs this command."""
    children = [
        process_id
        for task in Path("/proc/self/task").iterdir()
        for process_id in (task / "children").read_text(encoding="utf-8").split()
    ]
    found = []
    for process_id in children:
        if command in Path(f"/proc/{process_id}/cmdline").read_text(encoding="utf-8"):
            variables = Path(f"/proc/{process_id}/environ").read_text(encoding="utf-8")
            found.append({each.partition("=")[0] for each in variables.split("\0") if each})
    return found
