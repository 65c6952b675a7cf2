"""An import shows its progress, and stops when the user says so."""

from __future__ import annotations

import asyncio
import json

import httpx

from holdfast.testing import Sandbox


async def test_the_progress_of_an_import_reaches_the_browser(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    lines = "\n".join(f"Book {number},9.00,1" for number in range(3))
    job = (await client.post("/books/imports", content=lines)).json()["job"]
    watching = asyncio.create_task(client.get(f"/books/jobs/{job}/events"))
    await sandbox.drain(raise_errors=True)
    answer = await watching
    assert answer.headers["content-type"].startswith("text/event-stream")
    seen = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert seen[-1]["state"] == "succeeded"
    assert seen[-1]["progress"] == {"done": 3, "of": 3}


async def test_an_import_that_is_canceled_from_the_page_stops_between_two_lines(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    lines = "\n".join(f"Book {number},9.00,1" for number in range(2000))
    job = (await client.post("/books/imports", content=lines)).json()["job"]
    draining = asyncio.create_task(sandbox.drain())
    while not (await client.get(f"/books/jobs/{job}")).json()["progress"]:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert (await client.post(f"/books/jobs/{job}/cancel")).json()["state"] == "canceled"
    await draining
    products = (await client.get("/books/products")).json()
    assert 1 <= len(products) < 2000
    again = await client.post(f"/books/jobs/{job}/cancel")
    assert (again.status_code, "already ended" in again.json()["detail"]) == (409, True)
