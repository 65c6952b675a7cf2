"""A browser for each test. Starting one takes less than a second."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from tests.browser.browsing import a_browser


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with a_browser() as browser:
        yield browser
