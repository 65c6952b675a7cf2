"""The documents system: records become files in Salesforce, each of them once."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pypdf
import pytest

from holdfast import ConfigurationError, Holdfast, State
from holdfast_systems.documents.files import download, upload
from holdfast_systems.documents.salesforce.client import record_id_of
from holdfast_systems.documents.system import Documents
from tests.support.processes import Process, wait_until
from tests.systems.documents.bench import Bench

pytestmark = pytest.mark.heavy

LETTER = {
    "sender": {"name": "Harbour & Sons", "address": ["Quay 7", "20457 Hamburg"]},
    "recipient": {"name": "Ada King", "address": ["Road 1", "10115 Berlin"]},
    "date": "16 November 2026",
    "subject": "Your mooring",
    "salutation": "Dear Ada,",
    "paragraphs": ["the ropes #have arrived."],
    "closing": "Yours,",
}


@pytest.fixture
async def documents(bench: Bench) -> AsyncIterator[Documents]:
    documents = Documents(bench.url, poll_seconds=0.1, grace_seconds=0.0)
    async with documents.hf:
        yield documents


async def create(bench: Bench, data: dict[str, Any] | str = LETTER, **fields: object) -> UUID:
    text = data if isinstance(data, str) else json.dumps(data)
    return await bench.create(**{"Template__c": "letter", "Data__c": text, **fields})


def text_of(pdf: bytes) -> str:
    return "".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(pdf)).pages)


async def test_a_record_of_the_customers_own_becomes_a_file(
    bench: Bench, documents: Documents
) -> None:
    job_id = await create(bench, RequestHash__c="../../o'clock\n")
    await documents.hf.run_due()
    record = await bench.record(job_id)
    assert (record["Status__c"], record["Error__c"]) == ("SUCCEEDED", None)
    assert await documents.hf.result(job_id) == {"file_id": record["OutputFileId__c"]}
    pdf = await download(bench.customer, record["OutputFileId__c"])
    assert "the ropes #have arrived." in text_of(pdf)
    (file,) = await bench.files()
    assert file["RequestHash__c"] == record["RequestHash__c"]
    assert file["Title"] == f"letter-{record['Id']}"


async def test_the_same_request_gives_one_record_and_one_file(
    bench: Bench, documents: Documents
) -> None:
    for _ in range(2):
        keyed = documents.generate_document.options(idempotency_key="order-7")
        job = await keyed.enqueue("letter", LETTER)
        await documents.hf.run_due()
    assert (await bench.record(job.id))["Attempts__c"] == 1
    assert (await documents.hf.jobs.requeue(job.id)).id == job.id
    await documents.hf.run_due()
    assert (await documents.hf.get(job.id)).state is State.SUCCEEDED
    assert len(await bench.files()) == 1


async def test_retries_wait_1_5_and_15_minutes_and_the_fourth_failure_is_the_last(
    bench: Bench, documents: Documents
) -> None:
    job_id = await create(bench)
    await bench.fault(method="POST", path="sobjects/ContentVersion", times=4)
    waits = []
    for _ in range(4):
        begun = bench.customer.now()
        await documents.hf.run_due()
        record = await bench.record(job_id)
        if record["Status__c"] == "FAILED":
            break
        due = datetime.strptime(record["ScheduledAfter__c"], "%Y-%m-%dT%H:%M:%S.%f%z")
        waits.append((due - begun).total_seconds())
        assert record["Error__c"].startswith("SALESFORCE_UNAVAILABLE: ")
        await documents.hf.jobs.retry(job_id)
    assert [round(wait / 60) for wait in waits] == [1, 5, 15]
    assert (record["Status__c"], record["Attempts__c"]) == ("FAILED", 4)
    assert record["Error__c"].startswith("SALESFORCE_UNAVAILABLE (attempts used up): ")
    assert (await documents.hf.get(job_id)).state is State.DEAD
    assert await bench.files() == []


async def test_one_bad_record_harms_no_other(bench: Bench, documents: Documents) -> None:
    deep = "[" * 60_000 + "]" * 60_000
    bad = [
        (await create(bench, Template__c="../letter"), "RENDER_ERROR: ", "there is no template"),
        (await create(bench, {"subject": "alone"}), "RENDER_ERROR: ", "template 'letter'"),
        (
            await create(bench, {**LETTER, "subject": "a\u0378"}),
            "MISSING_GLYPHS: ",
            "no installed font has",
        ),
        (await create(bench, "no { JSON"), "BAD_ARGUMENTS: ", "argument data"),
        (await create(bench, deep), "BAD_ARGUMENTS: ", "argument data"),
    ]
    good = await create(bench)
    await documents.hf.run_due()
    for job_id, code, words in bad:
        record = await bench.record(job_id)
        assert (record["Status__c"], record["Attempts__c"]) == ("FAILED", 1)
        assert record["Error__c"].startswith(code)
        assert words in record["Error__c"]
        assert (await documents.hf.get(job_id)).state is State.FAILED
    assert (await bench.record(good))["Status__c"] == "SUCCEEDED"


async def test_what_salesforce_refuses_is_told_in_its_words(
    bench: Bench, documents: Documents
) -> None:
    job_id = await create(bench)
    await bench.fault(
        method="POST", path="sobjects/ContentVersion", status=400, code="STORAGE_LIMIT_EXCEEDED"
    )
    await documents.hf.run_due()
    record = await bench.record(job_id)
    assert (record["Status__c"], record["Attempts__c"]) == ("FAILED", 1)
    told = "STORAGE_LIMIT_EXCEEDED: Salesforce refused: a fault that was switched on"
    assert record["Error__c"] == told


async def test_an_upload_whose_answer_was_lost_is_found_again(
    bench: Bench, documents: Documents
) -> None:
    job_id = await create(bench)
    await bench.fault(method="POST", path="sobjects/ContentVersion", after=True)
    await documents.hf.run_due()
    assert (await documents.hf.get(job_id)).state is State.QUEUED
    (file,) = await bench.files()
    await documents.hf.jobs.retry(job_id)
    await documents.hf.run_due()
    assert (await documents.hf.result(job_id)) == {"file_id": file["Id"]}
    assert await bench.files() == [file]


async def test_a_late_worker_finds_the_file_of_the_one_in_its_place(bench: Bench) -> None:
    record_id = record_id_of(await bench.create()) or ""
    first = await upload(bench.customer, "one-hash", "letter.pdf", b"%PDF-1", record_id)
    again = await upload(bench.customer, "one-hash", "letter.pdf", b"%PDF-2", record_id)
    assert again == first
    assert await download(bench.customer, first) == b"%PDF-1"


async def test_an_end_whose_answer_was_lost_is_no_lost_lease(bench: Bench) -> None:
    async with Holdfast(bench.url, poll_seconds=0.1, grace_seconds=0.0) as hf:

        @hf.job(queue="documents")
        async def generate_document(
            template: str, data: dict[str, Any], request_hash: str = ""
        ) -> dict[str, str]:
            await bench.fault(method="PATCH", path="composite/sobjects", after=True)
            return {"file_id": "068000000000001AAA"}

        job_id = await create(bench)
        report = await hf.run_due()
        assert (report.succeeded, report.lost) == (1, 0)
        assert await hf.result(job_id) == {"file_id": "068000000000001AAA"}


async def test_a_crash_between_upload_and_status_makes_no_second_file(
    bench: Bench, documents: Documents, tmp_path: Path
) -> None:
    await bench.fault(method="POST", path="sobjects/ContentVersion", hold=True, after=True)
    job_id = await create(bench)
    command = ["-m", "holdfast.cli.main", "worker", "holdfast_systems.documents.app:hf"]
    environment = {"SALESFORCE_URL": bench.url, "HOLDFAST_LEASE_SECONDS": "1"}
    worker = Process("worker", command, tmp_path, environment)
    try:
        await bench.held(1)
    finally:
        worker.kill()
    await bench.switch("DELETE", "faults")
    assert (await bench.record(job_id))["Status__c"] == "PROCESSING"
    (file,) = await bench.files()
    store = await bench.store()
    await wait_until(lambda: store.reclaim(10), "taken back when the lock ran out")
    await documents.hf.run_due()
    record = await bench.record(job_id)
    assert (record["Status__c"], record["Attempts__c"]) == ("SUCCEEDED", 2)
    assert record["OutputFileId__c"] == file["Id"]
    assert await bench.files() == [file]


def test_a_system_without_an_address_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SALESFORCE_URL", raising=False)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "sqlite:///jobs.db")
    with pytest.raises(ConfigurationError, match="SALESFORCE_URL"):
        Documents()


def test_the_environment_wins_over_the_systems_own_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SALESFORCE_URL", "salesforce://id:secret@example.com")
    monkeypatch.setenv("HOLDFAST_MAX_ATTEMPTS", "3")
    settings = Documents().hf.settings
    assert (settings.lease_seconds, settings.reclaim_seconds) == (120, 2)
    assert (settings.concurrency, settings.max_attempts) == (8, 3)
    assert Documents().hf.url_shown == "salesforce://id:***@example.com"
