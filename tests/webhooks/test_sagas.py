"""Cancel sagas, list them, and keep them."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest

from holdfast import BadArguments, WrongState
from holdfast.webhooks import (
    DeadLetterNotFound,
    EventNotFound,
    Saga,
    SagaNotFound,
    Subscription,
)
from holdfast.webhooks.limits import SAGAS_LOOK_MAX
from tests.support.processes import wait_until
from tests.support.running import signal, working
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import Shop, both_stores, on_sqlite
from tests.webhooks.test_rules_of_the_database import refused

pytestmark = pytest.mark.heavy


@both_stores
async def test_a_canceled_saga_sends_nothing_and_stays_canceled(
    shop: Shop, receiver: Receiver
) -> None:
    await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    saga = await shop.saga(event)
    with pytest.raises(SagaNotFound):
        await shop.webhooks.cancel(saga.id, tenant="other")
    told = await asyncio.gather(*(shop.webhooks.cancel(saga.id) for _ in range(4)))
    assert {each.status for each in told} == {"Canceled"}
    await shop.hf.run_due()
    assert (await shop.webhooks.saga(saga.id, tenant="default")) == told[0]
    assert receiver.requests == []
    assert await shop.webhooks.attempts(saga.id) == []


@both_stores
async def test_a_saga_canceled_during_its_request_stays_canceled_and_the_answer_is_logged(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.gate.clear()
    await shop.webhooks.subscribe(receiver.url)
    saga = await shop.saga(await shop.publish())
    async with working(shop.hf):
        await signal(receiver.came)
        assert (await shop.webhooks.cancel(saga.id)).status == "Canceled"
        receiver.gate.set()

        async def is_judged() -> bool:
            return await shop.fetch("SELECT 1 FROM holdfast.webhook_attempts WHERE judged") != []

        await wait_until(is_judged, "the attempt was judged")
    (attempt,) = await shop.webhooks.attempts(saga.id)
    assert (attempt.status, attempt.response_status) == ("Completed", 200)
    assert (await shop.webhooks.saga(saga.id)).status == "Canceled"


@both_stores
async def test_what_has_ended_can_not_be_canceled(shop: Shop, receiver: Receiver) -> None:
    receiver.answers = [500]
    saga, _ = await shop.dead_letter(receiver.url)
    with pytest.raises(WrongState, match="it is DeadLettered"):
        await shop.webhooks.cancel(saga.id)
    with pytest.raises(SagaNotFound):
        await shop.webhooks.cancel(uuid4())


@both_stores
async def test_nobody_deletes_a_saga_or_a_dead_letter(shop: Shop, receiver: Receiver) -> None:
    """Not even the owner of the tables, and not even what has ended."""
    receiver.answers = [500]
    saga, letter = await shop.dead_letter(receiver.url)
    tables = ("dead_letters", "attempt_log", "attempts", "sagas", "events")
    for table in tables:
        await refused(shop, f"DELETE FROM holdfast.webhook_{table}")
    assert await shop.webhooks.saga(saga.id) == saga
    assert await shop.webhooks.dead_letter(letter.id) == letter


@both_stores
async def test_sagas_are_listed_newest_first_by_status_and_subscription(
    shop: Shop, receiver: Receiver
) -> None:
    def of(each: Subscription) -> list[Saga]:
        return [saga for saga in sagas if saga.subscription_id == each.id]

    one = await shop.webhooks.subscribe(receiver.url)
    two = await shop.webhooks.subscribe(receiver.url)
    await shop.webhooks.subscribe(receiver.url, tenant="other")
    for _ in range(3):
        await shop.publish()
        await shop.publish(tenant="other")
    sagas = (await shop.webhooks.list_sagas()).sagas
    assert len(sagas) == 6
    assert [each.id for each in sagas] == sorted((each.id for each in sagas), reverse=True)
    await shop.webhooks.cancel(sagas[3].id)
    for filter, wanted in (
        ({"status": "Canceled"}, [sagas[3]]),
        ({"subscription_id": one.id}, of(one)),
        (
            {"subscription_id": two.id, "limit": 3},
            of(two),
        ),
        ({"subscription_id": one.id, "tenant": "other"}, []),
        ({"status": "Delivered"}, []),
    ):
        found = await shop.webhooks.list_sagas(**filter)
        assert [each.id for each in found.sagas] == [each.id for each in wanted]
    pages, after = [], None
    while True:
        page = await shop.webhooks.list_sagas(limit=4, after=after)
        pages += page.sagas
        if (after := page.after) is None:
            break
    assert [each.id for each in pages] == [each.id for each in sagas]


@on_sqlite
async def test_one_page_reads_a_limited_number_of_sagas(shop: Shop) -> None:
    await shop.webhooks.subscribe("https://example.org/")
    async with shop.hf.transaction() as connection:
        oldest = await shop.publish(connection=connection)
        for _ in range(SAGAS_LOOK_MAX):
            await shop.publish(connection=connection)
    wanted = await shop.saga(oldest)
    rows = await shop.fetch("SELECT id FROM holdfast.webhook_sagas")
    everyone = [UUID(row["id"]) for row in rows]
    assert len(everyone) == SAGAS_LOOK_MAX + 1
    last = min(everyone)
    await shop.webhooks.cancel(last)
    page = await shop.webhooks.list_sagas(status="Canceled")
    assert (page.sagas, page.after is not None) == ([], True)
    rest = await shop.webhooks.list_sagas(status="Canceled", after=page.after)
    assert ([each.id for each in rest.sagas], rest.after) == ([last], None)
    assert wanted.id in everyone


@on_sqlite
async def test_what_is_not_there_is_not_found(shop: Shop, receiver: Receiver) -> None:
    event = await shop.publish()
    assert await shop.webhooks.event(event.id) == event
    for ask, error in (
        (lambda: shop.webhooks.saga(uuid4()), SagaNotFound),
        (lambda: shop.webhooks.dead_letter(uuid4()), DeadLetterNotFound),
        (lambda: shop.webhooks.event(uuid4()), EventNotFound),
        (lambda: shop.webhooks.event(event.id, tenant="other"), EventNotFound),
        (lambda: shop.webhooks.list_sagas(status="Lost"), BadArguments),
        (lambda: shop.webhooks.list_sagas(limit=0), BadArguments),
    ):
        with pytest.raises(error):
            await ask()
