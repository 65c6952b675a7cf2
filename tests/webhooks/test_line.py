"""From an event to its end: delivered, or a dead letter."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from standardwebhooks.webhooks import Webhook

from holdfast import BadArguments, ConfigurationError, Holdfast, State
from holdfast.testing import sandbox
from holdfast.webhooks import (
    BadEndpoint,
    DeadLetterNotFound,
    EventConflict,
    SubscriptionNotFound,
    Webhooks,
)
from tests.support.processes import wait_until
from tests.support.running import signal, working
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import Shop, both_stores, on_sqlite

pytestmark = pytest.mark.heavy

# Times that have no UTC form, and one that no event can have.
FAR_AWAY = [
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12))),
    datetime(9999, 12, 31, tzinfo=UTC),
]


@both_stores
async def test_an_event_reaches_the_endpoint_signed(shop: Shop, receiver: Receiver) -> None:
    subscription = await shop.webhooks.subscribe(receiver.url, event_types=["order.paid"])
    event = await shop.publish(occurred_at=datetime(2026, 11, 16, 3, 0, tzinfo=UTC))
    await shop.hf.run_due()
    (request,) = receiver.requests
    told = Webhook(subscription.secret).verify(request.body, request.headers)
    assert told == {
        "type": "order.paid",
        "timestamp": "2026-11-16T03:00:00Z",
        "data": {"order": 1001},
    }
    saga = await shop.saga(event)
    (attempt,) = await shop.webhooks.attempts(saga.id)
    assert (saga.status, saga.attempt_count) == ("Delivered", 1)
    assert (attempt.status, attempt.response_status) == ("Completed", 200)
    assert (attempt.error_code, attempt.response_body) == (None, b"thanks")
    assert (await shop.hf.get(attempt.id)).state is State.SUCCEEDED


@on_sqlite
async def test_a_saga_has_one_job_for_each_attempt(shop: Shop, receiver: Receiver) -> None:
    receiver.answers = [503, 500, 200]
    await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    await shop.hf.run_due()
    saga = await shop.saga(event)
    attempts = await shop.webhooks.attempts(saga.id)
    assert [(each.attempt_no, each.status, each.error_code) for each in attempts] == [
        (1, "Failed", "HTTP_503"),
        (2, "Failed", "HTTP_500"),
        (3, "Completed", None),
    ]
    assert len({each.id for each in attempts}) == 3
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1
    assert saga.status == "Delivered"


@on_sqlite
async def test_the_last_failure_makes_a_dead_letter_with_the_payload(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.answers = [500]
    saga, letter = await shop.dead_letter(receiver.url)
    assert (saga.status, saga.attempt_count) == ("DeadLettered", 3)
    assert (letter.saga_id, letter.event_id) == (saga.id, saga.event_id)
    assert letter.subscription_id == saga.subscription_id
    assert letter.final_error_code == "HTTP_500"
    assert letter.payload == {"order": 1001}
    assert len(receiver.requests) == 3


@on_sqlite
async def test_a_preset_ends_a_saga_at_its_first_refusal(shop: Shop, receiver: Receiver) -> None:
    receiver.answers = [404]
    await shop.webhooks.subscribe(receiver.url, preset="acme")
    event = await shop.publish()
    await shop.hf.run_due()
    saga = await shop.saga(event)
    assert (saga.status, saga.attempt_count) == ("DeadLettered", 1)


@both_stores
async def test_a_retry_waits_for_its_time(store_url: str, receiver: Receiver) -> None:
    receiver.answers = [503, 200]
    async with Shop.open(store_url) as shop:
        await shop.webhooks.subscribe(receiver.url, preset="acme")
        event = await shop.publish()
        await shop.hf.run_due()
        saga = await shop.saga(event)
        (attempt,) = await shop.webhooks.attempts(saga.id)
        assert saga.status == "Pending"
        assert saga.next_attempt_at is not None
        assert attempt.ended_at is not None
        waits = (saga.next_attempt_at - attempt.ended_at).total_seconds()
        assert 1.9 < waits < 10
        await shop.hf.run_due()
        assert len(receiver.requests) == 1
        assert [job.state for job in await shop.jobs()] == [State.SUCCEEDED]


@both_stores
async def test_a_saga_runs_through_all_its_delays_in_a_sandbox(
    store_url: str, receiver: Receiver
) -> None:
    receiver.answers = [503, 503, 503, 200]
    server = None if store_url.startswith("sqlite") else store_url
    async with Shop.open(store_url) as shop, sandbox(shop.hf, server) as box:
        await shop.webhooks.subscribe(receiver.url, preset="acme")
        event = await shop.publish()
        began = await box.now()
        await box.drain()
        assert (await shop.saga(event)).status == "Pending"
        await box.drain(with_delayed=True)
        saga = await shop.saga(event)
        assert (saga.status, saga.attempt_count) == ("Delivered", 4)
        if server is None:
            assert 14 <= (await box.now() - began).total_seconds() < 15


@both_stores
async def test_clicks_at_once_requeue_a_dead_letter_once(shop: Shop, receiver: Receiver) -> None:
    receiver.answers = [500]
    dead, letter = await shop.dead_letter(receiver.url)
    receiver.answers = [200]
    jobs = await shop.jobs()
    sagas = await asyncio.gather(*(shop.webhooks.requeue(letter.id) for _ in range(8)))
    assert len({saga.id for saga in sagas}) == 1
    new = sagas[0]
    assert (new.event_id, new.subscription_id) == (dead.event_id, dead.subscription_id)
    assert (new.status, new.attempt_count, new.requeued_from) == ("Pending", 0, letter.id)
    assert await shop.webhooks.attempts(new.id) == []
    assert await shop.jobs() == jobs
    await shop.hf.run_due()
    old, ended = await shop.webhooks.sagas(event_id=dead.event_id)
    assert (ended.id, ended.status, ended.attempt_count) == (new.id, "Delivered", 1)
    assert old == dead
    assert await shop.webhooks.dead_letters() == [letter]
    assert len(receiver.requests) == 4


@on_sqlite
async def test_what_never_died_is_not_requeued(shop: Shop) -> None:
    with pytest.raises(DeadLetterNotFound):
        await shop.webhooks.requeue(uuid4())


@both_stores
async def test_the_same_id_twice_is_one_event(shop: Shop, receiver: Receiver) -> None:
    await shop.webhooks.subscribe(receiver.url)
    event_id = uuid4()
    events = await asyncio.gather(*(shop.publish(id=event_id) for _ in range(5)))
    assert all(event == events[0] for event in events)
    await shop.hf.run_due()
    assert len(receiver.requests) == 1


@on_sqlite
async def test_the_id_of_another_event_is_refused(shop: Shop) -> None:
    same: dict[str, Any] = {"event_type": "order.paid", "payload": {"order": 1, "paid": True}}
    first = await shop.webhooks.publish(**same)
    others: list[dict[str, Any]] = [
        {"event_type": "order.lost"},
        {"payload": {"order": 2, "paid": True}},
        {"payload": {"order": 1, "paid": 1}},
        {"aggregate_type": "order"},
        {"aggregate_id": "7"},
        {"occurred_at": datetime(2020, 1, 1, tzinfo=UTC)},
    ]
    for other in others:
        with pytest.raises(EventConflict):
            await shop.webhooks.publish(id=first.id, **{**same, **other})
    turned = {"payload": {"paid": True, "order": 1}}
    assert await shop.webhooks.publish(id=first.id, **{**same, **turned}) == first


@both_stores
async def test_an_event_id_belongs_to_its_tenant(shop: Shop, receiver: Receiver) -> None:
    event_id = uuid4()
    for tenant in ("a", "b"):
        await shop.webhooks.subscribe(receiver.url, tenant=tenant)
        other = {"order": tenant}
        await shop.webhooks.publish("order.paid", other, tenant=tenant, id=event_id)
    await shop.hf.run_due()
    assert {request.headers["webhook-id"] for request in receiver.requests} == {str(event_id)}
    bodies = [json.loads(request.body)["data"]["order"] for request in receiver.requests]
    assert sorted(bodies) == ["a", "b"]
    for tenant in ("a", "b"):
        (saga,) = await shop.webhooks.sagas(event_id=event_id, tenant=tenant)
        assert (saga.tenant, saga.status) == (tenant, "Delivered")
    assert await shop.webhooks.sagas(event_id=event_id) == []


@both_stores
async def test_what_belongs_to_another_tenant_does_not_exist(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.answers = [500]
    saga, letter = await shop.dead_letter(receiver.url)
    assert await shop.webhooks.attempts(saga.id, tenant="other") == []
    assert len(await shop.webhooks.attempts(saga.id, tenant=saga.tenant)) == 3
    with pytest.raises(DeadLetterNotFound):
        await shop.webhooks.requeue(letter.id, tenant="other")
    with pytest.raises(SubscriptionNotFound):
        await shop.webhooks.disable(saga.subscription_id, tenant="other")
    assert (await shop.webhooks.subscriptions())[0].disabled_at is None
    new = await shop.webhooks.requeue(letter.id, tenant=saga.tenant)
    assert new.requeued_from == letter.id


@both_stores
async def test_a_disabled_subscription_gets_nothing_more(shop: Shop, receiver: Receiver) -> None:
    receiver.answers = [503]
    subscription = await shop.webhooks.subscribe(receiver.url, preset="acme")
    waiting = await shop.publish()
    await shop.hf.run_due()
    unseen = await shop.publish()
    for _ in range(2):
        await shop.webhooks.disable(subscription.id)
    (known,) = await shop.webhooks.subscriptions()
    assert known.disabled_at is not None
    skipped = await shop.publish()
    await shop.hf.run_due()
    assert (await shop.saga(waiting)).status == (await shop.saga(unseen)).status == "Canceled"
    assert await shop.webhooks.sagas(event_id=skipped.id) == []
    assert len(receiver.requests) == 1
    with pytest.raises(SubscriptionNotFound):
        await shop.webhooks.disable(uuid4())


@both_stores
async def test_an_attempt_that_fails_after_its_subscription_was_disabled_is_the_last(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.answers = [503]
    receiver.gate.clear()
    subscription = await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    async with working(shop.hf):
        await signal(receiver.came)
        await shop.webhooks.disable(subscription.id)
        receiver.gate.set()

        async def has_ended() -> bool:
            return (await shop.saga(event)).ended_at is not None

        await wait_until(has_ended, "the saga has ended")
    assert (await shop.saga(event)).status == "Canceled"
    assert len(receiver.requests) == 1


@both_stores
async def test_an_event_goes_with_the_transaction_that_published_it(
    shop: Shop, receiver: Receiver
) -> None:
    await shop.webhooks.subscribe(receiver.url)
    lost_id = uuid4()

    async def fail() -> None:
        async with shop.hf.transaction() as connection:
            await shop.publish(id=lost_id, connection=connection)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with shop.hf.transaction() as connection:
        kept = await shop.publish(connection=connection)
    await shop.hf.run_due()
    assert await shop.webhooks.sagas(event_id=lost_id) == []
    assert (await shop.saga(kept)).status == "Delivered"
    assert len(receiver.requests) == 1


@on_sqlite
async def test_only_those_get_an_event_who_want_it_and_may_see_it(
    shop: Shop, receiver: Receiver
) -> None:
    base = receiver.url.removesuffix("/hook")
    await shop.webhooks.subscribe(f"{base}/all", tenant="a")
    await shop.webhooks.subscribe(f"{base}/paid", tenant="a", event_types=["order.paid", "x"])
    await shop.webhooks.subscribe(f"{base}/lost", tenant="a", event_types=["order.lost"])
    await shop.webhooks.subscribe(f"{base}/other", tenant="b")
    await shop.webhooks.subscribe(f"{base}/nobody")
    await shop.publish(tenant="a")
    await shop.hf.run_due()
    assert sorted(request.path for request in receiver.requests) == ["/all", "/paid"]


@both_stores
async def test_deliveries_are_jobs_of_the_events_tenant_wherever_it_is_published(
    shop: Shop, receiver: Receiver
) -> None:
    @shop.hf.job
    async def publish() -> None:
        await shop.publish(tenant="a")
        await shop.publish()

    for tenant in ("a", "default"):
        await shop.webhooks.subscribe(receiver.url, tenant=tenant)
    await shop.hf.for_tenant("b").enqueue(publish)
    await shop.hf.run_due()
    assert len(receiver.requests) == 2
    for tenant in ("a", "default"):
        jobs = (await shop.hf.for_tenant(tenant).jobs.list()).jobs
        assert {job.name for job in jobs} == {"webhooks.deliver"}
    (only,) = (await shop.hf.for_tenant("b").jobs.list()).jobs
    assert only.name == "publish"


@on_sqlite
async def test_an_event_that_can_not_be_told_is_refused(shop: Shop) -> None:
    bad: list[dict[str, Any]] = [
        *({"event_type": name} for name in ("", "order paid", "order\r\nX: 1", "a" * 201, 7)),
        *({"payload": {"bad": value}} for value in (float("nan"), "\0", "\ud800", "x" * 300_000)),
        *({"payload": value} for value in (None, "text", [("order", 1001)])),
        *({"aggregate_type": value} for value in ("", "\0", "\ud800", "x" * 201, 7)),
        *({"aggregate_id": value} for value in ("", "\0", "\ud800", "x" * 201, 7)),
        *({"occurred_at": value} for value in (datetime(2020, 1, 1), "2020-01-01")),  # noqa: DTZ001
        *({"occurred_at": value} for value in FAR_AWAY),
        *({"id": value} for value in (str(uuid4()), 7)),
        *({"tenant": value} for value in ("", "\0", "x" * 201, None)),
    ]
    for options in bad:
        with pytest.raises(BadArguments):
            await shop.webhooks.publish(**{"event_type": "a", "payload": {}, **options})
    assert await shop.fetch("SELECT * FROM holdfast.webhook_events") == []


@on_sqlite
async def test_what_is_no_id_and_no_number_is_refused(shop: Shop) -> None:
    known: Any = str(uuid4())
    fraction: Any = 1.5
    text: Any = "5"
    for ask in (
        lambda: shop.webhooks.sagas(event_id=known),
        lambda: shop.webhooks.attempts(known),
        lambda: shop.webhooks.requeue(known),
        lambda: shop.webhooks.dead_letters(limit=0),
        lambda: shop.webhooks.dead_letters(limit=-1),
        lambda: shop.webhooks.dead_letters(limit=1001),
        lambda: shop.webhooks.dead_letters(limit=fraction),
        lambda: shop.webhooks.dead_letters(limit=text),
        lambda: shop.webhooks.subscriptions(tenant=""),
        lambda: shop.webhooks.dead_letters(tenant=""),
    ):
        with pytest.raises(BadArguments):
            await ask()


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_seconds": 0},
        {"timeout_seconds": 301},
        {"guard_seconds": 0},
        {"guard_seconds": float("nan")},
        {"guard_seconds": float("inf")},
    ],
)
def test_a_setting_that_can_not_be_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Webhooks(Holdfast(f"sqlite:///{tmp_path}/shop.db"), **options)


@on_sqlite
async def test_an_endpoint_that_can_not_be_is_refused(shop: Shop) -> None:
    with pytest.raises(BadEndpoint):
        await shop.webhooks.subscribe("https://user:password@example.org/")
    with pytest.raises(BadEndpoint):
        await shop.webhooks.subscribe("https://example.org/", secret="weak")
    for event_types in ("order.paid", [7], [""], ["a"] * 101):
        with pytest.raises(BadArguments):
            await shop.webhooks.subscribe("https://example.org/", event_types=event_types)  # type: ignore[arg-type]
    assert await shop.webhooks.subscriptions() == []


@on_sqlite
async def test_secrets_stay_where_they_are(
    shop: Shop, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [500]
    caplog.set_level("DEBUG")
    subscription = await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    await shop.hf.run_due()
    saga = await shop.saga(event)
    shown = [
        await shop.webhooks.subscriptions(),
        await shop.webhooks.attempts(saga.id),
        await shop.fetch("SELECT * FROM holdfast.webhook_delivery_jobs"),
        await shop.fetch("SELECT * FROM holdfast.history"),
        subscription,
        caplog.text,
    ]
    assert subscription.secret.removeprefix("whsec_") not in repr(shown)


@both_stores
async def test_log_lines_name_saga_job_error_lease_and_worker(
    shop: Shop, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [500]
    caplog.set_level("INFO", "holdfast.webhooks")
    saga, letter = await shop.dead_letter(receiver.url)
    attempts = await shop.webhooks.attempts(saga.id)
    lines = [
        (getattr(record, "event", ""), getattr(record, "fields", {}))
        for record in caplog.records
        if record.name == "holdfast.webhooks"
    ]
    told = [fields for event, fields in lines if event == "webhook_attempt"]
    assert [fields["job_id"] for fields in told] == [attempt.id for attempt in attempts]
    for fields in told:
        assert (fields["saga_id"], fields["error_code"]) == (saga.id, "HTTP_500")
        assert fields["worker_id"]
        assert fields["lease_expiration"]
    (died,) = [fields for event, fields in lines if event == "webhook_dead_letter"]
    assert (died["dead_letter_id"], died["saga_id"]) == (letter.id, saga.id)
    assert (died["job_id"], died["error_code"]) == (attempts[-1].id, "HTTP_500")
    assert (died["worker_id"], died["lease_expiration"]) == (
        told[-1]["worker_id"],
        told[-1]["lease_expiration"],
    )
