"""A browser for each test, and the stage that it visits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from tests.browser.browsing import a_browser, a_page
from tests.browser.stage import Stage, on_stage


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with a_browser() as browser:
        yield browser


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with on_stage(f"sqlite:///{tmp_path / 'jobs.db'}") as stage:
        yield stage


@pytest.fixture
async def page(browser: Browser, stage: Stage) -> AsyncIterator[Page]:
    """A window of a desktop, in which nothing is open yet."""
    async with a_page(browser, stage.url) as page:
        yield page
