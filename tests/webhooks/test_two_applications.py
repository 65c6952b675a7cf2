"""A subscription is served by the settings it was made under, whichever worker has its jobs."""

from __future__ import annotations

from datetime import datetime
from uuid import uuid4

import pytest

from holdfast import ConfigurationError, Holdfast, Retry
from holdfast.webhooks import BadEndpoint, SubscriptionNotFound, Webhooks
from tests.support.hostile import HostileRetry
from tests.support.running import signal, working
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import Shop, both_stores, on_sqlite

pytestmark = pytest.mark.heavy


@both_stores
async def test_a_worker_with_laxer_settings_sends_nothing_to_a_forbidden_address(
    store_url: str, receiver: Receiver
) -> None:
    async with (
        Shop.open(store_url, allow_private_addresses=False) as strict,
        Shop.open(store_url, allow_private_addresses=True) as lax,
    ):
        await strict.webhooks.subscribe(f"http://localhost:{receiver.port}/")
        event = await lax.publish()
        await lax.hf.run_due()
        saga = await lax.saga(event)
        attempts = await lax.webhooks.attempts(saga.id)
        assert {attempt.error_code for attempt in attempts} == {"NETWORK_ERROR"}
        assert saga.status == "DeadLettered"
        assert receiver.requests == []


@both_stores
async def test_a_worker_with_other_settings_keeps_the_retries_and_the_networks(
    store_url: str, receiver: Receiver
) -> None:
    receiver.answers = [503, 503, 200]
    async with (
        Shop.open(store_url) as shop,
        Shop.open(
            store_url, https_only=True, allow_private_addresses=False, retry=Retry.none()
        ) as other,
    ):
        await shop.webhooks.subscribe(receiver.url)
        event = await other.publish()
        await other.hf.run_due()
        saga = await shop.saga(event)
        assert (saga.status, saga.attempt_count) == ("Delivered", 3)


@on_sqlite
async def test_a_worker_with_more_patience_keeps_the_timeout(
    store_url: str, receiver: Receiver
) -> None:
    receiver.gate.clear()
    async with (
        Shop.open(store_url, timeout_seconds=0.2, retry=Retry.none()) as shop,
        Shop.open(store_url, timeout_seconds=300) as patient,
    ):
        await shop.webhooks.subscribe(receiver.url)
        event = await patient.publish()
        await patient.hf.run_due()
        saga = await shop.saga(event)
        (attempt,) = await shop.webhooks.attempts(saga.id)
        assert (saga.status, attempt.error_code) == ("DeadLettered", "TIMEOUT")


@on_sqlite
async def test_a_worker_with_more_patience_keeps_the_guard(
    store_url: str, receiver: Receiver
) -> None:
    receiver.gate.clear()
    async with (
        Shop.open(store_url, guard_seconds=7200) as shop,
        Shop.open(store_url, guard_seconds=86400) as patient,
    ):
        await shop.webhooks.subscribe(receiver.url)
        event = await patient.publish()
        async with working(patient.hf):
            await signal(receiver.came)
        (attempt,) = await shop.webhooks.attempts((await shop.saga(event)).id)
        (row,) = await shop.fetch("SELECT check_at FROM holdfast.webhook_attempts")
        check_at = datetime.fromisoformat(row["check_at"])
        assert abs((check_at - attempt.attempt_at).total_seconds() - 7200) < 600


@both_stores
async def test_an_application_adopts_a_subscription_with_its_settings(
    store_url: str, receiver: Receiver
) -> None:
    receiver.answers = [503]
    async with (
        Shop.open(store_url) as shop,
        Shop.open(store_url, retry=Retry.none()) as once,
        Shop.open(store_url, https_only=True) as secure,
    ):
        subscription = await shop.webhooks.subscribe(receiver.url)
        await once.webhooks.adopt(subscription.id)
        with pytest.raises(BadEndpoint):
            await secure.webhooks.adopt(subscription.id)
        with pytest.raises(SubscriptionNotFound):
            await once.webhooks.adopt(uuid4())
        event = await shop.publish()
        await shop.hf.run_due()
        saga = await shop.saga(event)
        assert (saga.status, saga.attempt_count) == ("DeadLettered", 1)


def test_a_retry_that_can_not_be_stored_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        Webhooks(Holdfast("sqlite:///never.db"), retry=HostileRetry(max_attempts=2))
