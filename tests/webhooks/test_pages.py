"""Webhooks in the dashboard: sagas, their attempts and payloads, and nothing of another tenant."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from holdfast.dashboard.systems import ItemLink, JobLink, Status
from holdfast.webhooks.letter_pages import LetterPages
from holdfast.webhooks.pages import WebhookPages
from holdfast.webhooks.subscription_pages import SubscriptionPages
from tests.support.system_pages import all_rows, caller, part, shows_nothing_else
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import Shop, both_stores


def pages_of(shop: Shop) -> WebhookPages:
    return WebhookPages(shop.webhooks, shop.webhooks._tables)


@both_stores
async def test_a_saga_is_shown_with_every_request_that_it_sent(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.answers[:] = [503, 200]
    await shop.webhooks.subscribe(receiver.url, tenant="acme")
    saga = await shop.saga(await shop.publish(tenant="acme"))
    pages, who = pages_of(shop), caller(shop.hf, "acme")
    (waiting,) = await all_rows(pages, who)
    assert waiting.cells[1] == Status("Pending", "wait")
    await shop.hf.run_due()
    (row,) = await all_rows(pages, who)
    assert (row.id, row.tenant) == (str(saga.id), "acme")
    assert row.cells[1:5] == (Status("Delivered", "good"), "order.paid", receiver.url, 2)
    item = await pages.item(who, row.id)
    assert item is not None
    assert (item.title, item.error) == ("order.paid", None)
    assert part(item, "Payload") == '{"order":1001}'
    attempts = part(item, "Attempts")
    assert [(each[0], each[2], each[3]) for each in attempts] == [
        (1, 503, "HTTP_503"),
        (2, 200, None),
    ]
    assert all(isinstance(each[-1], JobLink) for each in attempts)


@both_stores
async def test_a_dead_saga_leads_to_the_one_that_it_was_requeued_as(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.answers[:] = [500, 500, 500]
    dead, letter = await shop.dead_letter(receiver.url)
    again = await shop.webhooks.requeue(letter.id)
    pages, who = pages_of(shop), caller(shop.hf)
    old, new = [await pages.item(who, str(each.id)) for each in (dead, again)]
    assert old is not None
    assert new is not None
    assert (old.status, old.error) == (Status("DeadLettered", "bad"), "HTTP_500")
    assert dict(old.facts)["Requeued as"] == ItemLink(str(again.id), str(again.id))
    assert dict(new.facts)["Requeued from"] == ItemLink(str(dead.id), str(dead.id))


@both_stores
async def test_a_tenant_sees_only_its_own_and_an_operator_sees_all(
    shop: Shop, receiver: Receiver
) -> None:
    tenants = ["a", "b", "a"]
    for tenant in tenants[:2]:
        await shop.webhooks.subscribe(receiver.url, tenant=tenant)
    for tenant in tenants:
        await shop.publish(tenant=tenant)
    pages = pages_of(shop)
    # In any order: two tenants' IDs of the same millisecond have none.
    seen = Counter(row.tenant for row in await all_rows(pages, caller(shop.hf)))
    assert seen == Counter(tenants)
    (others,) = await all_rows(pages, caller(shop.hf, "b"))
    who = caller(shop.hf, "a")
    assert len(await all_rows(pages, who)) == 2
    assert await pages.item(who, others.id) is None
    await shows_nothing_else(pages, who)


@both_stores
async def test_a_subscription_says_whether_it_is_enabled_and_what_failed(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.answers[:] = [500, 500, 500]
    dead, _ = await shop.dead_letter(receiver.url)
    pages, who = SubscriptionPages(shop.webhooks._tables), caller(shop.hf)
    (row,) = await all_rows(pages, who)
    assert row.cells[1:4] == (Status("failing", "warn"), receiver.url, "all")
    item = await pages.item(who, row.id)
    assert item is not None
    (saga,) = part(item, "Newest sagas")
    assert saga[:4] == (
        ItemLink(str(dead.id), str(dead.id), WebhookPages.slug),
        Status("DeadLettered", "bad"),
        "HTTP_500",
        dead.attempt_count,
    )
    await shop.webhooks.disable(UUID(row.id))
    (row,) = await all_rows(pages, who)
    assert row.cells[1] == Status("disabled", "muted")
    await shop.webhooks.subscribe(receiver.url, tenant="acme", event_types=["order.paid"])
    (theirs,) = await all_rows(pages, caller(shop.hf, "acme"))
    assert theirs.cells[1:4] == (Status("enabled", "good"), receiver.url, "order.paid")
    assert [each.id for each in await all_rows(pages, who, limit=1)] == [theirs.id, row.id]
    assert await pages.item(caller(shop.hf, "acme"), row.id) is None
    await shows_nothing_else(pages, who)


@both_stores
async def test_a_dead_letter_shows_what_it_would_have_sent(shop: Shop, receiver: Receiver) -> None:
    receiver.answers[:] = [500, 500, 500]
    dead, letter = await shop.dead_letter(receiver.url)
    pages, who = LetterPages(shop.webhooks._tables), caller(shop.hf)
    (row,) = await all_rows(pages, who)
    assert row.id == str(letter.id)
    assert row.cells[1:3] == (Status("dead", "bad"), "HTTP_500")
    again = await shop.webhooks.requeue(letter.id)
    item = await pages.item(who, row.id)
    assert item is not None
    assert (item.status, item.error) == (Status("requeued", "good"), "HTTP_500")
    facts = dict(item.facts)
    assert facts["Saga"] == ItemLink(str(dead.id), str(dead.id), WebhookPages.slug)
    assert facts["Requeued as"] == ItemLink(str(again.id), str(again.id), WebhookPages.slug)
    assert part(item, "Payload") == letter.payload_snapshot
    stranger = caller(shop.hf, "acme")
    assert await all_rows(pages, stranger) == []
    assert await pages.item(stranger, row.id) is None
    await shows_nothing_else(pages, who)
