"""Every route, with every right, on what is one's own and what is not: cell by cell."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx
import pytest
from fastapi import APIRouter
from starlette.responses import Response

from holdfast import ConfigurationError, Holdfast
from holdfast.api import Router, Service, describes, make_api
from holdfast.api.app import ROUTES
from holdfast.api.callers import Guarded
from holdfast.api.openapi import ACROSS, ANY, PUBLIC, SCOPE
from holdfast.domain.keys import SCOPES, NewKey
from tests.support.access import (
    OTHER,
    OWN,
    RECIPES,
    World,
    made_world,
    one_key_for_each_right,
    send,
)
from tests.support.api import served
from tests.support.roles import installed_roles

NOBODYS = {"UUID": str(UUID(int=7)), "lease": "A" * 43}


def routes_of(service: Service) -> dict[str, Guarded]:
    """The routes of the service, by method and path, from its own list."""
    found: dict[str, Guarded] = {}
    for make_routes in ROUTES:
        for route in make_routes(service).routes:
            assert isinstance(route, Guarded)
            found |= {f"{method} {route.path_format}": route for method in route.methods or ()}
    return found


def allows(key: NewKey | None, route: Guarded) -> bool:
    described = route.openapi_extra or {}
    scope, across = described[SCOPE], described.get(ACROSS, False)
    if scope == PUBLIC:
        return True
    if key is None or (across and key.tenant is not None):
        return False
    return scope == ANY or scope in key.scopes


async def test_every_key_may_call_what_its_scope_names_and_nothing_else(local_url: str) -> None:
    async with made_world(local_url) as world:
        routes = routes_of(make_api(world.hf).state.service)
        assert routes.keys() == RECIPES.keys(), "every route needs a recipe"
        keys = [None, *await one_key_for_each_right(world)]
        targets = {route: await make_target(world, route) for route in routes}
        before = await world.snapshot()
        denied = [
            (route, key) for route in routes for key in keys if not allows(key, routes[route])
        ]
        for route, key in denied:
            refused = await send(world, route, key, targets[route])
            assert (route, key, refused.status_code) == (route, key, 403 if key else 401)
            assert refused.json()["code"] == ("not-allowed" if key else "key-missing")
        assert (await world.snapshot() == before) is True
        for route in routes:
            for key in keys:
                if allows(key, routes[route]):
                    tenant = None if key is None else key.tenant
                    answer = await send(world, route, key, await make_target(world, route, tenant))
                    wanted = RECIPES[route].statuses
                    assert answer.status_code in wanted, (route, key, answer.text)
        assert len(denied) > 300


async def test_every_route_works_on_the_role_of_the_api(postgres_url: str) -> None:
    async with installed_roles(postgres_url) as roles, made_world(roles.url("api")) as world:
        routes = routes_of(make_api(world.hf).state.service)
        keys = [await world.key(*SCOPES, tenant=None), await world.key(*SCOPES[:-1], tenant=OWN)]
        for route in routes:
            for key in keys:
                if allows(key, routes[route]):
                    answer = await send(
                        world, route, key, await make_target(world, route, key.tenant)
                    )
                    wanted = RECIPES[route].statuses
                    assert answer.status_code in wanted, (route, key.tenant, answer.text)


async def make_target(world: World, route: str, tenant: str | None = OWN) -> object:
    target = RECIPES[route].target
    return None if target is None else await target(world, tenant)


async def test_what_belongs_to_another_tenant_does_not_exist(store_url: str) -> None:
    async with made_world(store_url) as world:
        key = await world.key(*SCOPES[:-1], tenant=OWN)
        for route, recipe in RECIPES.items():
            if not recipe.owned:
                continue
            theirs = str(await make_target(world, route, OTHER))
            nobodys = NOBODYS["lease" if "lease" in route else "UUID"]
            before = await world.snapshot(OTHER)
            refused = await send(world, route, key, theirs)
            unknown = await send(world, route, key, nobodys)
            assert shown(refused, theirs) == shown(unknown, nobodys), route
            if route not in ("POST /v1/leases/renew", "POST /v1/bulk"):
                assert (route, refused.status_code) == (route, 404)
            assert (await world.snapshot(OTHER) == before) is True, route
            mine = await send(world, route, key, await make_target(world, route))
            assert mine.status_code in recipe.statuses, (route, mine.text)


def shown(answer: httpx.Response, target: str) -> tuple[int, Any]:
    """The whole answer, with the same name for what was asked for, but without times."""
    text = answer.text.replace(target, "TARGET")
    if answer.is_success:
        return answer.status_code, answer.json().get("total")
    headers = {name: value for name, value in answer.headers.items() if name != "date"}
    headers["content-length"] = str(len(text))
    return answer.status_code, (text, headers)


async def test_a_renewal_of_a_lease_of_another_tenant_finds_it_lost(store_url: str) -> None:
    async with made_world(store_url) as world:
        key = await world.key("work", tenant=OWN)
        for lease_id, status in (
            (await world.lease(OTHER), "lost"),
            (NOBODYS["lease"], "lost"),
            (await world.lease(OWN), "ok"),
        ):
            answer = await send(world, "POST /v1/leases/renew", key, lease_id)
            assert [each["status"] for each in answer.json()["leases"]] == [status]


async def test_a_tenants_key_can_name_no_other_tenant(local_url: str) -> None:
    async with made_world(local_url) as world:
        key = await world.key(*SCOPES[:-1], tenant=OWN)
        headers = {"authorization": f"Bearer {key.key}"}
        job = {"name": "add", "arguments": {"a": 1}, "tenant": OTHER}
        client, keyed = world.client, {**headers, "idempotency-key": "k"}
        everyones = {"action": "cancel", "filter": {"tenant": OTHER}}
        for refused in (
            await client.post("/v1/jobs", json=job, headers=headers),
            await client.post("/v1/jobs/batch", json={"jobs": [job]}, headers=keyed),
            await client.post("/v1/bulk", json=everyones, headers=keyed),
            await client.get("/v1/jobs", params={"tenant": OTHER}, headers=headers),
            await client.get("/v1/dead", params={"tenant": OTHER}, headers=headers),
            await client.get("/v1/dead/groups", params={"tenant": OTHER}, headers=headers),
            await client.get("/v1/counts", params={"tenant": OTHER}, headers=headers),
        ):
            assert (str(refused.url), refused.status_code) == (str(refused.url), 403)
        made = await client.post("/v1/jobs", json={**job, "tenant": OWN}, headers=headers)
        assert made.json()["tenant"] == OWN
        assert {each.tenant for each in (await world.hf.jobs.list()).jobs} == {OWN}


async def test_no_tenant_and_the_tenant_default_are_the_same(local_url: str) -> None:
    async with made_world(local_url) as world:
        key = await world.key("read", "enqueue", tenant="default")
        headers = {"authorization": f"Bearer {key.key}"}
        without = await world.hf._functions["add"].enqueue(1)
        made = await world.client.post(
            "/v1/jobs", json={"name": "add", "arguments": {"a": 1}}, headers=headers
        )
        found = (await world.client.get("/v1/jobs", headers=headers)).json()["jobs"]
        assert {each["id"] for each in found} == {str(without.id), made.json()["id"]}


async def test_a_route_that_nobody_described_is_denied(local_url: str) -> None:
    hf = Holdfast(local_url)

    def make_routes(_service: Service) -> Router:
        router = Router()

        @router.get("/forgotten")
        @router.post("/forgotten")
        async def forgotten() -> Response:
            return Response("everything")

        @router.get("/remembered", **describes("read", {200: str}))
        async def remembered() -> Response:
            return Response("something")

        return router

    hf.add_routes(make_routes)
    key = await hf.keys.create("root", scopes=SCOPES)
    async with served(hf) as client:
        headers = {"authorization": f"Bearer {key.key}"}
        assert (await client.get("/forgotten", headers=headers)).status_code == 403
        assert (await client.post("/forgotten", headers=headers)).status_code == 403
        assert (await client.get("/remembered")).status_code == 401
        assert (await client.get("/remembered", headers=headers)).text == "something"


def plain() -> APIRouter:
    router = APIRouter()

    @router.get("/open")
    async def everything() -> Response:
        return Response("everything")

    return router


def nested() -> APIRouter:
    router = Router()
    router.include_router(plain())
    return router


@pytest.mark.parametrize("make", [plain, nested])
def test_a_router_whose_routes_are_not_guarded_is_refused(make: Any, local_url: str) -> None:
    hf = Holdfast(local_url)
    hf.add_routes(lambda _service: make())
    with pytest.raises(ConfigurationError, match="is not guarded"):
        make_api(hf)


async def test_denied_requests_are_in_the_audit_log(store_url: str) -> None:
    async with made_world(store_url) as world:
        key = await world.key("read", tenant=OWN)
        await send(world, "POST /v1/queues/{queue}/pause", key, "images")
        (entry,) = [each for each in (await world.hf.audit.list()).entries if each.key_id]
        assert (entry.outcome, entry.key_id, entry.tenant, entry.address, entry.correlation_id) == (
            "denied", key.id, OWN, "127.0.0.1", "c",
        )  # fmt: skip
        assert entry.action == "POST /v1/queues/{queue}/pause"
        assert entry.target == "/v1/queues/images/pause"


# Enqueued, leased and ended jobs are their own record.
UNRECORDED = ("/v1/jobs", "/v1/jobs/batch", "/v1/leases", "/v1/leases/renew", "/outcome")


async def test_every_change_by_an_operator_is_in_the_audit_log(store_url: str) -> None:
    async with made_world(store_url) as world:
        key = await world.key(*SCOPES, tenant=None)
        for route in RECIPES:
            target = await make_target(world, route, None)
            before = len(await entries(world, key))
            answer = await send(world, route, key, target)
            added = (await entries(world, key))[: -before or None]
            is_recorded = not route.startswith("GET") and not route.endswith(UNRECORDED)
            outcomes = [each.outcome for each in added]
            wanted = ["allowed"] if answer.is_success else ["failed", "allowed"]
            assert (route, outcomes) == (route, wanted if is_recorded else [])
            for entry in added:
                assert (
                    entry.outcome == ("allowed" if answer.is_success else "failed")
                    or answer.is_error
                )
                assert "." in entry.action
                assert entry.address == "127.0.0.1"


async def entries(world: World, key: NewKey) -> list[Any]:
    return [
        each for each in (await world.hf.audit.list(limit=200)).entries if each.key_id == key.id
    ]
