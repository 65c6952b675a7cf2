"""A caller's own role enqueues in its own transaction, without a right on any table of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest

from holdfast import ConfigurationError, DuplicateJob, Filter, Holdfast, IdempotencyConflict
from holdfast.domain.errors import StoreRefused
from tests.conftest import SERVERS
from tests.support.postgres import Databases
from tests.support.roles import InstalledRoles, shared_roles, url_as
from tests.support.running import execute


@pytest.fixture(scope="module", params=SERVERS[:1])
def roles(
    request: pytest.FixtureRequest, postgres_databases: Callable[[str], Databases]
) -> Iterator[InstalledRoles]:
    databases = postgres_databases(request.param)
    with shared_roles(databases) as made:
        databases.run(_make_callers(made))
        yield made


async def _make_callers(roles: InstalledRoles) -> None:
    for role in ("shop", "stranger"):
        await execute(roles.admin_url, f'CREATE ROLE "{roles.name(role)}" LOGIN')
    async with Holdfast(roles.admin_url) as app:
        await app.roles.allow_enqueue(roles.name("shop"))


@pytest.fixture
async def app(roles: InstalledRoles) -> AsyncIterator[Holdfast]:
    """The caller's process has no other login than its own."""
    async with Holdfast(url_of(roles, "shop")) as hf:
        yield hf


@pytest.fixture
async def worker(roles: InstalledRoles) -> AsyncIterator[Holdfast]:
    async with Holdfast(roles.url("worker")) as hf:
        yield hf


def url_of(roles: InstalledRoles, role: str) -> str:
    return url_as(roles.admin_url, roles.name(role))


@asynccontextmanager
async def with_asyncpg(url: str, *, undo: bool) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        yield connection
        await (transaction.rollback() if undo else transaction.commit())
    finally:
        await connection.close()


@asynccontextmanager
async def with_psycopg(url: str, *, undo: bool) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection
        await (connection.rollback() if undo else connection.commit())


DRIVERS = pytest.mark.parametrize("began", [with_asyncpg, with_psycopg])


async def tell(text: str) -> None: ...


async def told(worker: Holdfast, correlation_id: str) -> list[Any]:
    return list((await worker.jobs.list(Filter(correlation_id=correlation_id))).jobs)


@DRIVERS
@pytest.mark.parametrize("undo", [False, True], ids=["committed", "rolled back"])
async def test_a_job_is_there_exactly_if_the_callers_transaction_commits(
    app: Holdfast, worker: Holdfast, roles: InstalledRoles, began: Any, undo: bool
) -> None:
    about = str(uuid4())
    job = app.job(name=about)(tell)
    about_it: dict[str, Any] = {"correlation_id": about, "tags": ["a, b"], "priority": 3}
    async with began(url_of(roles, "shop"), undo=undo) as connection:
        options = job.options(connection=connection, **about_it)
        await options.enqueue("plain")
        keyed = options.options(idempotency_key=about)
        receipts = [await keyed.enqueue("keyed") for _ in range(2)]
        assert receipts[0].id == receipts[1].id
        await options.options(id=uuid4()).enqueue("chosen")
        calls = [job.options(**about_it).call(f"{number}") for number in range(3)]
        await app.enqueue_many(calls, connection=connection)
    found = await told(worker, about)
    assert len(found) == (0 if undo else 6)
    assert {(each.priority, tuple(each.tags), each.tenant) for each in found} <= {
        (3, ("a, b",), "default")
    }


@DRIVERS
async def test_a_key_and_an_id_mean_what_they_mean_to_everybody(
    app: Holdfast, worker: Holdfast, roles: InstalledRoles, began: Any
) -> None:
    key, chosen = str(uuid4()), uuid4()
    theirs = worker.job(name=key)(tell)
    ours = app.job(name=key)(tell)
    first = await theirs.options(idempotency_key=key).enqueue("text")
    await theirs.options(id=chosen).enqueue("text")
    await worker.jobs.cancel(chosen)
    async with began(url_of(roles, "shop"), undo=False) as connection:
        options = ours.options(connection=connection)
        again = await options.options(idempotency_key=key).enqueue("text")
        assert again.id == first.id
        with pytest.raises(IdempotencyConflict):
            await options.options(idempotency_key=key).enqueue("another text")
        with pytest.raises(DuplicateJob):
            await options.options(id=chosen).enqueue("text")


async def test_a_guessed_key_tells_nothing_of_what_is_in_the_job(
    worker: Holdfast, roles: InstalledRoles
) -> None:
    key = str(uuid4())
    known = await worker.job(name=key)(tell).options(idempotency_key=key).enqueue("private")
    connection = await asyncpg.connect(url_of(roles, "shop"))
    guessed = await connection.fetch(
        "SELECT body_hash FROM holdfast.kept_keys('{\"\"}', $1, $2)", [key], [b"guess"]
    )
    assert [row["body_hash"] for row in guessed] == [b"\0"]
    seen = await connection.fetchval(
        "SELECT holdfast.keyed_job($1, NULL, $2)", known.id, [b"guess", b"", b"\0"]
    )
    assert seen is None
    await connection.close()


async def test_a_transaction_for_one_tenant_gets_no_job_of_another(
    app: Holdfast, worker: Holdfast, roles: InstalledRoles
) -> None:
    about = str(uuid4())
    job = app.job(name=about)(tell).options(correlation_id=about)
    async with with_asyncpg(url_of(roles, "shop"), undo=False) as connection:
        await connection.execute("SELECT set_config('holdfast.tenant', 'ann', true)")
        options = job.options(connection=connection)
        await options.options(tenant="ann").enqueue("hers")
        for tenant in ("bob", None):
            with pytest.raises((StoreRefused, ConfigurationError), match="row-level security"):
                async with connection.transaction():
                    await options.options(tenant=tenant).enqueue("not hers")
    assert [each.tenant for each in await told(worker, about)] == ["ann"]


async def test_a_role_that_may_insert_jobs_needs_no_function(
    worker: Holdfast, roles: InstalledRoles
) -> None:
    about = str(uuid4())
    job = worker.job(name=about)(tell)
    async with with_asyncpg(roles.url("worker"), undo=False) as connection:
        await job.options(connection=connection, idempotency_key=about).enqueue("text")
    assert len((await worker.jobs.list(Filter(name=about))).jobs) == 1


@DRIVERS
async def test_a_role_that_may_not_enqueue_is_told_what_to_run(
    worker: Holdfast, roles: InstalledRoles, began: Any
) -> None:
    job = worker.job(tell)
    name = roles.name("stranger")
    with pytest.raises(
        ConfigurationError,
        match=f"the connection's role {name} may not enqueue jobs; to allow it, run:"
        f" holdfast roles allow-enqueue {name}",
    ):
        async with began(url_of(roles, "stranger"), undo=True) as connection:
            await job.options(connection=connection).enqueue("text")


async def test_a_session_that_changes_its_role_is_asked_again(
    worker: Holdfast, roles: InstalledRoles
) -> None:
    about = str(uuid4())
    job = worker.job(name=about)(tell)
    await execute(roles.admin_url, f'GRANT "{roles.name("shop")}" TO "{roles.name("worker")}"')
    connection = await asyncpg.connect(roles.url("worker"))
    try:
        await enqueue_alone(job, connection, "as worker")
        await connection.execute(f'SET ROLE "{roles.name("shop")}"')
        with pytest.raises(ConfigurationError, match="permission denied for table jobs"):
            await enqueue_alone(job, connection, "as shop")
        await enqueue_alone(job, connection, "as shop")
    finally:
        await connection.close()
        await execute(
            roles.admin_url, f'REVOKE "{roles.name("shop")}" FROM "{roles.name("worker")}"'
        )
    assert len((await worker.jobs.list(Filter(name=about))).jobs) == 2


async def enqueue_alone(job: Any, connection: asyncpg.Connection, text: str) -> None:
    async with connection.transaction():
        await job.options(connection=connection).enqueue(text)


async def test_a_caller_has_no_way_to_the_jobs_but_to_enqueue(roles: InstalledRoles) -> None:
    connection = await asyncpg.connect(url_of(roles, "shop"))
    for statement in (
        "SELECT FROM holdfast.jobs",
        "INSERT INTO holdfast.jobs (id, name, queue, priority, arguments, max_attempts)"
        " VALUES (gen_random_uuid(), 'x', 'x', 0, '{}', 1)",
        "SELECT holdfast.retry(gen_random_uuid())",
        "SELECT holdfast.settle_succeeded('{}', '{}', '{}', 1, '{}', '{}', '{}')",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch(statement)
    await connection.close()
