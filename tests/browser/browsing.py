"""A real browser: the system's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

from playwright.async_api import Browser, ConsoleMessage, Error, Page, async_playwright

from tests.support.running import WAIT_SECONDS_MAX
from tests.support.services import missing

Scheme = Literal["light", "dark"]

DESKTOP: Final = (1280, 900)
PHONE: Final = (360, 740)
AXE: Final = Path(__file__).parents[2] / ".cache/axe/node_modules/axe-core/axe.min.js"
ARGUMENTS: Final = (
    "--no-sandbox",  # a test may run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# A page that shows a problem on purpose is one line in the console.
EXPECTED: Final = "Failed to load resource: the server responded with a status of"


@asynccontextmanager
async def a_browser() -> AsyncIterator[Browser]:
    program = shutil.which("chromium") or missing("Chromium is not installed")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=[*ARGUMENTS])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def a_page(
    browser: Browser,
    url: str,
    *,
    size: tuple[int, int] = DESKTOP,
    scheme: Scheme = "light",
    **options: Any,
) -> AsyncIterator[Page]:
    """Open a page in a window of its own. It fails at the end if the console shows an error."""
    context = await browser.new_context(
        base_url=url,
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        reduced_motion="reduce",
        **options,
    )
    context.set_default_timeout(WAIT_SECONDS_MAX * 1000)
    errors: list[str] = []
    page = await context.new_page()
    page.on("console", lambda message: _note(errors, message))
    page.on("pageerror", lambda error: errors.append(_text(error)))
    try:
        yield page
    finally:
        await context.close()
    assert errors == []


def _note(errors: list[str], message: ConsoleMessage) -> None:
    if message.type in ("error", "warning") and not message.text.startswith(EXPECTED):
        errors.append(message.text)


def _text(error: Error) -> str:
    return f"{error.name}: {error.message}"


async def violations(page: Page) -> list[str]:
    """What axe-core finds on the page: each rule, and where it is broken."""
    if not AXE.exists():
        missing("axe-core is not installed; run: scripts/services")
    await page.evaluate(AXE.read_text(encoding="utf-8"))
    found = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


async def is_scrolled_sideways(page: Page) -> bool:
    """Whether the page is wider than its window."""
    wide: bool = await page.evaluate(
        "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    )
    return wide
