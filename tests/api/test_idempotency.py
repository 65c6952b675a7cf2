"""Idempotency-Key: the work is done once, whatever is repeated, crossed or killed."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import Request
from starlette.responses import Response

from holdfast import Filter, Holdfast
from holdfast.api import Caller, Problem, Router, Service, describes
from holdfast.api.answers import answer
from holdfast.api.bodies import read_body
from holdfast.api.callers import AsCaller
from holdfast.api.idempotency import delete_expired, idempotent, once
from holdfast.api.limits import ANSWER_BYTES_MAX
from tests.support.api import served
from tests.support.running import QUICK, execute

LONG_AGO = "'2020-01-01T00:00:00.000000Z'"


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many jobs to enqueue."""

    jobs: int
    outcome: str = "done"


class Orders:
    """Routes that enqueue jobs, once for each key."""

    def __init__(self, store_url: str) -> None:
        self.hf = Holdfast(store_url, **QUICK)
        self.caller = Caller(self.hf, "key", None, frozenset())
        self.runs = 0
        self.job = self.hf.job(name="make")(_make)
        self.hf.add_routes(self._routes)

    def _routes(self, service: Service) -> Router:
        router = Router(prefix="/v1/orders")

        @router.post("", **describes("enqueue", {201: None}, body=Order, idempotency="required"))
        async def order(request: Request, caller: AsCaller) -> Response:
            new = await read_body(request, Order)

            async def work(connection: Any) -> Response:
                return await self._work(new, connection)

            return await idempotent(request, caller, new, work, required=True)

        @router.post("/again", **describes("enqueue", {201: None}, idempotency="optional"))
        async def again(request: Request, caller: AsCaller) -> Response:
            return await idempotent(request, caller, None, self.work)

        return router

    async def work(self, connection: Any) -> Response:
        return await self._work(Order(1), connection)

    async def _work(self, new: Order, connection: Any) -> Response:
        self.runs += 1
        calls = [self.job.call(number) for number in range(new.jobs)]
        jobs = await self.hf.enqueue_many(calls, connection=connection)
        if new.outcome == "refused":
            raise Problem("bad-request", "no")
        if new.outcome == "broken":
            raise RuntimeError("broken")
        ids = [job.id for job in jobs]
        return answer({"ids": ids, "run": self.runs}, 201, {"location": "/v1/orders/1"})

    async def jobs_made(self) -> int:
        return len((await self.hf.jobs.list(Filter(name="make"), 1000)).jobs)


async def _make(number: int) -> int:
    return number


def keyed(key: str = "k-1") -> dict[str, str]:
    return {"idempotency-key": key}


async def post(
    client: httpx.AsyncClient, order: dict[str, Any], key: str = "k-1"
) -> httpx.Response:
    return await client.post("/v1/orders", json=order, headers=keyed(key))


async def test_a_repeated_request_gets_the_same_answer_and_changes_nothing(store_url: str) -> None:
    orders = Orders(store_url)
    async with served(orders.hf) as client:
        first = await post(client, {"jobs": 3})
        again = await post(client, {"jobs": 3})
        assert (first.status_code, again.status_code) == (201, 201)
        assert first.json() == again.json()
        assert again.headers["location"] == first.headers["location"] == "/v1/orders/1"
        assert again.headers["content-type"] == first.headers["content-type"]
        assert first.headers["idempotency-kept-seconds"] == str(7 * 24 * 3600)
        assert "idempotency-replayed" not in first.headers
        assert again.headers["idempotency-replayed"] == "true"
        assert orders.runs == 1
        assert await orders.jobs_made() == 3


async def test_the_same_json_written_differently_is_the_same_request(store_url: str) -> None:
    orders = Orders(store_url)
    headers = {**keyed(), "content-type": "application/json"}
    async with served(orders.hf) as client:
        one = await client.post("/v1/orders", content=b'{"jobs":1}', headers=headers)
        two = await client.post(
            "/v1/orders", content=b'{ "outcome": "done", "jobs": 1 }', headers=headers
        )
        assert one.json() == two.json()
        assert await orders.jobs_made() == 1


async def test_a_request_that_crosses_the_first_is_told_to_wait(store_url: str) -> None:
    orders = Orders(store_url)
    async with once(make_request(), orders.caller, None) as first:
        with pytest.raises(Problem) as crossing:
            await idempotent(make_request(), orders.caller, None, orders.work)
        assert (crossing.value.code, crossing.value.kind.status) == ("request-in-flight", 409)
        assert crossing.value.headers == {"retry-after": "1"}
        assert (await first.finish(orders.work)).status_code == 201
    replayed = await idempotent(make_request(), orders.caller, None, orders.work)
    assert replayed.headers["idempotency-replayed"] == "true"
    assert (orders.runs, await orders.jobs_made()) == (1, 1)
    await orders.hf.close()


async def test_a_storm_of_the_same_request_does_its_work_once(store_url: str) -> None:
    orders = Orders(store_url)
    async with served(orders.hf) as client:
        answers = await asyncio.gather(*(post(client, {"jobs": 2}) for _ in range(20)))
        assert {each.status_code for each in answers} <= {201, 409}
        assert len({each.text for each in answers if each.status_code == 201}) == 1
        assert await orders.jobs_made() == 2


@pytest.mark.parametrize("other", ["body", "path"])
async def test_a_key_that_was_used_for_another_request_is_a_conflict(
    store_url: str, other: str
) -> None:
    orders = Orders(store_url)
    async with served(orders.hf) as client:
        await post(client, {"jobs": 1})
        if other == "body":
            crossed = await post(client, {"jobs": 2})
        else:
            crossed = await client.post("/v1/orders/again", headers=keyed())
        assert crossed.status_code == 422
        assert crossed.json()["code"] == "idempotency-conflict"
        assert crossed.json()["errors"][0]["parameter"] == "Idempotency-Key"
        assert await orders.jobs_made() == 1


async def test_a_missing_key_is_an_error_only_where_it_is_required(store_url: str) -> None:
    orders = Orders(store_url)
    async with served(orders.hf) as client:
        missing = await client.post("/v1/orders", json={"jobs": 1})
        assert missing.status_code == 400
        assert missing.json()["code"] == "idempotency-key-missing"
        assert (await client.post("/v1/orders/again")).status_code == 201
        assert (await client.post("/v1/orders/again")).status_code == 201
        assert await orders.jobs_made() == 2


async def test_a_malformed_key_is_refused(local_url: str) -> None:
    orders = Orders(local_url)
    long = "x" * 256
    malformed = ["", '""', "a b", "ä", '"ä"', '"open', "a,b", long, f'"{long}"']
    async with served(orders.hf) as client:
        for keys in (*([key] for key in malformed), ["a", "b"]):
            headers = [(b"idempotency-key", key.encode()) for key in keys]
            refused = await client.post("/v1/orders", json={"jobs": 1}, headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (400, "bad-request"), keys
        assert orders.runs == 0


async def test_a_quoted_key_and_a_bare_one_are_the_same_key(store_url: str) -> None:
    orders = Orders(store_url)
    async with served(orders.hf) as client:
        for key in ("8e03978e", '"8e03978e"', '"8e03978e";attempt=2'):
            assert (await post(client, {"jobs": 1}, key)).status_code == 201
        odd = '"a \\"quoted\\" \\\\ key"'
        assert (await post(client, {"jobs": 1}, odd)).status_code == 201
        assert (await post(client, {"jobs": 1}, odd)).headers["idempotency-replayed"] == "true"
        assert orders.runs == 2


@pytest.mark.parametrize(("outcome", "status"), [("refused", 400), ("broken", 500)])
async def test_a_request_that_fails_changes_nothing_and_frees_its_key(
    store_url: str, outcome: str, status: int
) -> None:
    orders = Orders(store_url)
    async with served(orders.hf) as client:
        failed = await post(client, {"jobs": 1, "outcome": outcome})
        assert failed.status_code == status
        assert await orders.jobs_made() == 0
        assert (await post(client, {"jobs": 2})).status_code == 201
        assert await orders.jobs_made() == 2


async def test_an_answer_that_is_too_large_to_keep_is_refused_before_any_effect(
    local_url: str,
) -> None:
    orders = Orders(local_url)

    async def work(connection: Any) -> Response:
        await orders.work(connection)
        return Response(os.urandom(ANSWER_BYTES_MAX))

    with pytest.raises(Problem, match="too large to be stored"):
        await idempotent(make_request(), orders.caller, None, work)
    assert await orders.jobs_made() == 0
    await orders.hf.close()


async def test_tenants_and_administrators_do_not_share_keys(store_url: str) -> None:
    hf = Holdfast(store_url, **QUICK)

    async def ask(tenant: str | None) -> Any:
        async def work(_connection: Any) -> Response:
            return answer({"tenant": tenant})

        caller = Caller(hf, "key", tenant, frozenset())
        return msgspec.json.decode((await idempotent(make_request(), caller, None, work)).body)

    for tenant in (None, "acme", "globex") * 2:
        assert await ask(tenant) == {"tenant": tenant}
    await hf.close()


async def test_a_key_whose_process_died_is_taken_over_after_its_deadline(store_url: str) -> None:
    orders = Orders(store_url)
    died = once(make_request(), orders.caller, None)
    await died.__aenter__()  # and it never gets further
    with pytest.raises(Problem, match="in progress"):
        await idempotent(make_request(), orders.caller, None, orders.work)
    await let_deadlines_pass(store_url)
    taken_over = await idempotent(make_request(), orders.caller, None, orders.work)
    assert taken_over.status_code == 201
    assert "idempotency-replayed" not in taken_over.headers
    assert await orders.jobs_made() == 1
    await died.__aexit__(None, None, None)
    await orders.hf.close()


async def test_a_request_that_was_taken_over_commits_nothing(store_url: str) -> None:
    orders = Orders(store_url)

    async def take_too_long() -> None:
        async with once(make_request(), orders.caller, None) as slow:
            await let_deadlines_pass(store_url)
            await idempotent(make_request(), orders.caller, None, orders.work)
            await slow.finish(orders.work)

    with pytest.raises(Problem, match="in progress"):
        await take_too_long()
    assert (orders.runs, await orders.jobs_made()) == (2, 1)
    replayed = await idempotent(make_request(), orders.caller, None, orders.work)
    assert replayed.headers["idempotency-replayed"] == "true"
    await orders.hf.close()


async def test_an_expired_key_can_be_used_again_and_is_deleted(store_url: str) -> None:
    orders = Orders(store_url)
    async with served(orders.hf) as client:
        await post(client, {"jobs": 1})
        await post(client, {"jobs": 1}, "k-2")
        assert await delete_expired(orders.hf) == 0
        await execute(store_url, f"UPDATE api_requests SET expires_at = {LONG_AGO}")
        assert (await post(client, {"jobs": 2})).status_code == 201
        assert await orders.jobs_made() == 4
        assert await delete_expired(orders.hf) == 1
        assert (await post(client, {"jobs": 2})).headers["idempotency-replayed"] == "true"


def make_request(key: str = "k-1") -> Request:
    headers = [(b"idempotency-key", key.encode())]
    return Request(
        {"type": "http", "method": "POST", "path": "/v1/x", "query_string": b"",
         "headers": headers, "server": ("localhost", 80), "scheme": "http"}
    )  # fmt: skip


async def let_deadlines_pass(store_url: str) -> None:
    await execute(store_url, f"UPDATE api_requests SET in_flight_until = {LONG_AGO}")
