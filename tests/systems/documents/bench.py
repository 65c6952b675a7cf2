"""One organization for tests: the customer's side, the store's side, the switches."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import msgspec

from holdfast.domain.ids import IdMaker
from holdfast.domain.job import Claimed, NewJob, Settlement
from holdfast.domain.states import State
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Claim
from holdfast_systems.documents.salesforce.client import (
    Salesforce,
    bind,
    job_id_of,
    record_id_of,
)
from holdfast_systems.documents.salesforce.store import SalesforceStore
from tests.support.processes import wait_until
from tests.systems.documents.organization import DOCUMENT, switch

ATTEMPTS_MAX = 4
LEASE_SECONDS = 30.0
FIELDS = (
    "Id, Status__c, Attempts__c, LockVersion__c, Fence__c, LockedUntil__c, LockedBy__c, Error__c,"
    " ScheduledAfter__c, OutputFileId__c, RequestHash__c, CorrelationId__c, Priority__c, Data__c,"
    " Template__c, Releases__c, Snoozes__c, Crashes__c"
)
_seam = Seam()
_ids = IdMaker(_seam.random)


class Bench:
    def __init__(self, address: str, customer: Salesforce, stack: AsyncExitStack) -> None:
        self.address = address
        self.host = address.removeprefix("http://")
        self.url = f"salesforce+http://integration:integration-secret@{self.host}"
        self.customer = customer
        self._stack = stack

    async def store(self) -> SalesforceStore:
        """Open one more instance of the store, as another process would."""
        store = SalesforceStore(self.url, Seam(), max_attempts=ATTEMPTS_MAX)
        self._stack.push_async_callback(store.close)
        await store.open()
        return store

    async def switch(self, method: str, name: str, body: dict[str, Any] | None = None) -> Any:
        return await asyncio.to_thread(switch, self.address, method, name, body)

    async def fault(self, **fault: object) -> None:
        await self.switch("POST", "faults", fault)

    async def held(self, calls: int) -> None:
        """Wait until this many calls are on hold."""

        async def waiting() -> bool:
            return bool((await self.switch("GET", "faults"))["waiting"] == calls)

        await wait_until(waiting, f"{calls} calls on hold")

    async def create(self, **fields: object) -> UUID:
        """Create a record as the customer does, in Salesforce."""
        record = {"Template__c": "invoice", "Data__c": "{}", **fields}
        return job_id_of(await self.customer.insert(DOCUMENT, record))

    async def record(self, job_id: UUID) -> dict[str, Any]:
        query = bind(
            f"SELECT {FIELDS} FROM {DOCUMENT} WHERE Id = :id", {"id": record_id_of(job_id)}
        )
        (record,) = await self.customer.query(query)
        del record["attributes"]
        return record

    async def files(self) -> list[dict[str, Any]]:
        return await self.customer.query("SELECT Id, RequestHash__c, Title FROM ContentVersion")


def new_job(**changes: Any) -> NewJob:
    job = NewJob(
        id=_ids.make(int(_seam.now().timestamp() * 1000)),
        name="generate_document",
        queue="documents",
        arguments=b'{"template":"invoice","data":{"a":1}}',
    )
    return msgspec.structs.replace(job, **changes)


async def claim(
    store: SalesforceStore,
    limit: int = 100,
    worker: str = "worker",
    lease_seconds: float = LEASE_SECONDS,
) -> list[Claimed]:
    request = Claim(
        worker=worker, limit=limit, lease_seconds=lease_seconds, names=["generate_document"]
    )
    return list(await store.claim(request))


async def claim_one(store: SalesforceStore, bench: Bench, **fields: object) -> Claimed:
    job_id = await bench.create(**fields)
    claimed = await store.claim_by_id(job_id, "worker", LEASE_SECONDS)
    assert claimed is not None
    return claimed


def settlement(job: Claimed, state: State, **changes: Any) -> Settlement:
    return Settlement(job_id=job.id, fence=job.fence, state=state, **changes)


def success(job: Claimed) -> Settlement:
    return settlement(job, State.SUCCEEDED, result=b'{"file_id":"068000000000001AAA"}')
