"""An event for two endpoints: one recovers by itself, one has to be mended and requeued."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import msgspec

from holdfast.webhooks import DeadLetter, Event, Saga, Webhooks
from holdfast_systems.demos import webhooks_app
from holdfast_systems.demos.frame import Stage

WAIT_SECONDS_MAX = 20.0
LOOK_SECONDS = 0.05
RECOVERS = [503, 503, 200]
BROKEN = [500]
ORDER = {"order": 1001, "cents": 1990}


async def run(stage: Stage) -> None:
    hf, webhooks = webhooks_app.make(stage.url)
    await hf.migrate()
    async with hf, aiohttp.ClientSession() as client:
        with stage.step("start a receiver and a worker") as step:
            receiver = await stage.start("receiver", "holdfast_systems.demos.receiver")
            await stage.worker("holdfast_systems.demos.webhooks_app:hf")
            step.says(f"the receiver is at {receiver.address}")
        shop = _Shop(webhooks, client, receiver.address, f"demo-{hf.new_id()}")
        event = await _publish(stage, shop)
        await _recover(stage, shop, event)
        letter = await _die(stage, shop, event)
        await _requeue(stage, shop, event, letter)
        await _leave(stage, shop, event)


class _Shop:
    """A tenant of its own: the database may have seen this demonstration before."""

    def __init__(
        self, webhooks: Webhooks, client: aiohttp.ClientSession, receiver: str, tenant: str
    ) -> None:
        self.webhooks = webhooks
        self.tenant = tenant
        self.names: dict[UUID, str] = {}
        self._secrets: dict[str, str] = {}
        self._client = client
        self._receiver = receiver

    async def subscribe(self, name: str, answers: list[int]) -> None:
        url = f"{self._receiver}/hooks/{name}"
        made = await self.webhooks.subscribe(url, event_types=["order.paid"], tenant=self.tenant)
        self.names[made.id] = name
        self._secrets[name] = made.secret
        await self.tell(name, answers)

    async def publish(self, event_id: UUID | None = None) -> Event:
        return await self.webhooks.publish("order.paid", ORDER, tenant=self.tenant, id=event_id)

    async def tell(self, name: str, answers: list[int]) -> None:
        told = {"secret": self._secrets[name], "answers": answers}
        url = f"{self._receiver}/endpoints/{name}"
        async with self._client.put(url, json=told, raise_for_status=True):
            pass

    async def received(self, name: str) -> list[dict[str, Any]]:
        async with self._client.get(f"{self._receiver}/received") as response:
            requests: list[dict[str, Any]] = (await response.json())[name]
            return requests

    async def ended(self, event: Event, name: str) -> Saga:
        """Wait for the end of the newest saga of this endpoint."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            sagas = await self.webhooks.sagas(event_id=event.id)
            saga = [saga for saga in sagas if self.names[saga.subscription_id] == name][-1]
            if saga.ended_at is not None:
                return saga
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {WAIT_SECONDS_MAX:g} s it is still this: {saga}")
            await asyncio.sleep(LOOK_SECONDS)


async def _publish(stage: Stage, shop: _Shop) -> Event:
    with stage.step("subscribe two endpoints, publish an event") as step:
        await shop.subscribe("recovers", RECOVERS)
        await shop.subscribe("broken", BROKEN)
        event = await shop.publish()
        again = await shop.publish(event.id)
        sagas = await shop.webhooks.sagas(event_id=event.id)
        step.expects(again == event, "the same id twice is one event")
        step.expects(len(sagas) == 2, "one saga for each endpoint")
        step.says(f"{len(sagas)} sagas")
        return event


async def _recover(stage: Stage, shop: _Shop, event: Event) -> None:
    with stage.step("an endpoint that answers 503 twice") as step:
        saga = await shop.ended(event, "recovers")
        requests = await shop.received("recovers")
        step.expects(saga.status == "Delivered", "the saga is delivered")
        step.expects(saga.attempt_count == 3, "by the third attempt")
        step.expects(
            [request["answered"] for request in requests] == RECOVERS,
            "three requests, and each with a good signature",
        )
        step.says(f"{saga.status} after {saga.attempt_count} attempts")


async def _die(stage: Stage, shop: _Shop, event: Event) -> DeadLetter:
    with stage.step("an endpoint that always answers 500") as step:
        saga = await shop.ended(event, "broken")
        (letter,) = await shop.webhooks.dead_letters(tenant=shop.tenant)
        step.expects(saga.status == "DeadLettered", "the saga is a dead letter")
        step.expects(letter.payload == ORDER, "with the whole payload")
        step.says(f"{saga.status}: {letter.final_error_code}")
        return letter


async def _requeue(stage: Stage, shop: _Shop, event: Event, letter: DeadLetter) -> None:
    with stage.step("mend it, and requeue the dead letter twice") as step:
        await shop.tell("broken", [200])
        first, second = await asyncio.gather(
            shop.webhooks.requeue(letter.id), shop.webhooks.requeue(letter.id)
        )
        saga = await shop.ended(event, "broken")
        step.expects(first.id == second.id == saga.id, "two clicks, one new saga")
        step.expects(saga.status == "Delivered", "the new saga is delivered")
        step.says(f"one new saga: {saga.status}")


async def _leave(stage: Stage, shop: _Shop, event: Event) -> None:
    with stage.step("look at everything that happened") as step:
        sagas = await shop.webhooks.sagas(event_id=event.id)
        letters = await shop.webhooks.dead_letters(tenant=shop.tenant)
        told = {
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
        _write(stage.out / "attempts.json", told)
        stage.made(stage.out / "attempts.json", "every saga with its attempts, and the dead letter")
        step.says(f"{len(sagas)} sagas, {len(letters)} dead letter")


def _write(path: Path, told: object) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=2))
