"""Visits of the dashboard's pages of jobs: an app whose jobs end in every way, and logged-in
browsers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

from holdfast import Holdfast, Permanent, Retry
from tests.support.dashboard import Browser, browsing
from tests.support.running import QUICK


def make_shop(store_url: str, **options: Any) -> Holdfast:
    """An app with jobs that succeed, fail, die and wait."""
    hf = Holdfast(store_url, **QUICK, **options)

    @hf.job(queue="mail", retry=Retry.none())
    async def send_mail(to: str, amount: float = 1.5) -> dict[str, Any]:
        if to == "nobody":
            raise TimeoutError("no answer within 2 s")
        return {"to": to, "amount": amount}

    @hf.job(queue="images", tags=("thumb",))
    async def resize(image: int) -> int:
        if image == 0:
            raise Permanent("image 0 is empty", code="EMPTY")
        return image

    return hf


async def enqueue(hf: Holdfast, name: str, /, *args: object, **options: Any) -> Any:
    function = hf._functions[name]
    return await (function.options(**options) if options else function).enqueue(*args)


@asynccontextmanager
async def visiting(hf: Holdfast, *scopes: str, tenant: str | None = None) -> AsyncIterator[Browser]:
    """Serve the dashboard; the block gets a browser that is logged in with these scopes."""
    key = await hf.keys.create("ann", scopes=scopes or ("read", "operate"), tenant=tenant)
    async with browsing(hf) as browser:
        await browser.log_in(key)
        yield browser


def rows_of(page: str) -> Sequence[str]:
    """The IDs of the jobs in the list, in order."""
    return re.findall(r'<tr id="job-([0-9a-f-]{36})"', page)


def words_of(page: str) -> str:
    """What the page says, without its markup."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def link_of(page: str, label: str) -> str:
    """Where the link with this label leads."""
    found = re.search(
        rf'<a [^>]*href="([^"]*)"[^>]*>(?:<svg(?:(?!</a>).)*</svg>)?\s*{label}', page, re.DOTALL
    )
    assert found is not None, f"no link {label!r}"
    return unescape(found[1])
