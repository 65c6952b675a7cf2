"""All five systems on PostgreSQL, with every process on the least role that it needs.

Documents keep their queue in Salesforce, which has permissions of its own: their worker needs no
role of the database.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import asyncpg
import pytest

from holdfast import Holdfast, SweepContext
from holdfast.domain.encryption import make_keys
from holdfast.webhooks import DeadLetter, Webhooks
from holdfast_systems.compute.service import Compute
from holdfast_systems.compute.settings import ComputeSettings
from holdfast_systems.convert.service import Convert
from holdfast_systems.convert.settings import ConvertSettings
from holdfast_systems.demos.compute import REQUEST
from holdfast_systems.demos.convert import INVOICE, make_pdf
from holdfast_systems.demos.documents import SUCCEEDED, _record
from holdfast_systems.demos.frame import WEBHOOK_RETRY, Stage, open_stage
from holdfast_systems.demos.passport import BILL_OF_MATERIALS, KEYS, RULES
from holdfast_systems.demos.receiver import set_answers
from holdfast_systems.documents.salesforce.client import Salesforce
from holdfast_systems.passport.canonical import id_of
from holdfast_systems.passport.handlers.deliver_webhook import EVENT_TYPE
from holdfast_systems.passport.system import Passport
from tests.support.command import run_command
from tests.support.processes import Process, wait_until
from tests.support.roles import InstalledRoles, installed_roles

pytestmark = pytest.mark.heavy

TARGET = "holdfast_systems.demos.service:hf"
QUEUES = {
    "worker": "passport,convert,compute",
    "orchestrator": "webhooks.orchestration",
    "delivery": "webhooks.delivery",
}
TENANT = "acme"
SECRETS = {"HOLDFAST_SECRET_KEYS": make_keys()}
TABLES = (
    *("compute_jobs", "compute_hashes", "compute_results", "compute_artifacts"),
    "compute_counters",
    *("convert_conversions", "convert_jobs", "job"),
    *("passport_document_versions", "passport_facts", "passport_rules", "passport_snapshots"),
    *("passport_snapshot_documents", "passport_snapshot_facts", "passport_versions"),
    *("passport_audit_events", "passport_jobs", "webhook_deliveries"),
)
NOWHERE = "http://127.0.0.1:9"
PEPPER = {"HOLDFAST_KEY_PEPPER": "p" * 32}


class Systems:
    """The systems that share a database, as an application on this role has them."""

    def __init__(self, url: str, gateway: str = NOWHERE, folder: Path = Path()) -> None:
        self.hf = Holdfast(url, poll_seconds=0.2)
        self.webhooks = Webhooks(
            self.hf, https_only=False, allow_private_addresses=True, retry=WEBHOOK_RETRY
        )
        self.passport = Passport(self.hf, self.webhooks)
        settings = ConvertSettings(
            gateway_url=gateway, uploads_dir=folder / "uploads", results_dir=folder / "results"
        )
        self.convert = Convert(self.hf, settings)
        self.compute = Compute(self.hf, ComputeSettings())


@dataclass
class World:
    roles: InstalledRoles
    stage: Stage
    app: Systems  # on the role of the API
    http: aiohttp.ClientSession
    salesforce: Salesforce
    folder: Path
    fixtures: set[int]  # sessions of what made the database
    processes: list[Process]

    def command(self, role: str, *words: str) -> str:
        done = run_command(*words, folder=self.folder, url=self.roles.url(role))
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def get(self, path: str) -> Any:
        async with self.http.get(path) as response:
            assert response.status == 200, await response.text()
            return await response.json()


@asynccontextmanager
async def world(postgres_url: str, folder: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        roles = await stack.enter_async_context(
            installed_roles(postgres_url, lambda url: Systems(url).hf)
        )
        fixtures = set(await _sessions(roles))
        stage = await stack.enter_async_context(open_stage("roles", folder / "out"))
        await _start_others(stage)
        gateway = stage.services["gateway"].address
        settings = _settings(stage, folder, gateway)
        commands = {"api": ["serve", TARGET, "--port=0"]} | {
            role: ["worker", TARGET, f"--queues={queues}"] for role, queues in QUEUES.items()
        }
        processes = []
        for role, words in commands.items():
            environment = {"HOLDFAST_DATABASE_URL": roles.url(role), **settings}
            environment |= SECRETS if role in ("api", "delivery") else {}
            processes.append(_start(stack, role, words, environment, folder))
        salesforce = stage.services["salesforce"].address.removeprefix("http://")
        documents = {
            "SALESFORCE_URL": f"salesforce+http://integration:integration-secret@{salesforce}",
            "HOLDFAST_POLL_SECONDS": "0.3",
        }
        words = ["worker", "holdfast_systems.documents.app:hf"]
        processes.append(_start(stack, "documents", words, documents, folder))
        app = Systems(roles.url("api"), gateway, folder)
        await stack.enter_async_context(app.hf)
        key = await app.hf.keys.create("shop", scopes=["read", "enqueue"], tenant=TENANT)
        address = (await processes[0].logs("serving"))["message"]
        http = aiohttp.ClientSession(address, headers={"authorization": f"Bearer {key.key}"})
        await stack.enter_async_context(http)
        customer = Salesforce(f"salesforce+http://admin:admin-secret@{salesforce}")
        await stack.enter_async_context(customer)
        yield World(roles, stage, app, http, customer, folder, fixtures, processes)


async def _start_others(stage: Stage) -> None:
    """What the systems talk to: none of it uses the database."""
    await asyncio.gather(
        stage.start("appserver", "holdfast_systems.compute.appserver"),
        stage.start("gateway", "holdfast_systems.convert.gateway"),
        stage.start("receiver", "holdfast_systems.demos.receiver"),
        stage.start("salesforce", "holdfast_systems.documents.salesforce.local"),
    )


def _settings(stage: Stage, folder: Path, gateway: str) -> dict[str, str]:
    keys = folder / "keys.json"
    keys.write_text(json.dumps(KEYS), encoding="utf-8")
    return {
        **PEPPER,
        "APP_SERVER_URL": stage.services["appserver"].address + "/gh/{def}:{ver}/solve",
        "GATEWAY_URL": gateway,
        "UPLOADS_DIR": str(folder / "uploads"),
        "RESULTS_DIR": str(folder / "results"),
        "BPC_SIGNING_KEYS_FILE": str(keys),
    }


def _start(
    stack: AsyncExitStack, name: str, words: list[str], environment: dict[str, str], folder: Path
) -> Process:
    command = ["-m", "holdfast.cli.main", *words, "--log-format=json"]
    process = Process(name, command, folder, environment)
    stack.callback(process.kill)
    return process


async def test_every_process_of_all_systems_runs_on_its_least_role(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (SECRETS | PEPPER).items():
        monkeypatch.setenv(name, value)
    async with world(postgres_url, tmp_path) as made:
        await asyncio.gather(
            _convert(made),
            _issue_a_passport(made),
            _generate_a_document(made),
            _operate(made),
            _requeue_a_dead_letter(made),
        )
        await _look(made)
        await _look_as_another_tenant(made)
        sessions = await _sessions(made.roles)
        logins = {login for pid, login in sessions.items() if pid not in made.fixtures}
        assert logins == {made.roles.name(role) for role in ("api", *QUEUES)}
        await _stop(made)


async def _compute(made: World) -> UUID:
    async with made.http.post("/jobs/run", json=REQUEST) as response:
        assert response.status == 202, await response.text()
        return UUID((await response.json())["job_id"])


async def _operate(made: World) -> None:
    """An operator pauses a queue, cancels a job in it, and requeues it."""
    command = made.command
    await asyncio.to_thread(command, "operator", "queues", "pause", "compute")
    job_id = await _compute(made)
    await asyncio.to_thread(command, "operator", "jobs", "cancel", str(job_id))
    await asyncio.to_thread(command, "operator", "queues", "resume", "compute")
    told = await asyncio.to_thread(command, "operator", "dead", "requeue", str(job_id), "--json")
    new = json.loads(told)["id"]

    async def is_computed() -> bool:
        status = await made.http.get(f"/jobs/status/{new}")
        return bool(status.status == 200 and (await status.json())["status"] == "succeeded")

    await wait_until(is_computed, "computed")
    assert (await made.get(f"/jobs/result/{new}"))["results"]
    assert (await made.get("/jobs/counters"))["completed"] > 0


async def _convert(made: World) -> None:
    """Over HTTP; then workers, and nobody else, may remove the conversion."""
    pdf = await asyncio.to_thread(make_pdf, INVOICE)
    job_id = await _submit(made, pdf)
    await made.app.hf.for_tenant(TENANT).result(job_id, 60)
    assert (await made.get(f"/conversions/{job_id}"))["status"] == "complete"
    async with made.http.get(f"/conversions/{job_id}/result") as response:
        assert "1190.00" in await response.text()
    assert await made.app.convert.get(job_id, tenant="other") is None
    remove = "SELECT holdfast.convert_remove_conversion($1, now())"
    connection = await asyncpg.connect(made.roles.url("api"))
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetchval(remove, job_id)
    finally:
        await connection.close()
    settings = made.app.convert.settings
    settings = replace(settings, uploads_kept_seconds=1e-6, results_kept_seconds=1e-6)
    hf = Holdfast(made.roles.url("worker"))
    cleanup = Convert(hf, settings).cleanup
    async with hf:
        await cleanup.clean_up_conversions(SweepContext("worker"))
        await cleanup.remove_orphans(SweepContext("worker"))
    assert await made.app.convert.get(job_id, tenant=TENANT) is None
    await _submit(made, pdf)


async def _submit(made: World, pdf: bytes) -> UUID:
    form = aiohttp.FormData({"mapping": "invoice"})
    form.add_field("file", pdf, filename="invoice.pdf")
    async with made.http.post("/conversions", data=form) as response:
        assert response.status == 202, await response.text()
        return UUID((await response.json())["id"])


async def _issue_a_passport(made: World) -> None:
    """From a document to a signed passport, and a webhook that tells of it."""
    passport, receiver = made.app.passport, made.stage.services["receiver"].address
    subscription = await made.app.webhooks.subscribe(
        f"{receiver}/hooks/passport", event_types=["PASSPORT_SIGNED"], tenant=TENANT
    )
    await set_answers(receiver, "passport", subscription.secret, [200])
    snapshot_id = await passport.open_snapshot(TENANT)
    rules_id = await passport.add_rules(TENANT, json.dumps(RULES).encode())
    await passport.publish_rules(TENANT, rules_id)
    order = await passport.order(
        passport_id=made.app.hf.new_id(),
        snapshot_id=snapshot_id,
        rules_id=rules_id,
        build_id="test",
    )
    document = BILL_OF_MATERIALS.encode()
    await passport.add_document(TENANT, snapshot_id, "bom.csv", document, then=order)

    version_id = order.version_id(TENANT)
    await _delivered(made, id_of("event", EVENT_TYPE, str(version_id)))
    version = await passport.version(TENANT, version_id)
    assert version.signature is not None
    assert version.qr_png is not None
    assert (await made.get("/passport/jobs"))["jobs"]
    told = await made.get(f"/passport/versions/{version_id}/deliveries")
    assert [each["status"] for each in told["deliveries"]] == ["DELIVERED"]
    await _expire_an_upload(made)


async def _expire_an_upload(made: World) -> None:
    """Only workers may remove a snapshot, and only one that is not sealed."""
    snapshot_id = await made.app.passport.open_snapshot(TENANT)
    remove = "SELECT holdfast.passport_remove_snapshot($1, $2)"
    for role in ("api", "worker"):
        connection = await asyncpg.connect(made.roles.url(role))
        try:
            if role == "api":
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.fetchval(remove, TENANT, snapshot_id)
            else:
                assert await connection.fetchval(remove, TENANT, snapshot_id) is True
        finally:
            await connection.close()


async def _requeue_a_dead_letter(made: World) -> None:
    """An operator requeues it with a database client alone."""
    webhooks, receiver = made.app.webhooks, made.stage.services["receiver"].address
    subscription = await webhooks.subscribe(
        f"{receiver}/hooks/broken", event_types=["order.paid"], tenant=TENANT
    )
    await set_answers(receiver, "broken", subscription.secret, [500])
    event = await webhooks.publish("order.paid", {"order": 17}, tenant=TENANT)

    async def letters() -> list[DeadLetter]:
        return list(await webhooks.dead_letters(tenant=TENANT))

    await wait_until(letters, "dead")
    await set_answers(receiver, "broken", subscription.secret, [200])
    connection = await asyncpg.connect(made.roles.url("operator"))
    try:
        saga_id = await connection.fetchval(
            "SELECT holdfast.requeue_dead_letter($1)", (await letters())[0].id
        )
    finally:
        await connection.close()

    await _delivered(made, event.id, saga_id)


async def _delivered(made: World, event_id: UUID, saga_id: UUID | None = None) -> None:
    """Wait until this saga of the event, or its only one, has delivered it."""

    async def is_delivered() -> bool:
        sagas = await made.app.webhooks.sagas(event_id=event_id, tenant=TENANT)
        return [each.status for each in sagas if saga_id in (None, each.id)] == ["Delivered"]

    await wait_until(is_delivered, "delivered")


async def _generate_a_document(made: World) -> None:
    await made.salesforce.insert_all("Generated_Document__c", [_record(1)])

    async def is_generated() -> bool:
        return await made.salesforce.count(SUCCEEDED) == 1

    await wait_until(is_generated, "generated")


async def _look(made: World) -> None:
    """Whoever only looks sees the jobs, the workers, and who did what."""
    commands = (["jobs", "list"], ["top"], ["workers"], ["audit", "list"])
    jobs, top, workers, audit = await asyncio.gather(
        *(asyncio.to_thread(made.command, "readonly", *words) for words in commands)
    )
    assert "COMPUTE" in jobs
    assert "passport" in top
    assert len(workers.splitlines()) > 3
    for action in ("queue.pause", "queue.resume", "job.cancel", "job.requeue", "key.create"):
        assert action in audit
    doctor = await asyncio.to_thread(
        run_command, "doctor", folder=made.folder, url=made.roles.url("readonly")
    )
    assert "denied" not in doctor.stdout + doctor.stderr


async def _look_as_another_tenant(made: World) -> None:
    """Row-level security hides what the systems themselves would leave out."""
    for table in TABLES:
        seen = []
        for tenant in (TENANT, "other"):
            async with made.app.hf.for_tenant(tenant).transaction(read_only=True) as connection:
                seen.append(await connection.fetchval(f"SELECT count(*) FROM holdfast.{table}"))
        assert seen[0] > 0, table
        assert seen[1] == 0, table


async def _stop(made: World) -> None:
    """Nothing was denied, neither in the background nor at the end."""
    for process in made.processes:
        process.signal(signal.SIGTERM)
    for process in made.processes:
        assert await process.ended() == 0, process.text
        assert "denied" not in process.text, process.text


async def _sessions(roles: InstalledRoles) -> dict[int, str]:
    """Whoever is connected to the database: the login by the ID of its process."""
    connection = await asyncpg.connect(roles.url("readonly"))
    try:
        rows = await connection.fetch(
            "SELECT pid, usename FROM pg_stat_activity"
            " WHERE datname = current_database() AND usename IS NOT NULL"
            " AND pid <> pg_backend_pid()"
        )
    finally:
        await connection.close()
    return {row["pid"]: row["usename"] for row in rows}
