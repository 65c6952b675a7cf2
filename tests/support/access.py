"""A service with two tenants, a key for every right, and a request for every route."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final
from uuid import uuid4

import httpx

from holdfast import Holdfast, Job, Tenant
from holdfast.domain.groups import fingerprint_of
from holdfast.domain.keys import ADMIN, SCOPES, NewKey
from tests.support.api import served
from tests.support.running import QUICK

OWN: Final = "acme"
OTHER: Final = "globex"


class World:
    """Makes what requests are about, for one tenant or the other."""

    def __init__(self, hf: Holdfast, client: httpx.AsyncClient) -> None:
        self.hf = hf
        self.client = client
        self._numbers = count(1)

        @hf.job
        async def add(a: int, text: str = "") -> int:
            return a

        self._add = add

    async def queued(self, tenant: str | None, **options: Any) -> Job:
        wanted = self._add.options(correlation_id=f"of {tenant}", **options)
        return await self._of(tenant).enqueue(wanted, 1, text=f"of {tenant}")

    async def ended(self, tenant: str | None) -> Job:
        job = await self.queued(tenant)
        return await self.hf.cancel(job.id)

    async def bulk_change(self, tenant: str | None) -> str:
        job = await self.queued(tenant)
        change = await self._of(tenant).bulk.create("cancel", [job.id])
        return str(change.id)

    async def error_group(self, tenant: str | None) -> str:
        """A group of jobs of this tenant alone."""
        key = await self.key("work", tenant=tenant)
        queue = self.unique("broken")
        job = await self.queued(tenant, queue=queue, max_attempts=1)
        body = {"names": ["add"], "queues": [queue]}
        taken = await self.client.post("/v1/leases", json=body, headers=bearing(key))
        path = f"/v1/leases/{taken.json()['leases'][0]['lease_id']}/outcome"
        outcome = {"status": "failed", "code": queue}
        await self.client.put(path, json=outcome, headers=bearing(key))
        await self.hf.dead.count_groups()
        return fingerprint_of(await self.hf.get(job.id))

    async def lease(self, tenant: str | None) -> str:
        key = await self.key("work", tenant=tenant)
        await self.queued(tenant, queue=(queue := self.unique("leased")))
        body = {"names": ["add"], "queues": [queue]}
        taken = await self.client.post("/v1/leases", json=body, headers=bearing(key))
        return str(taken.json()["leases"][0]["lease_id"])

    async def paused_queue(self, _tenant: str | None) -> str:
        await self.hf.queues.pause(queue := self.unique("paused"))
        return queue

    async def open_breaker(self, _tenant: str | None) -> str:
        await self.hf.breakers.open(key := self.unique("open"))
        return key

    async def key_id(self, tenant: str | None) -> str:
        return (await self.key("read", tenant=tenant)).id

    async def key(self, *scopes: str, tenant: str | None) -> NewKey:
        name = f"{'+'.join(scopes)} of {tenant}"
        return await self.hf.keys.create(name, scopes=scopes, tenant=tenant)

    def _of(self, tenant: str | None) -> Tenant:
        return self.hf.for_tenant(tenant or "default")

    def unique(self, name: str) -> str:
        return f"{name}-{next(self._numbers)}"

    async def snapshot(self, tenant: str | None = None) -> list[Any]:
        """All that a request could change, besides the audit log; of all tenants, or one."""
        hf = self.hf
        some = hf if tenant is None else hf.for_tenant(tenant)
        found = [await some.jobs.list(limit=200), await some.bulk.list(200)]
        queues = [(each.name, each.paused_at, each.running_max) for each in await hf.queues.list()]
        return [*found, queues, await hf.breakers.list(), await hf.keys.list(ended=True)]


@asynccontextmanager
async def made_world(url: str) -> AsyncIterator[World]:
    hf = Holdfast(url, **QUICK)
    async with served(hf) as client:
        yield World(hf, client)


async def one_key_for_each_right(world: World) -> list[NewKey]:
    return [
        await world.key(scope, tenant=tenant)
        for scope in SCOPES
        for tenant in (OWN, None)
        if not (scope == ADMIN and tenant)
    ]


def bearing(key: NewKey | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key.key}"}


Target = Callable[[World, str | None], Awaitable[object]]


@dataclass(frozen=True)
class Recipe:
    """A request that a route answers with one of `statuses` if the key allows it.

    `target` makes what `{...}` in the path stands for, or `TARGET` in the query or body. It belongs
    to a tenant if it is `owned`.
    """

    statuses: tuple[int, ...]
    target: Target | None = None
    owned: bool = False
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


TARGET: Final = "TARGET"
NEW_JOB: Final = {"name": "add", "arguments": {"a": 1}}


def _of_job(*statuses: int, target: Target = World.queued, **more: Any) -> Recipe:
    async def job_id(world: World, tenant: str | None) -> str:
        job: Any = await target(world, tenant)
        return str(job.id)

    return Recipe(statuses, job_id, owned=True, **more)


async def _new_queue(world: World, _tenant: str | None) -> str:
    return world.unique("queue")


_OK: Final = Recipe((200,))
RECIPES: Final[Mapping[str, Recipe]] = {
    "GET /v1/health/live": _OK,
    "GET /v1/health/ready": _OK,
    "GET /metrics": _OK,
    "GET /v1/problems": _OK,
    "GET /v1/problems/{code}": Recipe((200,), lambda *_: _given("not-found")),
    "GET /v1/me": _OK,
    "GET /v1/names": _OK,
    "GET /v1/names/{name}": Recipe((200,), lambda *_: _given("add")),
    "POST /v1/jobs": Recipe((201,), body=NEW_JOB),
    "POST /v1/jobs/batch": Recipe(
        (201,), body={"jobs": [NEW_JOB]}, headers={"idempotency-key": TARGET}
    ),
    "GET /v1/jobs": _OK,
    "GET /v1/jobs/events": _of_job(200, target=World.ended, query={"ids": TARGET}),
    "GET /v1/jobs/{job_id}": _of_job(200),
    "GET /v1/jobs/{job_id}/events": _of_job(200, target=World.ended),
    "GET /v1/jobs/{job_id}/attempts": _of_job(200),
    "GET /v1/jobs/{job_id}/why": _of_job(200),
    "GET /v1/jobs/{job_id}/related": _of_job(200),
    "GET /v1/jobs/{job_id}/result": _of_job(202),
    "POST /v1/jobs/{job_id}/cancel": _of_job(200),
    "POST /v1/jobs/{job_id}/retry": _of_job(200),
    "POST /v1/jobs/{job_id}/requeue": _of_job(201, target=World.ended),
    "GET /v1/counts": _OK,
    "GET /v1/dead": _OK,
    "GET /v1/dead/groups": _OK,
    "GET /v1/dead/groups/{fingerprint}": Recipe((200,), World.error_group, owned=True),
    "GET /v1/dead/groups/{fingerprint}/jobs": Recipe((200,), World.error_group, owned=True),
    "POST /v1/dead/groups/{fingerprint}/acknowledge": Recipe((200,), World.error_group, owned=True),
    "POST /v1/dead/groups/{fingerprint}/resolve": Recipe((200,), World.error_group, owned=True),
    "POST /v1/dead/groups/{fingerprint}/reopen": Recipe((200,), World.error_group, owned=True),
    "POST /v1/dead/{job_id}/requeue": _of_job(201, target=World.ended),
    "POST /v1/bulk": _of_job(
        201, body={"action": "cancel", "ids": [TARGET]}, headers={"idempotency-key": TARGET}
    ),
    "GET /v1/bulk": _OK,
    "GET /v1/bulk/{change_id}": Recipe((200,), World.bulk_change, owned=True),
    "POST /v1/bulk/{change_id}/start": Recipe((200,), World.bulk_change, owned=True),
    "POST /v1/bulk/{change_id}/pause": Recipe((200, 409), World.bulk_change, owned=True),
    "POST /v1/bulk/{change_id}/resume": Recipe((200, 409), World.bulk_change, owned=True),
    "POST /v1/bulk/{change_id}/cancel": Recipe((200,), World.bulk_change, owned=True),
    "GET /v1/queues": _OK,
    "GET /v1/queues/{queue}": Recipe((200,), World.paused_queue),
    "POST /v1/queues/{queue}/pause": Recipe((200,), _new_queue),
    "POST /v1/queues/{queue}/resume": Recipe((200,), World.paused_queue),
    "PUT /v1/queues/{queue}/cap": Recipe((200,), _new_queue, body={"running_max": 3}),
    "GET /v1/breakers": _OK,
    "GET /v1/breakers/{key}": Recipe((200,), World.open_breaker),
    "POST /v1/breakers/{key}/open": Recipe((200,), _new_queue),
    "POST /v1/breakers/{key}/close": Recipe((200,), World.open_breaker),
    "POST /v1/breakers/{key}/reset": Recipe((200, 204), World.open_breaker),
    "GET /v1/workers": _OK,
    "GET /v1/overview": _OK,
    "GET /v1/doctor": _OK,
    "GET /v1/samples": _OK,
    "POST /v1/leases": Recipe((200, 204), body={"names": ["add"], "queues": ["no such"]}),
    "POST /v1/leases/renew": Recipe(
        (200,), World.lease, owned=True, body={"leases": [{"lease_id": TARGET}]}
    ),
    "PUT /v1/leases/{lease_id}/outcome": Recipe(
        (200,), World.lease, owned=True, body={"status": "succeeded", "result": 1}
    ),
    "POST /v1/keys": Recipe((201,), body={"name": "new", "scopes": ["read"]}),
    "GET /v1/keys": _OK,
    "GET /v1/keys/{key_id}": Recipe((200,), World.key_id),
    "POST /v1/keys/{key_id}/rotate": Recipe((201,), World.key_id, body={}),
    "DELETE /v1/keys/{key_id}": Recipe((200,), World.key_id),
    "GET /v1/audit": _OK,
}


async def _given(value: str) -> str:
    return value


async def send(
    world: World,
    route: str,
    key: NewKey | None,
    target: object = None,
    recipes: Mapping[str, Recipe] = RECIPES,
) -> httpx.Response:
    """Send the request of a route's recipe, about this target."""
    recipe, (method, path) = recipes[route], route.split()
    shown = str(uuid4() if target is None else target)
    return await world.client.request(
        method,
        re.sub(r"\{[^}]*\}", shown, path),
        params=_filled(recipe.query, shown),
        json=_filled(recipe.body, shown),
        headers={**_filled(recipe.headers, str(uuid4())), **bearing(key), "x-correlation-id": "c"},
    )


def _filled(value: Any, target: str) -> Any:
    match value:
        case str():
            return target if value == TARGET else value
        case list():
            return [_filled(each, target) for each in value]
        case Mapping():
            return {name: _filled(each, target) for name, each in value.items()}
    return value
