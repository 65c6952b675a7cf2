"""The life of a subscription: changed, tested, disabled, enabled and deleted."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from holdfast import BadArguments, ConfigurationError, Holdfast, WrongState
from holdfast.webhooks import BadEndpoint, SubscriptionNotFound, Webhooks
from holdfast.webhooks.delivery_job import DELIVERY, ORCHESTRATION
from holdfast.webhooks.limits import SAGAS_AT_ONCE_MAX
from tests.support.processes import wait_until
from tests.support.running import signal, working
from tests.webhooks.receiving import Receiver, receiving
from tests.webhooks.shop import Shop, both_stores, on_sqlite
from tests.webhooks.test_replays import EVER

pytestmark = pytest.mark.heavy


@both_stores
async def test_a_changed_subscription_gets_other_events_at_another_url(
    shop: Shop, receiver: Receiver
) -> None:
    made = await shop.webhooks.subscribe(receiver.url, event_types=["order.lost"])
    await shop.publish()
    base = receiver.url.removesuffix("/hook")
    changed = await shop.webhooks.change(
        made.id, url=f"{base}/new", event_types=["order.paid"], tenant="default"
    )
    assert (changed.url, changed.event_types) == (f"{base}/new", ("order.paid",))
    await shop.publish()
    await shop.hf.run_due()
    assert [request.path for request in receiver.requests] == ["/new"]
    kept = await shop.webhooks.change(made.id, event_types=[])
    assert (kept.url, kept.event_types) == (f"{base}/new", ())
    assert await shop.webhooks.subscription(made.id) == kept


@both_stores
async def test_an_attempt_that_waits_goes_to_the_url_of_the_moment(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.answers = [503, 200]
    made = await shop.webhooks.subscribe(receiver.url, preset="acme")
    event = await shop.publish()
    await shop.hf.run_due()
    async with receiving() as other:
        await shop.webhooks.change(made.id, url=other.url)
        await shop.fetch("UPDATE holdfast.webhook_sagas SET next_attempt_at = created_at")
        await shop.hf.run_due()
        assert (len(receiver.requests), len(other.requests)) == (1, 1)
    assert (await shop.saga(event)).status == "Delivered"


@on_sqlite
async def test_a_change_must_suit_the_settings_of_both(store_url: str) -> None:
    async with (
        Shop.open(store_url, allow_private_addresses=False) as strict,
        Shop.open(store_url) as lax,
    ):
        made = await strict.webhooks.subscribe("https://example.org/")
        for shop in (strict, lax):
            for url in ("http://10.0.0.1/", "ftp://example.org/", "https://a:b@example.org/"):
                with pytest.raises(BadEndpoint):
                    await shop.webhooks.change(made.id, url=url)
        with pytest.raises(BadArguments):
            await strict.webhooks.change(made.id, event_types=["order paid"])
        with pytest.raises(SubscriptionNotFound):
            await strict.webhooks.change(made.id, url="https://b.org/", tenant="other")
        assert (await strict.webhooks.subscription(made.id)).url == "https://example.org/"


@both_stores
async def test_a_stored_url_is_checked_again_at_every_attempt(
    store_url: str, receiver: Receiver
) -> None:
    """Whoever wrote it to the database: the sender refuses what subscribing refuses."""
    urls = (
        f"http://0.0.0.0:{receiver.port}/",
        f"http://user:pw@127.0.0.1:{receiver.port}/",
        f"http://127.1:{receiver.port}/",
    )
    async with Shop.open(store_url) as shop:
        made = await shop.webhooks.subscribe(receiver.url)
        codes = []
        for url in urls:
            await shop.fetch(f"UPDATE holdfast.webhook_subscriptions SET url = '{url}'")
            event = await shop.publish()
            await shop.hf.run_due()
            saga = await shop.saga(event)
            assert saga.status == "DeadLettered"
            codes += [each.error_code for each in await shop.webhooks.attempts(saga.id)][:1]
        assert codes == ["NETWORK_ERROR", "BAD_URL", "BAD_URL"]
        assert receiver.requests == []
        assert (await shop.webhooks.subscription(made.id)).failing_since is not None


@both_stores
async def test_disabling_cancels_what_waits_now_and_enabling_starts_anew(
    shop: Shop, receiver: Receiver
) -> None:
    """Not when it is due, which may be hours later; and in bounded steps."""
    receiver.answers = [503, 200]
    made = await shop.webhooks.subscribe(receiver.url, preset="acme")
    first = await shop.publish()
    await shop.hf.run_due()
    sagas = [await shop.publish() for _ in range(SAGAS_AT_ONCE_MAX + 5)]
    disabled = await shop.webhooks.disable(made.id)
    assert (disabled.disabled_at is not None, disabled.disabled_because) == (True, None)
    await shop.hf.run_worker(queues=[ORCHESTRATION], until_empty=True)
    ended = [(await shop.saga(event)).status for event in (first, *sagas)]
    assert set(ended) == {"Canceled"}
    (row,) = await shop.fetch("SELECT is_stopping FROM holdfast.webhook_subscriptions")
    assert not row["is_stopping"]
    enabled = await shop.webhooks.enable(made.id)
    assert enabled.disabled_at is None
    event = await shop.publish()
    await shop.hf.run_due()
    assert (await shop.saga(event)).status == "Delivered"
    assert len(receiver.requests) == 2


@both_stores
async def test_a_delivery_that_was_queued_is_not_sent_once_its_subscription_is_disabled(
    shop: Shop, receiver: Receiver
) -> None:
    made = await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    await shop.hf.run_worker(queues=[ORCHESTRATION], until_empty=True)
    assert (await shop.saga(event)).status == "InFlight"
    await shop.webhooks.disable(made.id)
    await shop.hf.run_worker(queues=[DELIVERY], until_empty=True)
    await shop.hf.run_due()
    saga = await shop.saga(event)
    (attempt,) = await shop.webhooks.attempts(saga.id)
    assert (saga.status, attempt.error_code) == ("Canceled", "CANCELED")
    assert receiver.requests == []
    assert (await shop.webhooks.subscription(made.id)).failing_since is None


@both_stores
async def test_a_deleted_subscription_is_gone_with_its_secrets(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.answers = [503]
    made = await shop.webhooks.subscribe(receiver.url, preset="acme")
    event = await shop.publish()
    await shop.hf.run_due()
    with pytest.raises(SubscriptionNotFound):
        await shop.webhooks.delete(made.id, tenant="other")
    await shop.webhooks.delete(made.id, tenant="default")
    await shop.hf.run_due()
    assert (await shop.saga(event)).status == "Canceled"
    assert await shop.webhooks.subscriptions() == []
    assert await shop.fetch("SELECT id FROM holdfast.subscriptions") == []
    secrets = await shop.fetch("SELECT ciphertext FROM holdfast.webhook_secrets")
    assert [row["ciphertext"] for row in secrets] == [None]
    skipped = await shop.publish()
    assert await shop.webhooks.sagas(event_id=skipped.id) == []
    for ask in (
        lambda: shop.webhooks.subscription(made.id),
        lambda: shop.webhooks.enable(made.id),
        lambda: shop.webhooks.disable(made.id),
        lambda: shop.webhooks.delete(made.id),
        lambda: shop.webhooks.rotate_secret(made.id),
        lambda: shop.webhooks.send_test(made.id),
    ):
        with pytest.raises(SubscriptionNotFound):
            await ask()
    assert len(receiver.requests) == 1


@both_stores
async def test_an_attempt_under_way_may_finish_after_the_subscription_is_deleted(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.gate.clear()
    made = await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    async with working(shop.hf):
        await signal(receiver.came)
        await shop.webhooks.delete(made.id)
        receiver.gate.set()

        async def has_ended() -> bool:
            return (await shop.saga(event)).ended_at is not None

        await wait_until(has_ended, "the saga has ended")
    assert (await shop.saga(event)).status == "Delivered"


@both_stores
async def test_410_disables_the_subscription_and_leaves_a_dead_letter_to_requeue(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.answers = [410]
    for preset in ("standard", "acme"):
        made = await shop.webhooks.subscribe(receiver.url, preset=preset, tenant=preset)
        gone = await shop.publish(tenant=preset)
        await shop.hf.run_due()
        saga = await shop.saga(gone)
        assert (saga.status, saga.attempt_count) == ("DeadLettered", 1)
        known = await shop.webhooks.subscription(made.id)
        assert known.disabled_because == "HTTP_410"
        assert await shop.webhooks.sagas(event_id=(await shop.publish(tenant=preset)).id) == []
        (letter,) = await shop.webhooks.dead_letters(tenant=preset)
        with pytest.raises(WrongState, match="disabled"):
            await shop.webhooks.requeue(letter.id)
        await shop.webhooks.enable(made.id)
        again = await shop.webhooks.requeue(letter.id)
        assert again.requeued_from == letter.id
        assert len(receiver.requests) == 1
        await shop.webhooks.cancel(again.id)
        receiver.requests.clear()


@both_stores
async def test_a_subscription_that_fails_for_long_is_disabled(
    shop: Shop, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [500, 200, 500]
    made = await shop.webhooks.subscribe(receiver.url, preset="acme")
    await shop.publish()
    await shop.hf.run_due()
    failing = (await shop.webhooks.subscription(made.id)).failing_since
    assert failing is not None
    await shop.publish()
    await shop.hf.run_due()
    assert (await shop.webhooks.subscription(made.id)).failing_since is None
    await shop.publish()
    await shop.hf.run_due()
    assert (await shop.webhooks.subscription(made.id)).disabled_at is None
    await shop.fetch(
        "UPDATE holdfast.webhook_subscriptions SET failing_since = '2026-01-01T00:00:00.000000Z'"
    )
    last = await shop.publish()
    await shop.hf.run_due()
    known = await shop.webhooks.subscription(made.id)
    assert known.disabled_because == "FAILING"
    assert (await shop.saga(last)).status == "Canceled"
    (told,) = [
        record
        for record in caplog.records
        if getattr(record, "event", "") == "webhook_subscription_disabled"
    ]
    assert told.fields == {"subscription_id": made.id, "because": "FAILING"}  # type: ignore[attr-defined]


@both_stores
async def test_a_test_event_goes_to_one_subscription_whatever_it_wants(
    shop: Shop, receiver: Receiver
) -> None:
    made = await shop.webhooks.subscribe(receiver.url, event_types=["order.paid"])
    await shop.webhooks.subscribe(receiver.url)
    event = await shop.webhooks.send_test(made.id, tenant="default")
    await shop.webhooks.send_test(made.id, {"order": 7})
    await shop.hf.run_due()
    told = [json.loads(request.body) for request in receiver.requests]
    assert {each["type"] for each in told} == {"webhooks.test"}
    assert sorted(map(str, (each["data"] for each in told))) == ["{'order': 7}", "{'test': True}"]
    assert (await shop.saga(event)).subscription_id == made.id
    await shop.webhooks.disable(made.id)
    with pytest.raises(WrongState, match="enable it first"):
        await shop.webhooks.send_test(made.id)
    with pytest.raises(SubscriptionNotFound):
        await shop.webhooks.send_test(made.id, tenant="other")


@on_sqlite
async def test_subscriptions_are_listed_page_by_page(shop: Shop) -> None:
    made = [(await shop.webhooks.subscribe("https://example.org/")).id for _ in range(5)]
    found, after = [], None
    while page := await shop.webhooks.subscriptions(limit=2, after=after):
        assert len(page) <= 2
        found += [each.id for each in page]
        after = page[-1].id
    assert found == made


def test_webhooks_are_found_by_their_app() -> None:
    hf = Holdfast("sqlite:///never.db")
    with pytest.raises(ConfigurationError, match="has no webhooks"):
        Webhooks.of(hf)
    webhooks = Webhooks(hf)
    assert Webhooks.of(hf) is webhooks


@on_sqlite
async def test_what_is_not_there_is_not_found(shop: Shop) -> None:
    for ask in (
        lambda: shop.webhooks.subscription(uuid4()),
        lambda: shop.webhooks.change(uuid4(), url="https://example.org/"),
        lambda: shop.webhooks.count_replay(*EVER, subscription_id=uuid4()),
        lambda: shop.webhooks.replay(*EVER, subscription_id=uuid4()),
    ):
        with pytest.raises(SubscriptionNotFound):
            await ask()
