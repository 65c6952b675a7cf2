"""An application with webhooks, on a database of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast, Job, Retry
from holdfast.webhooks import DeadLetter, Event, Message, Preset, Request, Saga, Webhooks
from holdfast.webhooks.policy import Policy
from tests.support.running import QUICK

both_stores = pytest.mark.parametrize("store_url", ["sqlite", "pg15"], indirect=True)
on_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
on_postgres = pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
# Due at once, so that `run_due` sees a saga through; the guard is far away.
AT_ONCE = Retry.schedule([0, 0])
FAR_SECONDS = 3600.0


def make_request(message: Message, keys: Sequence[bytes]) -> Request:
    headers = {"X-Delivery": str(message.saga_id), "X-Key": keys[-1].hex()}
    return Request(headers, message.payload.encode())


ACME = Preset(
    name="acme",
    make_request=make_request,
    retry=Retry.schedule([2, 4, 8, 16]),
    refusals_are_permanent=True,
)


def make_policy(**options: Any) -> Policy:
    """What is right on loopback, or as these options say."""
    chosen = {
        "https_only": False,
        "allow_private_addresses": True,
        "retry": AT_ONCE,
        "timeout_seconds": 10.0,
        "guard_seconds": FAR_SECONDS,
    }
    return Policy(**{**chosen, **options})


@dataclass
class Shop:
    url: str
    hf: Holdfast
    webhooks: Webhooks

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, presets: Sequence[Preset] = (ACME,), **options: Any
    ) -> AsyncIterator[Shop]:
        hf = Holdfast(url, **QUICK)
        settings = msgspec.structs.asdict(make_policy(**options))
        del settings["refusals_are_permanent"]  # a preset says that
        webhooks = Webhooks(hf, presets=presets, **settings)
        await hf.migrate()
        async with hf:
            yield cls(url, hf, webhooks)

    async def publish(self, **options: Any) -> Event:
        return await self.webhooks.publish("order.paid", {"order": 1001}, **options)

    async def saga(self, event: Event) -> Saga:
        (saga,) = await self.webhooks.sagas(event_id=event.id, tenant=event.tenant)
        return saga

    async def dead_letter(self, url: str) -> tuple[Saga, DeadLetter]:
        """Let an event die at this endpoint."""
        await self.webhooks.subscribe(url)
        event = await self.publish()
        await self.hf.run_due()
        (letter,) = await self.webhooks.dead_letters()
        return await self.saga(event), letter

    async def jobs(self) -> list[Job]:
        """All jobs, oldest first."""
        return list(reversed((await self.hf.jobs.list(limit=100)).jobs))

    async def let_guards_run_out(self) -> None:
        """Make the check due of every attempt that was not reported."""
        await self.fetch(
            "UPDATE holdfast.webhook_attempts SET check_at = attempt_at WHERE status = 'Pending'"
        )

    async def run_guard(self) -> None:
        await self.let_guards_run_out()
        await self.hf.run_due()

    async def fetch(self, sql: str) -> list[dict[str, Any]]:
        async with self.hf.transaction() as connection:
            written = sql if self.url.startswith("postgres") else sql.replace("holdfast.", "")
            return [dict(row) for row in await connection.fetch(written)]
