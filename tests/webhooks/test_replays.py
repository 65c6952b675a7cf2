"""Send the events of a time range again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from holdfast import BadArguments
from holdfast.webhooks import Event, Replay, ReplayCount, ReplayNotFound, SubscriptionNotFound
from holdfast.webhooks.limits import REPLAY_EVENTS_AT_ONCE_MAX, REPLAY_WAITING_MAX
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import Shop, both_stores, on_sqlite

pytestmark = pytest.mark.heavy

EVER = (datetime(2020, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC))


async def sagas_of(shop: Shop, replay: Replay) -> list[str]:
    rows = await shop.fetch(
        f"SELECT event_id FROM holdfast.webhook_sagas WHERE replay_id = '{replay.id}'"
    )
    return sorted(str(row["event_id"]) for row in rows)


@both_stores
async def test_a_replay_sends_what_was_published_in_its_range_to_those_who_want_it(
    shop: Shop, receiver: Receiver
) -> None:
    base = receiver.url.removesuffix("/hook")
    await shop.webhooks.subscribe(f"{base}/all")
    paid = await shop.webhooks.subscribe(f"{base}/paid", event_types=["order.paid"])
    await shop.webhooks.subscribe(f"{base}/other", tenant="other")
    events = [await shop.publish() for _ in range(2)]
    events.append(await shop.webhooks.publish("order.lost", {}))
    await shop.publish(tenant="other")
    await shop.webhooks.send_test(paid.id)
    await shop.hf.run_due()
    receiver.requests.clear()
    first, last = events[0].created_at, events[-1].created_at + timedelta(microseconds=1)
    counted = await shop.webhooks.count_replay(first, last)
    assert counted == ReplayCount(events=3, sagas=5, is_all=True)
    assert await shop.webhooks.count_replay(first, events[1].created_at) == ReplayCount(1, 2, True)
    to_one = await shop.webhooks.count_replay(first, last, subscription_id=paid.id)
    assert (to_one.events, to_one.sagas) == (3, 2)
    assert receiver.requests == []
    replay = await shop.webhooks.replay(first, last)
    assert (replay.events, replay.sagas, replay.ended_at) == (0, 0, None)
    await shop.hf.run_due()
    paths = sorted(request.path for request in receiver.requests)
    assert paths == ["/all", "/all", "/all", "/paid", "/paid"]
    done = await shop.webhooks.get_replay(replay.id, tenant="default")
    assert (done.events, done.sagas, done.ended_at is not None) == (3, 5, True)
    one = await shop.webhooks.replay(first, last, subscription_id=paid.id)
    await shop.hf.run_due()
    assert len(await sagas_of(shop, one)) == 2


@both_stores
async def test_a_replay_goes_in_steps_and_waits_for_its_own_sagas(
    shop: Shop, receiver: Receiver
) -> None:
    await shop.webhooks.subscribe(receiver.url)
    count = REPLAY_EVENTS_AT_ONCE_MAX * 2 + 3
    async with shop.hf.transaction() as connection:  # all at the same time, on PostgreSQL
        events = [await shop.publish(connection=connection) for _ in range(count)]
    await shop.fetch(
        "UPDATE holdfast.webhook_sagas SET status = 'Canceled', next_attempt_at = NULL,"
        " ended_at = created_at"
    )
    replay = await shop.webhooks.replay(*EVER)
    for step in (1, 2):
        assert await shop.webhooks._replays.step()
        known = await shop.webhooks.get_replay(replay.id)
        assert (known.events, known.ended_at) == (step * REPLAY_EVENTS_AT_ONCE_MAX, None)
    assert await shop.webhooks._replays.step()
    assert not await shop.webhooks._replays.step()
    known = await shop.webhooks.get_replay(replay.id)
    assert (known.events, known.sagas, known.ended_at is not None) == (count, count, True)
    assert await sagas_of(shop, replay) == sorted(str(event.id) for event in events)


@on_sqlite
async def test_a_replay_does_not_flood_the_orchestrator(shop: Shop) -> None:
    for _ in range(10):
        await shop.webhooks.subscribe("https://example.org/")
    per_step = REPLAY_EVENTS_AT_ONCE_MAX * 10
    steps = REPLAY_WAITING_MAX // per_step
    async with shop.hf.transaction() as connection:
        for _ in range(REPLAY_EVENTS_AT_ONCE_MAX * (steps + 2)):
            await shop.publish(connection=connection)
    replay = await shop.webhooks.replay(*EVER)
    told = [await shop.webhooks._replays.step() for _ in range(steps + 2)]
    assert told == [True] * steps + [False] * 2
    await shop.fetch(
        "UPDATE holdfast.webhook_sagas SET status = 'Canceled', next_attempt_at = NULL,"
        " ended_at = created_at"
    )
    assert await shop.webhooks._replays.step()
    assert (await shop.webhooks.get_replay(replay.id)).sagas == (steps + 1) * per_step


@both_stores
async def test_what_is_published_later_is_not_replayed(shop: Shop, receiver: Receiver) -> None:
    await shop.webhooks.subscribe(receiver.url)
    old = await shop.publish()
    replay = await shop.webhooks.replay(*EVER)
    assert replay.until < EVER[1]
    new: Event = await shop.publish()
    await shop.hf.run_due()
    assert await sagas_of(shop, replay) == [str(old.id)]
    assert len(await shop.webhooks.sagas(event_id=new.id)) == 1


@on_sqlite
async def test_a_replay_that_can_not_be_is_refused(shop: Shop) -> None:
    made = await shop.webhooks.subscribe("https://example.org/", tenant="other")
    since, until = EVER
    for bad in ((until, since), (since, since), (since.replace(tzinfo=None), until)):
        for ask in (shop.webhooks.replay, shop.webhooks.count_replay):
            with pytest.raises(BadArguments):
                await ask(*bad)
    with pytest.raises(SubscriptionNotFound):
        await shop.webhooks.replay(*EVER, subscription_id=made.id)
    with pytest.raises(ReplayNotFound):
        await shop.webhooks.get_replay(uuid4())
