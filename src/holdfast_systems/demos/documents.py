"""Fifty invoices from records in Salesforce, by two workers, one of which is killed on the way.

The queue is a local Salesforce, so this demo doesn't use a database.
"""

from __future__ import annotations

import asyncio
import csv
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast_systems.demos.frame import Settings, Stage, Step, until
from holdfast_systems.demos.processes import Running
from holdfast_systems.documents.files import download
from holdfast_systems.documents.salesforce.client import Salesforce

DOCUMENTS_TARGET = "holdfast_systems.documents.app:hf"
RECORDS = 50
ALL = "SELECT Id, Status__c, Attempts__c, LockedBy__c, OutputFileId__c FROM Generated_Document__c"
SUCCEEDED = "SELECT COUNT() FROM Generated_Document__c WHERE Status__c = 'SUCCEEDED'"
FILES = "SELECT COUNT() FROM ContentVersion"


async def prepare(stage: Stage) -> Settings:
    """Start a local Salesforce, which a service shows beside the systems of its database."""
    service = await stage.start("salesforce", "holdfast_systems.documents.salesforce.local")
    return {"SALESFORCE_URL": _url(service.address)}


async def run(stage: Stage) -> None:
    with stage.step("start a local Salesforce and two workers") as step:
        if stage.shared is None:
            await prepare(stage)
        else:
            stage.services |= stage.shared.services
        address = stage.services["salesforce"].address
        workers = await _start_workers(stage, address)
        step.says(f"the queue is Salesforce at {address}, not a database")
    host = address.removeprefix("http://")
    async with Salesforce(f"salesforce+http://admin:admin-secret@{host}") as customer:
        with stage.step(f"the customer creates {RECORDS} records") as step:
            await customer.insert_all(
                "Generated_Document__c", [_record(number) for number in range(1, RECORDS + 1)]
            )
            step.says(f"{RECORDS} records QUEUED")
        with stage.step("both workers generate documents, 8 at a time; one is killed") as step:
            victim = await _victim(customer, workers)
            victim.kill()
            step.says(f"{victim.name} killed (SIGKILL) while its records were locked")
        with stage.step("the other worker takes over when the locks expire") as step:
            await until(lambda: customer.count(SUCCEEDED), lambda count: count == RECORDS)
            await _report(stage, customer, workers, step)
        with stage.step("download every document") as step:
            await _download_all(stage, customer, step)


def worker_settings(salesforce: str) -> Settings:
    """The settings of a worker on the Salesforce at this address, with short leases."""
    return {
        "SALESFORCE_URL": _url(salesforce),
        "HOLDFAST_LEASE_SECONDS": "2",
        "HOLDFAST_POLL_SECONDS": "0.3",
        "HOLDFAST_RECLAIM_SECONDS": "0.3",
    }


def _url(salesforce: str) -> str:
    host = salesforce.removeprefix("http://")
    return f"salesforce+http://integration:integration-secret@{host}"


async def _start_workers(stage: Stage, salesforce: str) -> list[Running]:
    environment = worker_settings(salesforce)
    workers = [
        await stage.worker(DOCUMENTS_TARGET, name=name, env=environment, concurrency=8)
        for name in ("worker-1", "worker-2")
    ]

    async def logs() -> list[bytes]:
        return [worker.log.read_bytes() for worker in workers]

    await until(logs, lambda found: all(b'"worker_started"' in log for log in found))
    return workers


async def _victim(customer: Salesforce, workers: list[Running]) -> Running:
    """Wait until both have done something; choose the one that has locked the most records."""

    async def done_by_worker() -> Counter[str]:
        return _by_worker(await customer.query(ALL), "SUCCEEDED")

    def is_half_done(done: Counter[str]) -> bool:
        return all(done[str(worker.pid)] > 3 for worker in workers) or done.total() > RECORDS / 2

    await until(done_by_worker, is_half_done)
    locked = _by_worker(await customer.query(ALL), "PROCESSING")
    return max(workers, key=lambda worker: locked[str(worker.pid)])


async def _report(stage: Stage, customer: Salesforce, workers: list[Running], step: Step) -> None:
    records = await customer.query(ALL)
    files = await customer.count(FILES)
    done = _by_worker(records, "SUCCEEDED")
    names = {str(worker.pid): worker.name for worker in workers}
    shares = ", ".join(f"{name}: {done[pid]}" for pid, name in names.items())
    again = sum(record["Attempts__c"] > 1 for record in records)
    step.says(f"{done.total()} SUCCEEDED, {files} files; {shares}; {again} took two attempts")
    step.expects(
        all(record["Status__c"] == "SUCCEEDED" for record in records), "every record SUCCEEDED"
    )
    step.expects(files == RECORDS, f"{RECORDS} files, not {files}")
    path = stage.out / "documents.csv"
    _write_table(path, records, names)
    stage.made(path, "every record with its worker, attempts and file")


async def _download_all(stage: Stage, customer: Salesforce, step: Step) -> None:
    folder = stage.out / "pdfs"
    folder.mkdir(exist_ok=True)
    records = await customer.query(ALL)
    size = 0
    for record in records:
        pdf = await download(customer, record["OutputFileId__c"])
        step.expects(pdf.startswith(b"%PDF-"), f"a PDF for {record['Id']}")
        size += len(pdf)
        await asyncio.to_thread((folder / f"{record['Id']}.pdf").write_bytes, pdf)
    step.says(f"{len(records)} PDFs, {size // 1024} KiB")
    stage.made(folder, f"{len(records)} invoices")


def _write_table(path: Path, records: list[dict[str, Any]], names: Mapping[str, str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["record", "status", "attempts", "worker", "file"])
        for record in records:
            worker = names.get(_pid(record), record["LockedBy__c"])
            attempts, file_id = int(record["Attempts__c"]), record["OutputFileId__c"]
            table.writerow([record["Id"], record["Status__c"], attempts, worker, file_id])


def _by_worker(records: list[dict[str, Any]], status: str) -> Counter[str]:
    return Counter(_pid(record) for record in records if record["Status__c"] == status)


def _pid(record: Mapping[str, Any]) -> str:
    """Find the process id in a worker's name: host, process id and token."""
    return str((record["LockedBy__c"] or "::").rsplit(":", 2)[1])


def record_data(number: int) -> dict[str, Any]:
    """The data of an invoice."""
    return {
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


def _record(number: int) -> dict[str, Any]:
    return {
        "Template__c": "invoice",
        "Data__c": msgspec.json.encode(record_data(number)).decode(),
        "Priority__c": number % 3,
    }
