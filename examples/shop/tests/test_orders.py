"""An order is paid once and confirmed, or it is declined and its goods go back."""

from __future__ import annotations

from typing import Any

import httpx
from sqlalchemy import select

from holdfast import State
from holdfast.testing import Sandbox
from shop import database, jobs, provider
from shop.database import Audit, Product
from shop.jobs import charge, hf, send_receipt

GOOD, DECLINED, FAILS_ONCE = "4242424242424242", "4000000000000002", "4000000000000500"


async def stock(client: httpx.AsyncClient, shop: str = "books") -> int:
    (product,) = (await client.get(f"/{shop}/products")).json()
    return int(product["stock"])


async def fill(sandbox: Sandbox, client: httpx.AsyncClient, shop: str = "books") -> None:
    await client.post(f"/{shop}/imports", content="Fences,8.90,25")
    await sandbox.drain(raise_errors=True)


async def place(client: httpx.AsyncClient, card: str, quantity: int = 2) -> dict[str, Any]:
    order = {"product": "Fences", "quantity": quantity, "email": "ann@example.com", "card": card}
    answer = await client.post("/books/orders", json=order)
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_an_order_is_charged_and_confirmed(
    sandbox: Sandbox, client: httpx.AsyncClient, charges: dict[str, provider.Charge]
) -> None:
    await fill(sandbox, client)
    placed = await place(client, GOOD)
    await sandbox.drain(raise_errors=True)
    order = (await client.get(f"/books/orders/{placed['order']}")).json()
    assert order == {"state": "paid", "charge": "ch_1"}
    assert charges[placed["order"]].amount == "17.80"
    receipt = (jobs.OUTBOX / f"{placed['order']}.txt").read_text()
    assert "books charged 17.80 (ch_1)" in receipt
    assert await stock(client) == 23


async def test_nothing_is_charged_twice_if_the_worker_dies_before_its_commit(
    sandbox: Sandbox, client: httpx.AsyncClient, charges: dict[str, provider.Charge]
) -> None:
    await fill(sandbox, client)
    sandbox.crash_before_commit(charge)
    sandbox.crash_before_commit(send_receipt)
    placed = await place(client, GOOD)
    await sandbox.drain(with_delayed=True, raise_errors=True)
    assert provider.asked == [placed["order"]] * 2
    assert len(charges) == 1
    assert len(list(jobs.OUTBOX.iterdir())) == 1
    assert (await client.get(f"/books/orders/{placed['order']}")).json()["state"] == "paid"


async def test_a_declined_card_puts_the_goods_back(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    await fill(sandbox, client)
    placed = await place(client, DECLINED)
    assert await stock(client) == 23
    await sandbox.drain()
    assert (await client.get(f"/books/orders/{placed['order']}")).json()["state"] == "declined"
    assert await stock(client) == 25
    job = (await client.get(f"/books/jobs/{placed['job']}")).json()
    assert job["error"] == "the card was declined"
    assert await audit() == [(1, "CARD_DECLINED", "failed")]


async def test_a_failing_provider_is_asked_again_and_each_failure_is_on_record(
    sandbox: Sandbox, client: httpx.AsyncClient, charges: dict[str, provider.Charge]
) -> None:
    await fill(sandbox, client)
    await place(client, FAILS_ONCE)
    await sandbox.drain(with_delayed=True, raise_errors=True)
    assert await audit() == [(1, "PROVIDER_ERROR", "queued")]
    assert len(charges) == 1


async def audit() -> list[tuple[int, str, str]]:
    async with database.new_session() as session:
        rows = await session.execute(select(Audit.attempt, Audit.code, Audit.next_state))
        return [tuple(row) for row in rows]


async def test_an_order_that_is_rolled_back_enqueues_nothing(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    await fill(sandbox, client)
    answer = await client.post(
        "/books/orders",
        json={"product": "Fences", "quantity": 26, "email": "ann@example.com", "card": GOOD},
    )
    assert (answer.status_code, answer.json()) == (409, {"detail": "only 25 left"})
    assert await sandbox.jobs(State.QUEUED) == []
    assert await stock(client) == 25


async def test_a_shop_does_not_see_the_jobs_of_another(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    await fill(sandbox, client)
    placed = await place(client, GOOD)
    for path in (f"jobs/{placed['job']}", f"orders/{placed['order']}"):
        assert (await client.get(f"/garden/{path}")).status_code == 404
    canceled = await client.post(f"/garden/jobs/{placed['job']}/cancel")
    assert canceled.status_code == 404
    assert (await hf.for_tenant("books").jobs.list()).jobs[0].state is State.QUEUED


async def test_the_report_counts_what_is_paid(sandbox: Sandbox, client: httpx.AsyncClient) -> None:
    await fill(sandbox, client)
    await place(client, GOOD, 3)
    await place(client, DECLINED, 4)
    await sandbox.drain()
    job = await hf.for_tenant("books").enqueue(jobs.report_sales)
    await sandbox.drain(raise_errors=True)
    report = await hf.result(job)
    assert (str(report.revenue), report.sold) == ("26.70", {"Fences": 3})


async def test_a_bad_line_ends_the_import_and_keeps_the_lines_before(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    started = await client.post("/books/imports", content="Fences,8.90,25\nGates")
    await sandbox.drain()
    job = (await client.get(f"/books/jobs/{started.json()['job']}")).json()
    assert (job["state"], job["error"]) == ("failed", "line 2 is not name,price,stock")
    assert job["progress"] == {"done": 1, "of": 2}
    async with database.new_session() as session:
        assert list(await session.scalars(select(Product.name))) == ["Fences"]
