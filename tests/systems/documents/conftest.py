"""An organisation that is empty for each test, and the store on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from holdfast.salesforce import Salesforce
from tests.systems.documents.bench import Bench
from tests.systems.documents.organisation import local_salesforce


@pytest.fixture(scope="package")
def shared_address() -> Iterator[str]:
    with local_salesforce() as address:
        yield address


@pytest.fixture
async def bench(shared_address: str) -> AsyncIterator[Bench]:
    host = shared_address.removeprefix("http://")
    async with AsyncExitStack() as stack:
        customer = Salesforce(f"salesforce+http://admin:admin-secret@{host}")
        bench = Bench(shared_address, await stack.enter_async_context(customer), stack)
        await bench.clear()
        yield bench
        await bench.switch("DELETE", "faults")
