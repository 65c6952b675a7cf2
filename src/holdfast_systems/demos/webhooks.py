"""An event for two endpoints: one recovers, the other has to be fixed and its event requeued."""

from __future__ import annotations

import asyncio
from uuid import UUID

import msgspec

from holdfast.webhooks import DeadLetter, Event, Saga, Webhooks
from holdfast_systems.demos import webhooks_app
from holdfast_systems.demos.frame import Settings, Stage, until
from holdfast_systems.demos.receiver import read_requests, set_answers

RECOVERS = [503, 503, 200]
BROKEN = [500]
ORDER = {"order": 1001, "cents": 1990}


async def prepare(_stage: Stage) -> Settings:
    return {}


async def run(stage: Stage) -> None:
    hf, webhooks = webhooks_app.make(stage.url)
    await hf.migrate()
    async with hf:
        with stage.step("start a receiver and a worker") as step:
            receiver = await stage.start("receiver", "holdfast_systems.demos.receiver")
            await stage.serve("holdfast_systems.demos.webhooks_app:hf", prepare)
            step.says(f"the receiver is at {receiver.address}")
        shop = _Shop(webhooks, receiver.address, f"demo-{hf.new_id()}")
        event = await _publish(stage, shop)
        await _recover(stage, shop, event)
        letter = await _die(stage, shop, event)
        await _requeue(stage, shop, event, letter)
        await _write_attempts(stage, shop, event)


class _Shop:
    """A new tenant each time: the database may have seen this demo before."""

    def __init__(self, webhooks: Webhooks, receiver: str, tenant: str) -> None:
        self.webhooks = webhooks
        self.tenant = tenant
        self.receiver = receiver
        self.names: dict[UUID, str] = {}
        self._secrets: dict[str, str] = {}

    async def subscribe(self, name: str, answers: list[int]) -> None:
        url = f"{self.receiver}/hooks/{name}"
        made = await self.webhooks.subscribe(url, event_types=["order.paid"], tenant=self.tenant)
        self.names[made.id] = name
        self._secrets[name] = made.secret
        await self.set_answers(name, answers)

    async def set_answers(self, name: str, answers: list[int]) -> None:
        await set_answers(self.receiver, name, self._secrets[name], answers)

    async def publish(self, event_id: UUID | None = None) -> Event:
        return await self.webhooks.publish("order.paid", ORDER, tenant=self.tenant, id=event_id)

    async def ended(self, event: Event, name: str) -> Saga:
        """Wait for the end of this endpoint's newest saga."""

        async def newest() -> Saga:
            sagas = await self.webhooks.sagas(event_id=event.id, tenant=self.tenant)
            return [saga for saga in sagas if self.names[saga.subscription_id] == name][-1]

        return await until(newest, lambda saga: saga.ended_at is not None)


async def _publish(stage: Stage, shop: _Shop) -> Event:
    with stage.step("subscribe two endpoints and publish an event") as step:
        await shop.subscribe("recovers", RECOVERS)
        await shop.subscribe("broken", BROKEN)
        event = await shop.publish()
        again = await shop.publish(event.id)
        sagas = await shop.webhooks.sagas(event_id=event.id, tenant=shop.tenant)
        step.expects(again == event, "one event when its id is published twice")
        step.expects(len(sagas) == 2, "one saga for each endpoint")
        step.says(f"{len(sagas)} sagas")
        return event


async def _recover(stage: Stage, shop: _Shop, event: Event) -> None:
    with stage.step("one endpoint answers 503 twice, then recovers") as step:
        saga = await shop.ended(event, "recovers")
        requests = await read_requests(shop.receiver, "recovers")
        step.expects(saga.status == "Delivered", "a delivered saga")
        step.expects(saga.attempt_count == 3, "three attempts")
        step.expects(
            [request["answered"] for request in requests] == RECOVERS,
            "three requests with valid signatures",
        )
        step.says(f"{saga.status} after {saga.attempt_count} attempts")


async def _die(stage: Stage, shop: _Shop, event: Event) -> DeadLetter:
    with stage.step("the other one always answers 500") as step:
        saga = await shop.ended(event, "broken")
        (letter,) = await shop.webhooks.dead_letters(tenant=shop.tenant)
        step.expects(saga.status == "DeadLettered", "a dead letter")
        step.expects(letter.payload == ORDER, "the whole payload in the dead letter")
        step.says(f"{saga.status}: {letter.final_error_code}")
        return letter


async def _requeue(stage: Stage, shop: _Shop, event: Event, letter: DeadLetter) -> None:
    with stage.step("fix it and requeue the dead letter twice") as step:
        await shop.set_answers("broken", [200])
        first, second = await asyncio.gather(
            shop.webhooks.requeue(letter.id), shop.webhooks.requeue(letter.id)
        )
        saga = await shop.ended(event, "broken")
        step.expects(first.id == second.id == saga.id, "one new saga for two requeues")
        step.expects(saga.status == "Delivered", "a delivered saga")
        step.says(f"one new saga: {saga.status}")


async def _write_attempts(stage: Stage, shop: _Shop, event: Event) -> None:
    with stage.step("write down every attempt") as step:
        sagas = await shop.webhooks.sagas(event_id=event.id, tenant=shop.tenant)
        letters = await shop.webhooks.dead_letters(tenant=shop.tenant)
        report = {
            "event": event,
            "sagas": [
                {
                    "endpoint": shop.names[saga.subscription_id],
                    "saga": saga,
                    "attempts": await shop.webhooks.attempts(saga.id),
                }
                for saga in sagas
            ],
            "dead_letters": letters,
        }
        path = stage.out / "attempts.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2))
        stage.made(path, "every saga with its attempts, and the dead letter")
        step.says(f"{len(sagas)} sagas, {len(letters)} dead letter")
