"""Fifty invoices from records in Salesforce, by two workers, one of which is killed on the way.

The queue is Salesforce itself (a local one is started), so the database that a demonstration is
given has nothing to do here.
"""

from __future__ import annotations

import asyncio
import csv
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast_systems.demos.frame import Stage, Step
from holdfast_systems.demos.processes import Running
from holdfast_systems.documents.files import download
from holdfast_systems.documents.salesforce.client import Salesforce

RECORDS = 50
SECONDS_MAX = 30.0
LOOK_SECONDS = 0.05
ALL = "SELECT Id, Status__c, Attempts__c, LockedBy__c, OutputFileId__c FROM Generated_Document__c"
SUCCEEDED = "SELECT COUNT() FROM Generated_Document__c WHERE Status__c = 'SUCCEEDED'"
FILES = "SELECT COUNT() FROM ContentVersion"


async def run(stage: Stage) -> None:
    with stage.step("start a local Salesforce, and two workers on it") as step:
        service = await stage.start("salesforce", "holdfast_systems.documents.salesforce.local")
        host = service.address.removeprefix("http://")
        workers = await _start_workers(stage, host)
        step.says(f"the queue is Salesforce, at {service.address}: no database is used")
    async with Salesforce(f"salesforce+http://admin:admin-secret@{host}") as customer:
        with stage.step(f"the customer creates {RECORDS} records") as step:
            await customer.insert_all(
                "Generated_Document__c", [_record(number) for number in range(1, RECORDS + 1)]
            )
            step.says(f"{RECORDS} records are QUEUED")
        with stage.step("both workers generate, 8 at a time each; one is killed") as step:
            victim = await _victim(customer, workers)
            victim.kill()
            step.says(f"{victim.name} is gone (SIGKILL), with the locks that it held")
        with stage.step("the other one takes over when the locks have run out") as step:
            await _wait_for_all(customer)
            await _tell_work(stage, customer, workers, step)
        with stage.step("download every document") as step:
            await _download_all(stage, customer, step)


async def _start_workers(stage: Stage, host: str) -> list[Running]:
    environment = {
        "SALESFORCE_URL": f"salesforce+http://integration:integration-secret@{host}",
        "HOLDFAST_LEASE_SECONDS": "2",
        "HOLDFAST_POLL_SECONDS": "0.3",
        "HOLDFAST_RECLAIM_SECONDS": "0.3",
    }
    workers = [
        await stage.worker(
            "holdfast_systems.documents.app:hf", name=name, env=environment, concurrency=8
        )
        for name in ("worker-1", "worker-2")
    ]

    async def booted() -> bool:
        return all(b'"boot"' in worker.log.read_bytes() for worker in workers)

    await _wait(booted)
    return workers


async def _victim(customer: Salesforce, workers: list[Running]) -> Running:
    """Wait until both have done something; choose the one that holds the most records."""

    async def both_worked() -> bool:
        done = _by_worker(await customer.query(ALL), "SUCCEEDED")
        return all(done[str(worker.pid)] > 3 for worker in workers) or done.total() > RECORDS / 2

    await _wait(both_worked)
    held = _by_worker(await customer.query(ALL), "PROCESSING")
    return max(workers, key=lambda worker: held[str(worker.pid)])


async def _wait_for_all(customer: Salesforce) -> None:
    async def all_succeeded() -> bool:
        return await customer.count(SUCCEEDED) == RECORDS

    await _wait(all_succeeded)


async def _wait(condition: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again: what is waited for happens in other processes."""
    async with asyncio.timeout(SECONDS_MAX):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)


async def _tell_work(
    stage: Stage, customer: Salesforce, workers: list[Running], step: Step
) -> None:
    records = await customer.query(ALL)
    files = await customer.count(FILES)
    done = _by_worker(records, "SUCCEEDED")
    names = {str(worker.pid): worker.name for worker in workers}
    shares = ", ".join(f"{name}: {done[pid]}" for pid, name in names.items())
    again = sum(record["Attempts__c"] > 1 for record in records)
    step.says(f"{done.total()} SUCCEEDED, {files} files; {shares}; {again} of them started twice")
    step.expects(
        all(record["Status__c"] == "SUCCEEDED" for record in records), "every record is SUCCEEDED"
    )
    step.expects(files == RECORDS, f"{RECORDS} files, not {files}: none twice, none missing")
    path = stage.out / "documents.csv"
    _write_table(path, records, names)
    stage.made(path, "every record: its worker, attempts and file")


async def _download_all(stage: Stage, customer: Salesforce, step: Step) -> None:
    folder = stage.out / "pdfs"
    folder.mkdir(exist_ok=True)
    records = await customer.query(ALL)
    size = 0
    for record in records:
        pdf = await download(customer, record["OutputFileId__c"])
        step.expects(pdf.startswith(b"%PDF-"), f"{record['Id']} has a PDF")
        size += len(pdf)
        await asyncio.to_thread((folder / f"{record['Id']}.pdf").write_bytes, pdf)
    step.says(f"{len(records)} PDFs, {size // 1024} KiB")
    stage.made(folder, f"{len(records)} invoices")


def _write_table(path: Path, records: list[dict[str, Any]], names: Mapping[str, str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["record", "status", "attempts", "worker", "file"])
        for record in records:
            table.writerow(
                [
                    record["Id"],
                    record["Status__c"],
                    int(record["Attempts__c"]),
                    names.get(_pid(record), record["LockedBy__c"]),
                    record["OutputFileId__c"],
                ]
            )


def _by_worker(records: list[dict[str, Any]], status: str) -> Counter[str]:
    return Counter(_pid(record) for record in records if record["Status__c"] == status)


def _pid(record: Mapping[str, Any]) -> str:
    """A worker's name is its host, its process id and a token."""
    parts = (record["LockedBy__c"] or "::").rsplit(":", 2)
    return parts[1]


def _record(number: int) -> dict[str, Any]:
    data = {
        "number": f"2026-{number:04}",
        "date": "16 November 2026",
        "due": "16 December 2026",
        "currency": "EUR",
        "tax_percent": 19,
        "seller": {
            "name": "Harbour & Sons",
            "address": ["Quay 7", "20457 Hamburg"],
            "iban": "DE02 1203 0000 0000 2020 51",
        },
        "customer": {"name": f"Customer {number}", "address": [f"Road {number}", "10115 Berlin"]},
        "items": [
            {
                "description": "Rope, 10 mm, per meter",
                "quantity": 10 * number,
                "unit_price": "1.85",
            },
            {"description": "Shackle, stainless", "quantity": number, "unit_price": "12.40"},
        ],
        "note": "Thank you for your order.",
    }
    return {
        "Template__c": "invoice",
        "Data__c": msgspec.json.encode(data).decode(),
        "Priority__c": number % 3,
    }
