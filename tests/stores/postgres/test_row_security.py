"""The second wall: on the role `api`, the database itself shows a tenant only its own rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast import Holdfast, State, StoreUnavailable
from holdfast.api import AsCaller, Router, Service, describes, make_api
from holdfast.domain.audit import Actor
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.job import Lease, Settlement
from holdfast.domain.scope import all_tenants, scope, scoped_tenant
from holdfast.stores.postgres.enqueue import COPY_JOBS_MIN
from holdfast.stores.protocol import Claim, FullStore
from tests.support.bouncer import Bouncer, bouncer_program
from tests.support.failures import add_dead
from tests.support.postgres import Databases
from tests.support.processes import turn
from tests.support.roles import InstalledRoles, installed_roles
from tests.support.running import QUICK
from tests.support.seams import NotingSeam
from tests.support.services import missing
from tests.support.stores import full_store

OWN: Final = "acme"
OTHER: Final = "globex"
HOSTILE: Final = ("o'hara", "back\\slash", "\\'; RESET ALL; --", "E'x", 'a"b', "ümlaut", "$1")
# The tables whose policies for the role `api` read the scope.
GUARDED: Final = """
SELECT relname FROM pg_policy JOIN pg_class ON pg_class.oid = polrelid
WHERE pg_get_expr(polqual, polrelid) LIKE '%holdfast.across%' AND NOT relispartition
ORDER BY relname
"""


@pytest.fixture(scope="module")
def roles(postgres_databases: Callable[[str], Databases]) -> Iterator[InstalledRoles]:
    """One database for all tests here, with the jobs of two tenants."""
    databases = postgres_databases("pg15")
    name = databases.create()
    installing = installed_roles(databases.url(name))
    installed = databases.run(installing.__aenter__())
    databases.run(settle_in(installed))
    yield installed
    databases.run(installing.__aexit__(None, None, None))
    databases.drop(name)


async def settle_in(roles: InstalledRoles) -> None:
    """Give both tenants something in every table of theirs."""
    async with opened(roles, "admin") as hf:
        add = hf._functions["add"]
        for name in (OWN, OTHER):
            tenant = hf.for_tenant(name)
            jobs = [await tenant.enqueue(add.options(queue=name), n) for n in range(4)]
            await tenant.enqueue(add.options(queue=name, idempotency_key="k"), 4)
            await tenant.cancel(jobs[0].id)
            store = await full_store(hf)
            (claimed,) = await store.claim(Claim("w", 1, 60.0, ["add"], [name]))
            failed = Settlement(
                job_id=claimed.id, fence=claimed.fence, state=State.DEAD, error_code="BOOM",
                error_text="boom", outcome="failed",
            )  # fmt: skip
            assert not await store.settle([failed])
            await store.claim(Claim("w", 1, 60.0, ["add"], [name]))
            change = await tenant.bulk.create("cancel", [jobs[2].id])
            await hf.keys.create(name, scopes=["read"], tenant=name)
            await tenant.dead.requeue(claimed.id)
            await hf.audit.record(Actor(name="ann", tenant=name), "job.cancel", "x")
            await hf.dead.count_groups()
            async with hf._own_tables.transaction() as (_, statements):
                await statements.execute(
                    "claim_request", scope=name, key="k", fingerprint=b"f", token=str(change.id),
                    in_flight_seconds=60.0, kept_seconds=60.0,
                )  # fmt: skip


@asynccontextmanager
async def opened(
    roles: InstalledRoles, role: str, *, port: int | None = None
) -> AsyncIterator[Holdfast]:
    url = roles.admin_url if role == "admin" else roles.url(role)
    if port is not None:
        parts = urlsplit(url)
        url = url.replace(f":{parts.port}/", f":{port}/")
    async with Holdfast(url, seam=NotingSeam(), **QUICK) as hf:
        hf.job(add)
        yield hf


async def add(a: int) -> int:
    return a


async def counted(connection: Any, tables: list[str]) -> dict[str, int]:
    """All rows of each table that the connection sees: no statement names a tenant."""
    return {
        table: await connection.fetchval(f"SELECT count(*) FROM holdfast.{table}")
        for table in tables
    }


async def test_a_statement_that_names_no_tenant_sees_only_the_scopes_rows(
    roles: InstalledRoles,
) -> None:
    async with opened(roles, "api") as hf:
        async with hf.transaction() as connection:
            tables = [row["relname"] for row in await connection.fetch(GUARDED)]
            everything = await counted(connection, tables)
        async with hf.for_tenant(OWN).transaction() as connection:
            own = await counted(connection, tables)
        async with hf.for_tenant(OTHER).transaction() as connection:
            other = await counted(connection, tables)
        async with hf.for_tenant("nobody").transaction(read_only=True) as connection:
            nobodys = await counted(connection, tables)
    assert {
        "jobs",
        "history",
        "attempts",
        "idempotency_keys",
        "api_keys",
        "bulk_jobs",
        "requeues",
    } <= own.keys()
    for table in tables:
        assert own[table] > 0 < other[table], table
        # Operators' entries in the audit log belong to no tenant.
        assert own[table] + other[table] <= everything[table], table
    assert set(nobodys.values()) == {0}
    # A connection that says nothing sees nothing.
    connection = await asyncpg.connect(roles.url("api"))
    try:
        assert set((await counted(connection, tables)).values()) == {0}
    finally:
        await connection.close()


async def test_nothing_of_another_tenant_can_be_written(roles: InstalledRoles) -> None:
    async with opened(roles, "api") as hf:
        other, own = hf.for_tenant(OTHER), hf.for_tenant(OWN)
        add = hf._functions["add"]
        (theirs, *_) = (await other.jobs.list()).jobs
        with pytest.raises(ConfigurationError, match="row-level security"):
            async with own.transaction() as connection:
                await other.enqueue(add.options(connection=connection), 1)
        store = await full_store(hf)
        with scope(OWN), pytest.raises(ConfigurationError, match="row-level security"):
            await store.enqueue([add._for_tenant(OTHER).call(1).new_job(uuid4(), 60.0)])
        async with own.transaction() as connection:
            for change in ("UPDATE holdfast.jobs SET progress = '1'",):
                changed = await connection.execute(f"{change} WHERE id = $1", theirs.id)
                assert changed == "UPDATE 0"


async def test_functions_of_the_owner_stay_within_the_scope(roles: InstalledRoles) -> None:
    async with opened(roles, "api") as hf:
        store = await full_store(hf)
        other = hf.for_tenant(OTHER)
        for state in (State.QUEUED, State.RUNNING, State.DEAD):
            (job, *_) = [each for each in (await other.jobs.list()).jobs if each.state is state]
            lease = Lease(job.id, job.fence)
            with scope(OWN):
                assert await outcomes(store, lease) == [None, [], False, False, [lease]]
            assert await other.get(job.id) == job
        lost = Settlement(job_id=lease.job_id, fence=lease.fence, state=State.QUEUED)
        assert [each.job_id for each in await store.settle([lost])] == [job.id]


async def outcomes(store: FullStore, lease: Lease) -> list[Any]:
    succeeded = Settlement(
        job_id=lease.job_id, fence=lease.fence, state=State.SUCCEEDED, result=b"1"
    )
    return [
        await store.get(lease.job_id),
        await store.cancel([lease.job_id]),
        await store.retry(lease.job_id),
        await store.requeue(lease.job_id, uuid4()),
        [Lease(each.job_id, each.fence) for each in await store.settle([succeeded])],
    ]


async def test_any_name_is_told_to_the_database_as_it_is(roles: InstalledRoles) -> None:
    async with opened(roles, "api") as hf:
        for name in HOSTILE:
            tenant = hf.for_tenant(name)
            job = await tenant.enqueue(hf._functions["add"], 1)
            assert (await tenant.get(job.id)).tenant == name
            async with tenant.transaction() as connection:
                await connection.execute("SET LOCAL standard_conforming_strings = off")
                told = await connection.fetchval("SELECT current_setting('holdfast.tenant')")
            assert told == name


async def test_the_scope_ends_with_its_transaction_and_begins_again_after_a_conflict(
    roles: InstalledRoles,
) -> None:
    async with opened(roles, "api") as hf:
        connections: Any = (await full_store(hf))._connections  # type: ignore[attr-defined]
        seen: list[tuple[str, str]] = []
        entered = asyncio.Event()

        async def work(connection: Any) -> None:
            seen.append(
                tuple(
                    await connection.fetchrow(
                        "SELECT current_setting('holdfast.tenant'),"
                        " current_setting('holdfast.across')"
                    )
                )
            )
            if len(seen) == 1:
                raise asyncpg.DeadlockDetectedError("once")

        async def stay(connection: Any) -> None:
            entered.set()
            await asyncio.Event().wait()

        with scope(OWN):
            await connections.run(work)
            with all_tenants():
                await connections.run(work)
            canceled = asyncio.create_task(connections.run(stay))
            await entered.wait()
            canceled.cancel()
            await asyncio.wait([canceled])
        await connections.run(work)
        assert seen == [(OWN, "off"), (OWN, "off"), ("", "on"), ("", "on")]
        assert scoped_tenant() is None


async def test_only_the_role_that_needs_the_scope_pays_for_it(roles: InstalledRoles) -> None:
    async def noted(role: str) -> list[str]:
        async with opened(roles, role) as hf:
            seam: Any = hf._seam
            tenant, add = hf.for_tenant(OWN), hf._functions["add"]
            job = await tenant.enqueue(add, 1)
            await turn()
            seam.statements.clear()
            await tenant.get(job.id)
            await tenant.jobs.list(limit=1)
            await tenant.enqueue(add.options(idempotency_key=str(uuid4())), 1)
            # Row-level security refuses COPY, for any role.
            await tenant.enqueue_many([add.call(n) for n in range(COPY_JOBS_MIN)])
            await turn()
            return [each.partition(" ")[0].strip(";\n") for each in seam.statements]

    told = ["BEGIN", "COMMIT"]
    api = [each for each in await noted("api") if each in (*told, "SAVEPOINT", "COPY")]
    assert api == told * 4
    worker = [each for each in await noted("worker") if each in (*told, "SAVEPOINT", "COPY")]
    assert worker == told * 2  # of the list and of the key, as without roles


async def test_every_verb_of_a_tenant_runs_in_its_scope(roles: InstalledRoles) -> None:
    async with opened(roles, "api") as hf:
        seam: Any = hf._seam
        tenant, add = hf.for_tenant(OWN), hf._functions["add"]
        seam.statements.clear()
        (job, keyed) = await tenant.enqueue_many([add.call(1), add.call(2)])
        await tenant.enqueue(add, 3)
        for read in (tenant.get, tenant.jobs.attempts, tenant.jobs.why, tenant.jobs.requeued_as):
            await read(job.id)
        await tenant.jobs.retry(job.id)
        await tenant.jobs.requeue((await tenant.cancel(job.id)).id)
        await tenant.jobs.counts()
        await tenant.jobs.counts_up_to(10)
        await tenant.dead.groups()
        bulk = tenant.bulk
        change = await bulk.create("cancel", [keyed.id])
        for apply in (bulk.start, bulk.pause, bulk.resume, bulk.cancel, bulk.get):
            await apply(change.id)
        await bulk.list()
        await turn()
        begun = [each for each in seam.statements if each.startswith("BEGIN")]
        assert len(begun) > 30
        assert [each for each in begun if f"holdfast.tenant = E'{OWN}'" not in each] == []


async def test_a_route_that_names_no_tenant_answers_with_the_keys_own_rows(
    roles: InstalledRoles,
) -> None:
    def routes(service: Service) -> Router:
        router = Router()

        @router.get("/tenants", **describes("read", {200: None}))
        async def list_tenants(request: Request, caller: AsCaller) -> Response:
            async def late() -> AsyncIterator[str]:
                async with service.hf.transaction() as connection:
                    query = "SELECT string_agg(DISTINCT tenant, ',') FROM holdfast.jobs"
                    yield await connection.fetchval(query)

            return StreamingResponse(late())

        return router

    async with opened(roles, "api") as hf:
        hf.add_routes(routes)
        transport = httpx.ASGITransport(make_api(hf, upkeep=False))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            seen = []
            for tenant in (OWN, OTHER, None):
                key = await hf.keys.create("reader", scopes=["read"], tenant=tenant)
                answer = await client.get(
                    "/tenants", headers={"authorization": f"Bearer {key.key}"}
                )
                seen.append(answer.text)
    assert seen[:2] == [OWN, OTHER]
    assert {OWN, OTHER} <= {*seen[2].split(",")}


async def test_the_scope_reaches_the_database_through_a_pooler(
    roles: InstalledRoles,
) -> None:
    program = bouncer_program() or missing("PgBouncer is not installed")
    parts = urlsplit(roles.admin_url)
    assert parts.port is not None
    bouncer = Bouncer(program, ServerAt(parts.port), users=[roles.name("api")])
    try:
        bouncer.start()
        async with opened(roles, "api", port=bouncer.port) as hf:
            jobs = await asyncio.gather(
                *[hf.for_tenant(name).jobs.list() for name in (OWN, OTHER, "nobody") * 3]
            )
            seen = [{job.tenant for job in page.jobs} for page in jobs]
            assert seen == [{OWN}, {OTHER}, set()] * 3
            async with hf.for_tenant(OWN).transaction() as connection:
                assert (
                    await connection.fetchval("SELECT count(DISTINCT tenant) FROM holdfast.jobs")
                    == 1
                )
    finally:
        bouncer.remove()


class ServerAt:
    def __init__(self, port: int) -> None:
        self.port = port


async def test_a_role_that_only_reads_sees_groups_that_it_can_not_count(
    roles: InstalledRoles,
) -> None:
    await add_dead(roles.admin_url, "boom", tenant=OWN)
    async with opened(roles, "readonly") as hf:
        assert len((await hf.dead.groups()).groups) >= 1
        with pytest.raises(StoreUnavailable):
            await hf.dead.count_groups()
