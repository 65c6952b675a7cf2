"""What a tenant sees is byte for byte the same, whether or not another tenant exists."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from holdfast.operations.pepper import VARIABLE
from tests.support.paired import OTHER, PairedWorld, job_id, paired_world, run_bulk_changes
from tests.support.postgres import Databases
from tests.support.roles import installed_roles

Request = tuple[str, str, Any]

NOBODYS: Final = str(job_id(99))
NOBODYS_LEASE: Final = "A" * 56
FILTERS: Final = (
    "", "queue=mail", "queue=theirs", "name=add", "name=other", "tenant=acme", f"tenant={OTHER}",
    "tag=red", "tag=blue", "correlation_id=order-1", "correlation_id=c-1", f"parent_id={NOBODYS}",
    "error_code=BOOM", "fingerprint=0", "since=2020-01-01T00:00:00Z", "until=2020-01-01T00:00:00Z",
    "state=queued", "state=running", "state=succeeded", "state=dead", "state=failed",
    "state=canceled", "state=dead&state=queued", "cursor=AeblNqiwHq0kAaHtEBT-dpePCoHC8ga2XA",
)  # fmt: skip
ACROSS: Final = ("/v1/queues", "/v1/breakers", "/v1/workers", "/v1/keys", "/v1/audit", "/v1/doctor")


class Theirs(NamedTuple):
    """What the other tenant has; in a world without it, nobody."""

    jobs: tuple[str, ...]
    bulk_change: str
    lease: str


@pytest.fixture(params=["sqlite", "postgres", "role api"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def urls(
    kind: str,
    tmp_path: Path,
    postgres_databases: Callable[[str], Databases],
    migrated_template: Callable[[str], str],
) -> Iterator[list[str]]:
    """Two databases of a kind."""
    if kind == "sqlite":
        yield [f"sqlite:///{tmp_path}/{name}.db" for name in "ab"]
        return
    databases = postgres_databases("pg15")
    template = ["template0" if kind == "role api" else migrated_template("pg15")]
    names = [databases.create(*template) for _ in range(2)]
    yield [databases.url(name) for name in names]
    for name in names:
        databases.drop(name)


@pytest.fixture
async def places(
    kind: str, urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[tuple[str, str]]]:
    """The URLs of the service and of operators, for each world."""
    monkeypatch.setenv(VARIABLE, "p" * 43)
    async with AsyncExitStack() as stack:
        if kind != "role api":
            yield [(url, url) for url in urls]
            return
        installed = [await stack.enter_async_context(installed_roles(url)) for url in urls]
        yield [(roles.url("api"), roles.admin_url) for roles in installed]


async def test_what_a_tenant_sees_is_the_same_without_the_others(
    places: list[tuple[str, str]],
) -> None:
    async with paired_world(*places[0], shared=True) as shared:
        theirs = await settle_in(shared)
        await live(shared, theirs)
        await costs_the_same(shared, theirs)
    async with paired_world(*places[1], shared=False) as alone:
        await live(alone, theirs)
    assert len(shared.answers) == len(alone.answers) > 180
    for with_others, without in zip(shared.answers, alone.answers, strict=True):
        assert with_others == without
    assert {each.status for each in alone.answers} >= {200, 201, 202, 400, 403, 404, 409, 422}


async def settle_in(world: PairedWorld) -> Theirs:
    """Give the other tenant jobs in every state, in the same queues and with the same marks."""
    tenant = world.hf.for_tenant(OTHER)
    add = world.hf._functions["add"]
    numbers = count(1)
    jobs: list[str] = []
    lease = ""
    for outcome in (None, {}, {"status": "succeeded", "result": 1}, failed(permanent=True)):
        queue = f"theirs-{next(numbers)}"
        options = add.options(id=job_id(len(jobs)), queue=queue, tags=["red"], correlation_id="c-1")
        jobs.append(str((await tenant.enqueue(options, 1)).id))
        if outcome is not None:
            taken = await world.as_other(
                "POST", "/v1/leases", {"names": ["add"], "queues": [queue]}
            )
            lease = taken["leases"][0]["lease_id"]
        if outcome:
            await world.as_other("PUT", f"/v1/leases/{lease}/outcome", outcome)
    change = await tenant.bulk.create("cancel", [job_id(0)])
    await tenant.enqueue_many([add.options(queue="mail", tags=["red"]).call(n) for n in range(30)])
    return Theirs(tuple(jobs), str(change.id), lease)


async def live(world: PairedWorld, theirs: Theirs) -> None:
    """Everything that the key of a tenant can ask for."""
    for path in ("/v1/me", "/v1/names", "/v1/names/add", "/v1/problems/not-found", *ACROSS):
        await world.ask("GET", path)
    await enqueue(world)
    await work(world)
    await change(world)
    await look_around(world)
    await ask_about_others(world, theirs)


async def ask_about_others(world: PairedWorld, theirs: Theirs) -> None:
    for target in (*theirs.jobs, NOBODYS):
        for request in about_job(target):
            await world.ask_alone(*request, idempotency_key=target)
    for target in (theirs.bulk_change, NOBODYS):
        for request in about_change(target):
            await world.ask_alone(*request)
    for target in (theirs.lease, NOBODYS_LEASE):
        for request in about_lease(target):
            await world.ask_alone(*request)


async def look_around(world: PairedWorld) -> None:
    for filter in FILTERS:
        await follow(world, f"/v1/jobs?limit=5&{filter}")
    for path in ("/v1/dead?limit=1", "/v1/bulk?limit=1", "/v1/dead/groups", "/v1/counts"):
        await follow(world, path)


async def follow(world: PairedWorld, path: str) -> None:
    page = await world.ask("GET", path)
    while page and page.get("next"):
        page = await world.ask("GET", page["next"])


def new_job(number: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": "add", "arguments": {"a": number}, "queue": "mail", "tags": ["red"], **more}


async def enqueue(world: PairedWorld) -> None:
    for number in range(4):
        await world.ask("POST", "/v1/jobs", new_job(number, correlation_id="order-1"))
    for number in (1, 1, 2):
        await world.ask("POST", "/v1/jobs", new_job(number), idempotency_key="job")
        keyed = {"jobs": [new_job(number, idempotency_key="of batch"), new_job(7)]}
        await world.ask("POST", "/v1/jobs/batch", keyed, idempotency_key="batch")
    for refused in (
        new_job(id=NOBODYS),
        new_job(id=str(job_id(0))),
        {"name": "no such"},
        {"name": "add", "arguments": {"a": "x"}},
    ):
        await world.ask("POST", "/v1/jobs", refused)
    await world.ask_alone("POST", "/v1/jobs", new_job(tenant=OTHER))


async def work(world: PairedWorld) -> None:
    wanted = {"names": ["add"], "queues": ["mail"], "request_id": "r", "worker": "w"}
    outcomes = (
        {"status": "succeeded", "result": {"b": 1}},
        failed(permanent=True),
        failed(permanent=False, retry_after_seconds=3600),
        {"status": "snoozed", "seconds": 3600},
        {"status": "released"},
    )
    for number, outcome in enumerate(outcomes):
        for _ in range(2):  # as if the first answer was lost
            taken = await world.ask("POST", "/v1/leases", wanted | {"request_id": str(number)})
        (lease,) = taken["leases"]
        path = f"/v1/leases/{lease['lease_id']}/outcome"
        renewal = {"leases": [{"lease_id": lease["lease_id"], "progress": number}]}
        await world.ask("POST", "/v1/leases/renew", renewal)
        await world.ask("GET", f"/v1/jobs/{lease['job_id']}/result")
        for told in (outcome, outcome, failed(code="OTHER")):
            await world.ask("PUT", path, told)
        for method, part, body in about_job(lease["job_id"]):
            is_endless = "events" in part and number >= 2
            is_due_soon = "why" in part and outcome == {"status": "released"}
            if method == "GET" and not (is_endless or is_due_soon):
                await world.ask(method, part, body)
    await world.ask("POST", "/v1/leases", wanted | {"queues": ["empty"]})


def failed(*, code: str = "BOOM", **more: Any) -> dict[str, Any]:
    return {"status": "failed", "code": code, "text": "boom", **more}


async def change(world: PairedWorld) -> None:
    (job, *_) = (await world.ask("GET", "/v1/jobs?state=queued&limit=1"))["jobs"]
    for verb in ("retry", "cancel", "cancel", "requeue", "requeue", "retry"):
        await world.ask("POST", f"/v1/jobs/{job['id']}/{verb}", idempotency_key=verb)
    (dead, *_) = (await world.ask("GET", "/v1/dead?limit=1"))["jobs"]
    await world.ask("POST", f"/v1/dead/{dead['id']}/requeue", idempotency_key="dead")
    everything = {"action": "cancel", "filter": {"queue": "mail"}, "because": "enough"}
    for _ in range(2):
        made = await world.ask("POST", "/v1/bulk", everything, idempotency_key="bulk")
    path = f"/v1/bulk/{made['id']}"
    for verb in ("pause", "start", "pause", "resume"):
        await world.ask("POST", f"{path}/{verb}")
    await run_bulk_changes(world.hf)
    await world.ask("GET", path)
    await world.ask("POST", f"{path}/cancel")


def about_job(target: str) -> Iterator[Request]:
    path = f"/v1/jobs/{target}"
    for part in ("", "/attempts", "/why", "/related", "/result", "/events"):
        yield "GET", f"{path}{part}", None
    yield "GET", f"/v1/jobs?parent_id={target}", None
    yield "GET", f"/v1/jobs/events?ids={target}", None
    for verb in ("cancel", "retry", "requeue"):
        yield "POST", f"{path}/{verb}", None
    yield "POST", f"/v1/dead/{target}/requeue", None
    yield "POST", "/v1/bulk", {"action": "cancel", "ids": [target]}


def about_change(target: str) -> Iterator[Request]:
    yield "GET", f"/v1/bulk/{target}", None
    for verb in ("start", "pause", "resume", "cancel"):
        yield "POST", f"/v1/bulk/{target}/{verb}", None


def about_lease(target: str) -> Iterator[Request]:
    yield "POST", "/v1/leases/renew", {"leases": [{"lease_id": target}]}
    yield "PUT", f"/v1/leases/{target}/outcome", {"status": "succeeded", "result": 1}


async def costs_the_same(world: PairedWorld, theirs: Theirs) -> None:
    """What belongs to another takes the same statements as what nobody has. Each has one plan, and
    looks up the same keys in the same indexes: so they take the same time."""
    nobodys = Theirs((NOBODYS,), NOBODYS, NOBODYS_LEASE)
    expected = await costs(world, nobodys, 0)
    for index in range(len(theirs.jobs)):
        assert await costs(world, theirs, index) == expected


async def costs(world: PairedWorld, targets: Theirs, index: int) -> list[list[str]]:
    requests = [
        *about_job(targets.jobs[index]),
        *about_change(targets.bulk_change),
        *about_lease(targets.lease),
    ]
    return [await world.statements_of(*request) for request in requests]
