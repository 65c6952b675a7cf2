"""An organization, emptied before each test, and the store on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from holdfast_systems.documents.salesforce.client import Salesforce
from tests.systems.documents.bench import Bench
from tests.systems.documents.organization import local_salesforce


@pytest.fixture(scope="package")
def address() -> Iterator[str]:
    with local_salesforce() as made:
        yield made


@pytest.fixture
async def bench(address: str) -> AsyncIterator[Bench]:
    host = address.removeprefix("http://")
    async with AsyncExitStack() as stack:
        customer = Salesforce(f"salesforce+http://admin:admin-secret@{host}")
        bench = Bench(address, await stack.enter_async_context(customer), stack)
        await bench.switch("DELETE", "records")
        yield bench
        await bench.switch("DELETE", "faults")
