"""The routes of webhooks: who may call them, whose rows they show, and what they do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import httpx
import pytest

from holdfast import Holdfast
from holdfast.api import make_api
from holdfast.api.callers import Guarded
from holdfast.domain.keys import SCOPES, NewKey
from holdfast.webhooks import Saga, Webhooks
from holdfast.webhooks.routes import routes
from holdfast.webhooks.sender import NOT_CONNECTED
from tests.api.test_access import allows, shown
from tests.support.access import (
    OTHER,
    OWN,
    TARGET,
    Recipe,
    World,
    bearing,
    one_key_for_each_right,
    send,
)
from tests.support.api import served
from tests.support.roles import installed_roles
from tests.support.running import QUICK
from tests.webhooks.receiving import Receiver, receiving
from tests.webhooks.shop import AT_ONCE, FAR_SECONDS, both_stores

pytestmark = pytest.mark.heavy

RANGE: Final = {"since": "2020-01-01T00:00:00Z", "until": "2200-01-01T00:00:00Z"}


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


class Place(World):
    """Makes what webhook requests are about."""

    def __init__(
        self, hf: Holdfast, client: httpx.AsyncClient, webhooks: Webhooks, receiver: Receiver
    ) -> None:
        super().__init__(hf, client)
        self.webhooks = webhooks
        self.receiver = receiver

    async def subscription(self, tenant: str | None) -> UUID:
        tenant = tenant or "default"
        return (await self.webhooks.subscribe(self.receiver.url, tenant=tenant)).id

    async def event(self, tenant: str | None) -> UUID:
        tenant = tenant or "default"
        return (await self.webhooks.publish("order.paid", {"order": tenant}, tenant=tenant)).id

    async def saga(self, tenant: str | None) -> UUID:
        await self.subscription(tenant)
        event_id = await self.event(tenant)
        return (await self.webhooks.sagas(event_id=event_id, tenant=tenant or "default"))[0].id

    async def letter(self, tenant: str | None) -> UUID:
        """Insert it: the routes don't depend on how a saga dies, and the role of the API may not
        decide that."""
        saga = await self.webhooks.saga(await self.saga(tenant))
        return await self._kill(saga)

    async def _kill(self, saga: Saga) -> UUID:
        letter_id = self.hf.new_id()
        async with self.owner.transaction() as connection:
            dot = "holdfast." if self.is_postgres else ""
            await connection.execute(
                f"INSERT INTO {dot}webhook_dead_letters (id, tenant, saga_id, event_id,"
                " subscription_id, final_error_code, failed_at, payload_snapshot)"
                f" SELECT '{letter_id}', saga.tenant, saga.id, event_id, subscription_id,"
                f" 'HTTP_500', saga.created_at, payload FROM {dot}webhook_sagas AS saga"
                f" JOIN {dot}webhook_events AS event ON event.id = saga.event_id"
                f" AND event.tenant = saga.tenant WHERE saga.id = '{saga.id}'"
            )
            await connection.execute(
                f"UPDATE {dot}webhook_sagas SET status = 'DeadLettered', next_attempt_at = NULL,"
                f" ended_at = created_at WHERE id = '{saga.id}'"
            )
        return letter_id

    @property
    def is_postgres(self) -> bool:
        return self.hf.url_shown.startswith("postgres")

    owner: Holdfast

    async def replay(self, tenant: str | None) -> UUID:
        event = await self.webhooks.event(await self.event(tenant), tenant=tenant or "default")
        until = event.created_at + timedelta(seconds=1)
        made = await self.webhooks.replay(event.created_at, until, tenant=event.tenant)
        return made.id

    async def snapshot(self, tenant: str | None = None) -> list[Any]:
        found: list[Any] = []
        for each in (OWN, OTHER, "default") if tenant is None else (tenant,):
            found += [
                await self.webhooks.subscriptions(tenant=each),
                await self.webhooks.list_sagas(tenant=each, limit=1000),
                await self.webhooks.dead_letters(tenant=each),
            ]
        return found


@asynccontextmanager
async def made_place(url: str, owner_url: str | None = None) -> AsyncIterator[Place]:
    hf, webhooks = make_app(url)
    if owner_url is None:
        await hf.migrate()
    async with served(hf) as client, receiving() as receiver:
        place = Place(hf, client, webhooks, receiver)
        place.owner = hf
        if owner_url is None:
            yield place
            return
        place.owner = Holdfast(owner_url)
        async with place.owner:
            yield place


_ONE: Final = "/v1/subscriptions/{subscription_id}"
RECIPES: Final[Mapping[str, Recipe]] = {
    "POST /v1/events": Recipe((201,), body={"event_type": "order.paid", "payload": {"a": 1}}),
    "GET /v1/events/{event_id}": Recipe((200,), Place.event, owned=True),  # type: ignore[arg-type]
    "GET /v1/subscriptions": Recipe((200,)),
    "POST /v1/subscriptions": Recipe((201,), body={"url": "https://example.org/"}),
    f"GET {_ONE}": Recipe((200,), Place.subscription, owned=True),  # type: ignore[arg-type]
    f"PATCH {_ONE}": Recipe((200,), Place.subscription, owned=True, body={"event_types": []}),  # type: ignore[arg-type]
    f"POST {_ONE}/disable": Recipe((200,), Place.subscription, owned=True),  # type: ignore[arg-type]
    f"POST {_ONE}/enable": Recipe((200,), Place.subscription, owned=True),  # type: ignore[arg-type]
    f"DELETE {_ONE}": Recipe((204,), Place.subscription, owned=True),  # type: ignore[arg-type]
    f"POST {_ONE}/rotate-secret": Recipe((200,), Place.subscription, owned=True),  # type: ignore[arg-type]
    f"POST {_ONE}/test": Recipe((201,), Place.subscription, owned=True),  # type: ignore[arg-type]
    "GET /v1/sagas": Recipe((200,)),
    "GET /v1/sagas/{saga_id}": Recipe((200,), Place.saga, owned=True),  # type: ignore[arg-type]
    "GET /v1/sagas/{saga_id}/attempts": Recipe((200,), Place.saga, owned=True),  # type: ignore[arg-type]
    "POST /v1/sagas/{saga_id}/cancel": Recipe((200,), Place.saga, owned=True),  # type: ignore[arg-type]
    "GET /v1/dead-letters": Recipe((200,)),
    "GET /v1/dead-letters/{dead_letter_id}": Recipe((200,), Place.letter, owned=True),  # type: ignore[arg-type]
    "POST /v1/dead-letters/{dead_letter_id}/requeue": Recipe((200,), Place.letter, owned=True),  # type: ignore[arg-type]
    "POST /v1/replays": Recipe(
        (201,), Place.subscription, owned=True, body={**RANGE, "subscription_id": TARGET}  # type: ignore[arg-type]
    ),
    "GET /v1/replays/{replay_id}": Recipe((200,), Place.replay, owned=True),  # type: ignore[arg-type]
}  # fmt: skip
# An event's ID belongs to a tenant, which a key for all tenants has to name.
OF_A_TENANT: Final = ("GET /v1/events/{event_id}", "POST /v1/replays")


def own_routes(webhooks: Webhooks) -> dict[str, Guarded]:
    found: dict[str, Guarded] = {}
    for route in routes(webhooks).routes:
        assert isinstance(route, Guarded)
        found |= {f"{method} {route.path_format}": route for method in route.methods or ()}
    return found


async def target_of(place: Place, route: str, tenant: str | None) -> object:
    make = RECIPES[route].target
    return None if make is None else await make(place, tenant)


async def ask(
    place: Place, route: str, key: NewKey | None, target: object = None
) -> httpx.Response:
    return await send(place, route, key, target, RECIPES)


async def test_every_key_may_call_what_its_scope_names_and_nothing_else(local_url: str) -> None:
    async with made_place(local_url) as place:
        known = own_routes(place.webhooks)
        assert known.keys() == RECIPES.keys(), "every route needs a recipe"
        keys = [None, *await one_key_for_each_right(place)]
        targets = {route: await target_of(place, route, OWN) for route in known}
        before = await place.snapshot()
        denied = 0
        for route in known:
            for key in keys:
                if not allows(key, known[route]):
                    refused = await ask(place, route, key, targets[route])
                    assert (route, refused.status_code) == (route, 403 if key else 401)
                    denied += 1
        assert (await place.snapshot() == before) is True
        for route in known:
            for key in keys:
                if key is not None and allows(key, known[route]):
                    target = await target_of(place, route, key.tenant)
                    answer = await ask(place, route, key, target)
                    wanted = RECIPES[route].statuses
                    assert answer.status_code in wanted, (route, key, answer.text)
        assert denied > 100


async def test_every_route_works_on_the_role_of_the_api(postgres_url: str) -> None:
    async with (
        installed_roles(postgres_url, lambda url: make_app(url)[0]) as roles,
        made_place(roles.url("api"), roles.url("orchestrator")) as place,
    ):
        keys = [await place.key(*SCOPES, tenant=None), await place.key(*SCOPES[:-1], tenant=OWN)]
        for route in RECIPES:
            for key in keys:
                target = await target_of(place, route, key.tenant)
                answer = await ask(place, route, key, target)
                assert answer.status_code in RECIPES[route].statuses, (route, answer.text)


@both_stores
async def test_what_belongs_to_another_tenant_does_not_exist(store_url: str) -> None:
    async with made_place(store_url) as place:
        key = await place.key(*SCOPES[:-1], tenant=OWN)
        for route, recipe in RECIPES.items():
            if not recipe.owned:
                continue
            theirs, nobodys = str(await target_of(place, route, OTHER)), str(uuid4())
            before = await place.snapshot(OTHER)
            refused = await ask(place, route, key, theirs)
            unknown = await ask(place, route, key, nobodys)
            assert (route, refused.status_code) == (route, 404)
            assert shown(refused, theirs) == shown(unknown, nobodys), route
            assert (await place.snapshot(OTHER) == before) is True, route
        for path in ("subscriptions", "sagas", "dead-letters"):
            listed = await place.client.get(f"/v1/{path}", headers=bearing(key))
            assert list(listed.json().values()) == [[], None]
            named = await place.client.get(
                f"/v1/{path}", headers=bearing(key), params={"tenant": OTHER}
            )
            assert named.status_code == 403
        event = {"event_type": "a", "payload": {}, "tenant": OTHER}
        made = {"url": "https://example.org/", "tenant": OTHER}
        for path, body in (("events", event), ("subscriptions", made), ("replays", RANGE | made)):
            body = {k: v for k, v in body.items() if path != "replays" or k != "url"}
            refused = await place.client.post(f"/v1/{path}", headers=bearing(key), json=body)
            assert refused.status_code == 403


@both_stores
async def test_nobody_can_occupy_the_event_ids_of_another_tenant(store_url: str) -> None:
    async with made_place(store_url) as place:
        event = {"event_type": "order.paid", "payload": {"order": 1}, "id": str(uuid4())}
        for tenant in (OTHER, OWN):
            key = await place.key("enqueue", "read", tenant=tenant)
            mine = {**event, "payload": {"order": tenant}}
            for _ in range(2):
                made = await place.client.post("/v1/events", headers=bearing(key), json=mine)
                assert made.status_code == 201, made.text
            again = await place.client.get(made.headers["location"], headers=bearing(key))
            assert again.json()["payload"] == {"order": tenant}
            changed = {**event, "payload": {"order": 2}}
            refused = await place.client.post("/v1/events", headers=bearing(key), json=changed)
            assert (refused.status_code, refused.json()["reason"]) == (409, "EVENT_CONFLICT")


@both_stores
async def test_every_change_is_in_the_audit_log(store_url: str) -> None:
    async with made_place(store_url) as place:
        key = await place.key(*SCOPES, tenant=None)
        for route in RECIPES:
            target = await target_of(place, route, None)
            before = len((await place.hf.audit.list(limit=200)).entries)
            assert (await ask(place, route, key, target)).is_success
            entries = (await place.hf.audit.list(limit=200)).entries
            added = [each for each in entries if each.key_id][: len(entries) - before]
            is_recorded = not route.startswith("GET") and route != "POST /v1/events"
            assert (route, len(added)) == (route, int(is_recorded))
            for entry in added:
                assert (entry.outcome, "." in entry.action) == ("allowed", True)


@both_stores
async def test_an_event_from_its_request_to_its_dead_letter_and_back(store_url: str) -> None:
    async with made_place(store_url) as place:
        key = await place.key("read", "enqueue", "operate", tenant=OWN)
        client, receiver = place.client, place.receiver
        client.headers.update(bearing(key))
        receiver.answers = [500, 500, 500, 200]
        made = (await client.post("/v1/subscriptions", json={"url": receiver.url})).json()
        assert made["secret"].startswith("whsec_")
        body = {"event_type": "order.paid", "payload": {"order": 1001}}
        once = {"idempotency-key": "order-1001"}
        events = [await client.post("/v1/events", json=body, headers=once) for _ in range(2)]
        assert events[0].json() == events[1].json()
        await place.hf.run_due()
        (letter,) = (await client.get("/v1/dead-letters")).json()["dead_letters"]
        assert "payload_snapshot" not in letter
        whole = (await client.get(f"/v1/dead-letters/{letter['id']}")).json()
        assert whole == {**letter, "payload_snapshot": {"order": 1001}}
        path = f"/v1/dead-letters/{letter['id']}/requeue"
        new, again = [(await client.post(path)).json() for _ in range(2)]
        assert new == again
        await place.hf.run_due()
        delivered = (await client.get(f"/v1/sagas/{new['id']}")).json()
        assert (delivered["status"], delivered["requeued_from"]) == ("Delivered", letter["id"])
        attempts = await client.get(f"/v1/sagas/{letter['saga_id']}/attempts")
        assert [each["error_code"] for each in attempts.json()["attempts"]] == ["HTTP_500"] * 3
        assert attempts.json()["attempts"][0]["response_body"] == "thanks"
        listed = await client.get("/v1/sagas", params={"event_id": letter["event_id"]})
        assert [each["id"] for each in listed.json()["sagas"]] == [new["id"], letter["saga_id"]]
        assert made["secret"] not in f"{attempts.text}{listed.text}"


@both_stores
async def test_a_replay_counts_first_and_starts_once_for_its_key(store_url: str) -> None:
    async with made_place(store_url) as place:
        client = place.client
        client.headers.update(bearing(await place.key("read", "operate", tenant=OWN)))
        await place.subscription(OWN)
        for tenant in (OWN, OWN, OTHER):
            await place.event(tenant)
        await place.hf.run_due()
        place.receiver.requests.clear()
        counted = await client.post("/v1/replays", json={**RANGE, "dry_run": True})
        assert (counted.status_code, counted.json()) == (
            200,
            {"events": 2, "sagas": 2, "is_all": True},
        )
        once = {"idempotency-key": "replay-1"}
        made = [await client.post("/v1/replays", json=RANGE, headers=once) for _ in range(2)]
        assert made[0].json() == made[1].json()
        await place.hf.run_due()
        done = (await client.get(made[0].headers["location"])).json()
        assert (done["events"], done["sagas"]) == (2, 2)
        assert len(place.receiver.requests) == 2


@both_stores
async def test_a_tenant_can_not_tell_why_there_was_no_connection(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Operators can, in the log. 0.0.0.0 is never allowed, though the receiver would answer."""
    async with made_place(store_url) as place, receiving() as gone:
        nobody = gone.url
    caplog.set_level("INFO", "holdfast.webhooks")
    async with made_place(store_url) as place:
        client = place.client
        client.headers.update(bearing(await place.key(*SCOPES[:-1], tenant=OWN)))
        told = []
        for url in (nobody, f"http://0.0.0.0:{place.receiver.port}/", "http://no-such.invalid/"):
            made = (await client.post("/v1/subscriptions", json={"url": nobody})).json()
            async with place.owner.transaction() as connection:
                dot = "holdfast." if place.is_postgres else ""
                await connection.execute(
                    f"UPDATE {dot}webhook_subscriptions SET url = '{url}' WHERE id = '{made['id']}'"
                )
            sent = await client.post(f"/v1/subscriptions/{made['id']}/test")
            await place.hf.run_due()
            listed = await client.get("/v1/sagas", params={"event_id": sent.json()["id"]})
            (saga,) = listed.json()["sagas"]
            attempts = (await client.get(f"/v1/sagas/{saga['id']}/attempts")).json()["attempts"]
            told += [(each["error_code"], each["error_text"]) for each in attempts]
        assert set(told) == {("NETWORK_ERROR", NOT_CONNECTED)}
        assert place.receiver.requests == []
    causes = [
        record.fields["cause"].partition(":")[0]  # type: ignore[attr-defined]
        for record in caplog.records
        if getattr(record, "event", "") == "webhook_attempt"
    ]
    assert list(dict.fromkeys(causes)) == ["CONNECT_FAILED", "ADDRESS_FORBIDDEN", "NAME_UNKNOWN"]


async def test_lists_have_pages(local_url: str) -> None:
    async with made_place(local_url) as place:
        client = place.client
        client.headers.update(bearing(await place.key("read", tenant=OWN)))
        made = [str(await place.letter(OWN)) for _ in range(3)]
        for path, name in (
            ("/v1/subscriptions", "subscriptions"),
            ("/v1/sagas", "sagas"),
            ("/v1/dead-letters", "dead_letters"),
        ):
            whole = (await client.get(path)).json()[name]
            found, following = [], f"{path}?limit=2"
            while following:
                page = await client.get(following)
                found += page.json()[name]
                following = page.json()["next"]
                assert bool(following) == ("link" in page.headers)
            assert found == whole
            foreign = (await client.get("/v1/sagas?limit=1")).json()["next"].partition("?")[2]
            if path != "/v1/sagas":
                assert (await client.get(f"{path}?{foreign}")).status_code == 400
        letters = (await client.get("/v1/dead-letters")).json()["dead_letters"]
        assert [each["id"] for each in letters] == made[::-1]


async def test_bad_requests_say_what_is_wrong(local_url: str) -> None:
    async with made_place(local_url) as place:
        client = place.client
        client.headers.update(bearing(await place.key(*SCOPES[:-1], tenant=OWN)))
        id = await place.subscription(OWN)
        for method, path, body, status, word in (
            ("POST", "/v1/events", {"event_type": "a b", "payload": {}}, 400, "event_type"),
            ("POST", "/v1/events", {"event_type": "a", "payload": []}, 400, "payload"),
            ("POST", "/v1/events", {"event_type": "a", "payload": {}, "x": 1}, 400, "x"),
            ("POST", "/v1/subscriptions", {"url": "ftp://a.org/"}, 422, "https or http"),
            ("POST", "/v1/subscriptions", {"url": "http://0.0.0.0/"}, 422, "not allowed"),
            ("POST", "/v1/subscriptions", {"url": "http://a.org/", "preset": "x"}, 422, "preset"),
            ("PATCH", f"/v1/subscriptions/{id}", {"url": "http://a@b.org/"}, 422, "user name"),
            ("POST", f"/v1/subscriptions/{id}/rotate-secret", {"secret": "x"}, 422, "whsec_"),
            ("POST", "/v1/replays", {**RANGE, "until": RANGE["since"]}, 422, "before until"),
            ("GET", "/v1/sagas?status=Lost", None, 400, "status"),
            ("GET", "/v1/sagas?limit=0", None, 400, "limit"),
            ("GET", "/v1/sagas/7", None, 400, "saga_id"),
        ):
            refused = await client.request(method, path, json=body)
            assert (path, refused.status_code) == (path, status), refused.text
            assert word in refused.text
        once = {"idempotency-key": "k"}
        for path in ("/v1/subscriptions", f"/v1/subscriptions/{id}/rotate-secret"):
            body = {"url": "https://example.org/"} if path == "/v1/subscriptions" else {}
            refused = await client.post(path, json=body, headers=once)
            assert (refused.status_code, "shown only once" in refused.text) == (400, True)
        counting = {**RANGE, "dry_run": True}
        refused = await client.post("/v1/replays", json=counting, headers={"idempotency-key": ""})
        assert (refused.status_code, "1 to 255" in refused.text) == (400, True)


def test_the_routes_are_mounted_once_and_described() -> None:
    hf = Holdfast("sqlite:///never.db")
    Webhooks(hf)
    document = make_api(hf).openapi()
    paths = {
        f"{method.upper()} {path}"
        for path, item in document["paths"].items()
        for method in item
        if method != "parameters"
    }
    assert paths > RECIPES.keys()
    assert "whsec_" in json.dumps(document)
