from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.webhooks.receiving import Receiver, receiving
from tests.webhooks.shop import Shop


@pytest.fixture
async def shop(store_url: str) -> AsyncIterator[Shop]:
    async with Shop.open(store_url) as shop:
        yield shop


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver
