"""Delivery and decision are separate processes on separate roles of PostgreSQL, which refuses each
of them the work of the other."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.webhooks import DeadLetter, Event, Webhooks
from holdfast.webhooks.delivery_job import DELIVERY, ORCHESTRATION
from tests.support.processes import Process, wait_until
from tests.support.roles import InstalledRoles, installed_roles
from tests.support.running import QUICK, signal, working
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import AT_ONCE, FAR_SECONDS, Shop, on_postgres

pytestmark = pytest.mark.heavy

CLICKS = 20
REFUSED_TO_DELIVERY = (
    "INSERT INTO holdfast.jobs (id, name, queue, priority, arguments, max_attempts)"
    f" VALUES ('{uuid4()}', 'webhooks.deliver', '{DELIVERY}', 0, '{{}}', 4)",
    "UPDATE holdfast.jobs SET queue = 'other'",
    "UPDATE holdfast.webhook_sagas SET status = 'Delivered'",
    "INSERT INTO holdfast.webhook_sagas SELECT * FROM holdfast.webhook_sagas",
    "INSERT INTO holdfast.webhook_attempts SELECT * FROM holdfast.webhook_attempts",
    "UPDATE holdfast.webhook_attempts SET judged = true",
    "UPDATE holdfast.webhook_attempts SET attempt_no = attempt_no + 1",
    "INSERT INTO holdfast.webhook_dead_letters SELECT * FROM holdfast.webhook_dead_letters",
    "SELECT * FROM holdfast.webhook_dead_letters",
    "UPDATE holdfast.webhook_attempt_log SET error_text = NULL",
    "DELETE FROM holdfast.webhook_attempts",
    f"SELECT holdfast.requeue_dead_letter('{uuid4()}')",
    f"SELECT holdfast.disable_webhook_subscription('{uuid4()}')",
    "INSERT INTO holdfast.audit_log (id, at, actor, action, outcome, jobs)"
    f" VALUES ('{uuid4()}', now(), 'ann', 'key.create', 'allowed', 0)",
)
REFUSED_TO_ORCHESTRATOR = (
    "SELECT * FROM holdfast.webhook_secrets",
    "UPDATE holdfast.webhook_subscriptions SET url = 'https://example.org/'",
    "UPDATE holdfast.webhook_events SET payload = '{}'",
    "INSERT INTO holdfast.webhook_events SELECT * FROM holdfast.webhook_events",
    "INSERT INTO holdfast.webhook_attempt_log SELECT * FROM holdfast.webhook_attempt_log",
    "DELETE FROM holdfast.webhook_sagas",
)


def make_app(url: str) -> tuple[Holdfast, Webhooks]:
    hf = Holdfast(url, **QUICK)
    webhooks = Webhooks(
        hf,
        https_only=False,
        allow_private_addresses=True,
        retry=AT_ONCE,
        guard_seconds=FAR_SECONDS,
    )
    return hf, webhooks


@pytest.fixture
async def roles(postgres_url: str) -> AsyncIterator[InstalledRoles]:
    async with installed_roles(postgres_url, lambda url: make_app(url)[0]) as roles:
        yield roles


@pytest.fixture
def processes(roles: InstalledRoles, tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(roles, tmp_path)
    yield processes
    processes.kill()


class Processes:
    def __init__(self, roles: InstalledRoles, folder: Path) -> None:
        self._roles = roles
        self._folder = folder
        self._started: list[Process] = []

    def start(self, role: str, queue: str) -> Process:
        variables = {
            "HOLDFAST_DATABASE_URL": self._roles.url(role),
            "HOLDFAST_LEASE_SECONDS": "1",
        }
        if role == "delivery":
            variables["HOLDFAST_SECRET_KEYS"] = os.environ["HOLDFAST_SECRET_KEYS"]
        command = ["-m", "holdfast.cli.main", "worker", "tests.webhooks.app:hf", "--queues", queue]
        name = f"{role}-{len(self._started)}"
        self._started.append(Process(name, command, self._folder, variables))
        return self._started[-1]

    def kill(self) -> None:
        for process in self._started:
            process.kill()


@asynccontextmanager
async def as_role(roles: InstalledRoles, role: str) -> AsyncIterator[Webhooks]:
    hf, webhooks = make_app(roles.url(role))
    async with hf:
        yield webhooks


async def status_of(webhooks: Webhooks, event: Event) -> str:
    (saga,) = await webhooks.sagas(event_id=event.id, tenant=event.tenant)
    return saga.status


async def test_an_event_survives_the_death_of_each_process_on_its_role(
    roles: InstalledRoles, processes: Processes, receiver: Receiver
) -> None:
    receiver.answers = [503]
    receiver.gate.clear()
    async with as_role(roles, "api") as api:
        await api.subscribe(receiver.url, tenant="acme")
        event = await api.publish("order.paid", {"order": 1001}, tenant="acme")
        orchestrator = processes.start("orchestrator", ORCHESTRATION)
        delivery = processes.start("delivery", DELIVERY)
        await signal(receiver.came)
        assert await status_of(api, event) == "InFlight"
        delivery.kill()
        orchestrator.kill()
        receiver.came.clear()
        delivery = processes.start("delivery", DELIVERY)
        await signal(receiver.came)
        receiver.gate.set()

        async def is_reported() -> bool:
            (saga,) = await api.sagas(event_id=event.id, tenant="acme")
            (attempt,) = await api.attempts(saga.id, tenant="acme")
            return attempt.status == "Failed"

        # Nobody decides what follows, for there is nobody who may.
        await wait_until(is_reported, lambda: f"reported: {delivery.text}")
        assert await status_of(api, event) == "InFlight"
        receiver.answers = [200]
        orchestrator = processes.start("orchestrator", ORCHESTRATION)

        async def is_delivered() -> bool:
            return await status_of(api, event) == "Delivered"

        await wait_until(is_delivered, lambda: f"{orchestrator.text}{delivery.text}")
    assert len(receiver.requests) == 3


async def test_the_database_refuses_each_role_the_work_of_the_others(
    roles: InstalledRoles, receiver: Receiver
) -> None:
    receiver.answers = [500]
    letter = await make_dead_letter(roles, receiver.url)
    for role, statements in (
        ("delivery", REFUSED_TO_DELIVERY),
        ("orchestrator", REFUSED_TO_ORCHESTRATOR),
        ("operator", ["UPDATE holdfast.webhook_sagas SET attempt_count = 0"]),
        ("worker", ["INSERT INTO holdfast.webhook_sagas SELECT * FROM holdfast.webhook_sagas"]),
    ):
        for statement in statements:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await fetch(roles, role, statement)
    requeue = "SELECT holdfast.requeue_dead_letter($1)"
    clicks = [fetch(roles, "operator", requeue, letter.id) for _ in range(CLICKS)]
    (saga_id,) = set(await asyncio.gather(*clicks))
    with pytest.raises(asyncpg.NoDataFoundError, match="does not exist"):
        await fetch(roles, "operator", requeue, uuid4())
    with pytest.raises(asyncpg.NoDataFoundError, match="does not exist"):
        await fetch(roles, "api", requeue, letter.id, tenant="other")
    async with as_role(roles, "api") as api:
        old, new = await api.sagas(event_id=letter.event_id, tenant="acme")
        assert (old.id, old.status) == (letter.saga_id, "DeadLettered")
        assert (new.id, new.status, new.requeued_from) == (saga_id, "Pending", letter.id)
        assert await api.attempts(new.id) == []
        assert await api.requeue(letter.id, tenant="acme") == new
        await api.disable(letter.subscription_id, tenant="acme")


@on_postgres
async def test_a_tenants_transaction_requeues_only_its_own_without_roles_too(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.answers = [500]
    _, letter = await shop.dead_letter(receiver.url)
    connection = await asyncpg.connect(shop.url)
    try:
        for statement, value in (
            ("SELECT holdfast.requeue_dead_letter($1)", letter.id),
            ("SELECT holdfast.disable_webhook_subscription($1)", letter.subscription_id),
        ):
            await connection.execute("SELECT set_config('holdfast.tenant', 'other', false)")
            with suppress(asyncpg.NoDataFoundError):
                assert not await connection.fetchval(statement, value)
            await connection.execute("SELECT set_config('holdfast.tenant', $1, false)", "default")
            assert await connection.fetchval(statement, value)
    finally:
        await connection.close()


async def make_dead_letter(roles: InstalledRoles, url: str) -> DeadLetter:
    delivery, _ = make_app(roles.url("delivery"))
    orchestrator, _ = make_app(roles.url("orchestrator"))
    async with as_role(roles, "api") as api, delivery, orchestrator:
        await api.subscribe(url, tenant="acme")
        event = await api.publish("order.paid", {"order": 1001}, tenant="acme")

        async def is_dead() -> bool:
            return await status_of(api, event) == "DeadLettered"

        async with (
            working(delivery, queues=[DELIVERY]),
            working(orchestrator, queues=[ORCHESTRATION]),
        ):
            await wait_until(is_dead, "dead")
        (letter,) = await api.dead_letters(tenant="acme")
        return letter


async def fetch(
    roles: InstalledRoles, role: str, sql: str, *values: UUID, tenant: str | None = None
) -> Any:
    connection = await asyncpg.connect(roles.url(role))
    try:
        if tenant is not None:
            await connection.execute("SELECT set_config('holdfast.tenant', $1, false)", tenant)
        return await connection.fetchval(sql, *values)
    finally:
        await connection.close()
