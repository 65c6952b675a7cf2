"""Presets are the applications' own: a worker sends only what it knows how to make."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast import ConfigurationError, Holdfast, Retry, State
from holdfast.domain.limits import RELEASES_MAX
from holdfast.webhooks import BadEndpoint, Preset, Webhooks
from holdfast.webhooks.policy import Policy
from tests.support.hostile import HostileRetry
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import ACME, Shop, both_stores, make_policy, make_request, on_sqlite

pytestmark = pytest.mark.heavy


async def stored_policy(shop: Shop) -> Policy:
    (row,) = await shop.fetch("SELECT policy FROM holdfast.webhook_subscriptions")
    return Policy.decode(row["policy"])


@both_stores
async def test_a_preset_makes_the_whole_request(shop: Shop, receiver: Receiver) -> None:
    made = await shop.webhooks.subscribe(receiver.url, preset="acme")
    event = await shop.publish()
    await shop.hf.run_due()
    (request,) = receiver.requests
    saga = await shop.saga(event)
    assert request.body == event.payload.encode()
    assert request.headers["X-Delivery"] == str(saga.id)
    assert request.headers["X-Key"] == made.secret.encode().hex()


@on_sqlite
async def test_an_unknown_preset_is_refused_with_the_known_names(
    shop: Shop, receiver: Receiver
) -> None:
    with pytest.raises(BadEndpoint, match="one of standard, acme, not 'bpc'"):
        await shop.webhooks.subscribe(receiver.url, preset="bpc")
    assert await shop.webhooks.subscriptions() == []


@both_stores
async def test_a_worker_that_lacks_the_preset_hands_the_delivery_back(
    store_url: str, receiver: Receiver
) -> None:
    async with Shop.open(store_url) as shop, Shop.open(store_url, presets=[]) as other:
        subscription = await shop.webhooks.subscribe(receiver.url, preset="acme")
        with pytest.raises(BadEndpoint):
            await other.webhooks.adopt(subscription.id)
        event = await other.publish()
        await other.hf.run_due()
        saga = await other.saga(event)
        assert receiver.requests == []
        assert (saga.status, saga.attempt_count) == ("InFlight", 1)
        (attempt,) = await other.webhooks.attempts(saga.id)
        job = await other.hf.get(attempt.id)
        assert (attempt.status, job.state, job.attempts) == ("Pending", State.QUEUED, 0)
        why = await other.hf.jobs.why(job.id)
        assert "preset 'acme' is unknown here; known: standard" in why.sentence
        await shop.hf.jobs.retry(job.id)
        await shop.hf.run_due()
        assert (await shop.saga(event)).status == "Delivered"
        assert len(receiver.requests) == 1


@both_stores
async def test_a_delivery_that_no_worker_could_make_is_a_dead_letter_to_requeue(
    store_url: str, receiver: Receiver
) -> None:
    once = msgspec.structs.replace(ACME, retry=Retry.none())
    async with Shop.open(store_url, [once]) as shop, Shop.open(store_url, []) as other:
        await shop.webhooks.subscribe(receiver.url, preset="acme")
        event = await other.publish()
        await other.hf.run_due()
        saga = await other.saga(event)
        (attempt,) = await other.webhooks.attempts(saga.id)
        await other.fetch(f"UPDATE holdfast.jobs SET releases = {RELEASES_MAX}")
        await other.hf.jobs.retry(attempt.id)
        await other.hf.run_due()
        (letter,) = await other.webhooks.dead_letters()
        assert (letter.final_error_code, letter.payload) == ("BAD_ARGUMENTS", {"order": 1001})
        again = await shop.webhooks.requeue(letter.id)
        await shop.hf.run_due()
        _, delivered = await shop.webhooks.sagas(event_id=event.id)
        assert (delivered.id, delivered.status) == (again.id, "Delivered")
        assert len(receiver.requests) == 1


@on_sqlite
async def test_retries_and_refusals_of_a_preset_are_stored_with_the_subscription(
    store_url: str, receiver: Receiver
) -> None:
    """So a worker that lacks the preset decides the same; adopting changes the rest."""
    async with (
        Shop.open(store_url) as shop,
        Shop.open(store_url, timeout_seconds=7.0, retry=Retry.none()) as other,
    ):
        made = await shop.webhooks.subscribe(receiver.url, preset="acme")
        expected = make_policy(retry=ACME.retry, refusals_are_permanent=True)
        assert await stored_policy(shop) == expected
        await other.webhooks.adopt(made.id)
        assert await stored_policy(shop) == msgspec.structs.replace(expected, timeout_seconds=7.0)


@pytest.mark.parametrize(
    "make_presets",
    [
        lambda: [ACME, ACME],
        lambda: [msgspec.structs.replace(ACME, name="standard")],
        lambda: [Preset(name="", make_request=make_request)],
        lambda: [Preset(name="a\nb", make_request=make_request)],
        lambda: [Preset(name="a" * 201, make_request=make_request)],
        lambda: [msgspec.structs.replace(ACME, retry=HostileRetry(max_attempts=2))],
    ],
)
def test_a_preset_that_can_not_be_is_refused(make_presets: Any) -> None:
    with pytest.raises(ConfigurationError):
        Webhooks(Holdfast("sqlite:///never.db"), presets=make_presets())
