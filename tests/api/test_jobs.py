"""/v1/jobs: enqueue, look and change, over a real server."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx

from holdfast import Context, Holdfast, Permanent
from holdfast.api.limits import BATCH_JOBS_MAX
from tests.support.api import served

BAD: list[tuple[Any, int, str]] = [
    ({"name": "add", "arguments": {"a": "x"}}, 422, "/arguments/a"),
    ({"name": "add", "arguments": {"a": 1, "more": [1, {}]}}, 422, "/arguments/more/1"),
    ({"name": "add", "arguments": {"a": 1, "z/~": 1}}, 422, "/arguments/z~1~0"),
    ({"name": "add"}, 422, "/arguments"),
    ({"name": "ad"}, 422, "/name"),
    ({"name": "add", "arguments": []}, 400, "/arguments"),
    ({"name": "add", "arguments": {"a": 1}, "queue": "a\nb"}, 400, "/queue"),
    ({"name": "add", "arguments": {"a": 1}, "queue": "x" * 201}, 400, "/queue"),
    ({"name": "add", "arguments": {"a": 1}, "tags": ["a", ""]}, 400, "/tags/1"),
    ({"name": "add", "arguments": {"a": 1}, "priority": 32768}, 400, "/priority"),
    ({"name": "add", "arguments": {"a": 1}, "run_at": "1900-01-01T00:00:00Z"}, 400, "/run_at"),
    ({"name": "add", "arguments": {"a": 1}, "run_at": "2027-01-01T00:00:00"}, 400, "/run_at"),
    ({"name": "add", "arguments": {"a": 1}, "delay": 1}, 400, "/delay"),
    ({"name": "add", "arguments": {"a": 1}, "a.b/`c`": 1}, 400, "/a.b~1`c`"),
    ({"name": "add", "arguments": {"a": 1}, "tenant": "a\tb"}, 400, "/tenant"),
    ([], 400, ""),
]
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def make_app(url: str) -> Holdfast:
    hf = Holdfast(url)

    @hf.job(queue="sums")
    async def add(a: int, b: int = 1, more: list[int] | None = None) -> int:
        if a == 0:
            raise Permanent("nothing to add", code="ZERO")
        return a + b

    @hf.job
    async def start(ctx: Context) -> None:
        await add.enqueue(1)

    return hf


async def enqueue(client: httpx.AsyncClient, a: Any = 1, **options: Any) -> httpx.Response:
    body = {"name": "add", "arguments": {"a": a}, **options}
    return await client.post("/v1/jobs", json=body)


def pointers(response: httpx.Response) -> list[str]:
    return [each["pointer"] for each in response.json()["errors"]]


async def test_an_enqueued_job_is_found_by_its_id(store_url: str) -> None:
    async with served(make_app(store_url)) as client:
        made = await enqueue(client, 2, tags=["x"], priority=5, correlation_id="c-1")
        assert made.status_code == 201
        found = await client.get(made.headers["location"])
        job = found.json()
        assert (job["arguments"], job["queue"], job["priority"]) == ({"a": 2}, "sums", 5)
        assert (job["tags"], job["correlation_id"], job["state"]) == (["x"], "c-1", "queued")
        missing = await client.get(f"/v1/jobs/{uuid4()}")
        assert (missing.status_code, missing.json()["code"]) == (404, "job-not-found")
        assert (await client.get("/v1/jobs/17")).json()["errors"][0]["parameter"] == "job_id"


async def test_the_same_key_gives_the_same_job_and_another_body_is_refused(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        client.headers["idempotency-key"] = "order-17"
        first, again, other = [await enqueue(client, a) for a in (1, 1, 2)]
        assert (first.status_code, again.status_code, other.status_code) == (201, 200, 422)
        assert "idempotency-replayed" not in first.headers
        assert again.headers["idempotency-replayed"] == "true"
        assert again.json()["id"] == first.json()["id"]
        kept_seconds = str(int(hf.settings.keys_kept_seconds))
        assert first.headers["idempotency-kept-seconds"] == kept_seconds
        assert other.json()["code"] == "idempotency-conflict"
        assert other.json()["job_id"] == first.json()["id"]


STATED: dict[str, Any] = {
    "queue": "slow",
    "priority": 5,
    "max_attempts": 3,
    "expires_in_seconds": 3600.1,
    "correlation_id": "c-1",
    "tags": ["x", "y"],
    "id": "0190a1ed-0000-7000-8000-000000000001",
}
DIFFERENT: dict[str, Any] = {
    "queue": "sums",
    "priority": 0,
    "max_attempts": 5,
    "expires_in_seconds": 3600.2,
    "correlation_id": "c-2",
    "tags": ["y", "x"],
    "id": "0190a1ed-0000-7000-8000-000000000002",
}


async def test_the_same_key_with_another_option_is_refused_with_a_pointer_to_it(
    store_url: str,
) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        client.headers["idempotency-key"] = "order-17"
        first = await enqueue(client, 0, **STATED)
        assert first.status_code == 201
        for _ in ("while it waits", "after its end"):
            again = await enqueue(client, 0, **STATED)
            assert (again.status_code, again.json()["id"]) == (200, STATED["id"])
            assert (await enqueue(client, 0)).status_code == 200
            for name, value in DIFFERENT.items():
                refused = await enqueue(client, 0, **{**STATED, name: value})
                assert (refused.status_code, name) == (422, name)
                assert refused.json()["code"] == "idempotency-conflict"
                assert refused.json()["job_id"] == STATED["id"]
                assert pointers(refused) == [f"/{name}"]
            assert pointers(await enqueue(client, 0, **DIFFERENT)) == [
                f"/{name}"
                for name in (
                    "queue",
                    "priority",
                    "max_attempts",
                    "correlation_id",
                    "id",
                    "tags",
                    "expires_in_seconds",
                )
            ]
            await hf.run_due()
        assert len((await client.get("/v1/jobs")).json()["jobs"]) == 1


async def test_the_same_key_with_another_delay_gets_the_same_job_since_retries_change_it(
    store_url: str,
) -> None:
    async with served(make_app(store_url)) as client:
        client.headers["idempotency-key"] = "order-17"
        first = await enqueue(client, delay_seconds=600)
        del client.headers["idempotency-key"]
        await client.post(f"/v1/jobs/{first.json()['id']}/retry")
        client.headers["idempotency-key"] = "order-17"
        for options in ({"delay_seconds": 600}, {"run_at": "2030-01-01T00:00:00Z"}):
            again = await enqueue(client, **options)
            assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


async def test_keys_of_two_tenants_have_nothing_to_do_with_each_other(store_url: str) -> None:
    hf = make_app(store_url)
    keys = [
        await hf.keys.create(tenant, scopes=["read", "enqueue"], tenant=tenant)
        for tenant in ("acme", "zeta")
    ]
    async with served(hf) as client:
        client.headers["idempotency-key"] = "order-17"
        made = []
        for key in keys:
            client.headers["authorization"] = f"Bearer {key.key}"
            made.append(await enqueue(client))
        assert [each.status_code for each in made] == [201, 201]
        assert [each.json()["tenant"] for each in made] == ["acme", "zeta"]
        other = await client.get(made[0].headers["location"])
        assert other.json()["code"] == "job-not-found"
        named = await enqueue(client, tenant="acme")
        assert named.json()["code"] == "not-allowed"


async def test_a_bad_job_is_refused_with_a_pointer_to_what_is_wrong(store_url: str) -> None:
    async with served(make_app(store_url)) as client:
        for body, status, pointer in BAD:
            refused = await client.post("/v1/jobs", json=body)
            assert (refused.status_code, pointers(refused)) == (status, [pointer])
            assert refused.headers["content-type"] == "application/problem+json"
        assert (await client.get("/v1/jobs")).json() == {"jobs": [], "next": None}


async def test_a_batch_is_enqueued_wholly_or_not_at_all(store_url: str) -> None:
    jobs: list[dict[str, Any]] = [{"name": "add", "arguments": {"a": a}} for a in range(5)]
    async with served(make_app(store_url)) as client:
        client.headers["idempotency-key"] = "one"
        bad = [*jobs, {"name": "add", "arguments": {"a": "x"}}, {"name": "nobody"}]
        refused = await client.post("/v1/jobs/batch", json={"jobs": bad})
        assert refused.status_code == 422
        assert pointers(refused) == ["/jobs/5/arguments/a", "/jobs/6/name"]
        assert (await client.get("/v1/jobs")).json()["jobs"] == []
        first = await client.post("/v1/jobs/batch", json={"jobs": jobs})
        again = await client.post("/v1/jobs/batch", json={"jobs": jobs})
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.headers["idempotency-replayed"] == "true"
        assert again.json() == first.json()
        listed = (await client.get("/v1/jobs")).json()["jobs"]
        assert [each["id"] for each in listed[::-1]] == [
            each["id"] for each in first.json()["jobs"]
        ]


async def test_a_batch_needs_a_key_and_has_a_limit(store_url: str) -> None:
    job = {"name": "add", "arguments": {"a": 1}}
    async with served(make_app(store_url)) as client:
        missing = await client.post("/v1/jobs/batch", json={"jobs": [job]})
        assert (missing.status_code, missing.json()["code"]) == (400, "idempotency-key-missing")
        client.headers["idempotency-key"] = "one"
        many = await client.post("/v1/jobs/batch", json={"jobs": [job] * (BATCH_JOBS_MAX + 1)})
        assert (many.status_code, pointers(many)) == (400, ["/jobs"])


async def test_a_job_of_a_batch_with_a_known_key_is_not_enqueued_again(store_url: str) -> None:
    jobs = [{"name": "add", "arguments": {"a": 1}, "idempotency_key": key} for key in ("x", "y")]
    async with served(make_app(store_url)) as client:
        first = await client.post(
            "/v1/jobs/batch", json={"jobs": jobs[:1]}, headers={"idempotency-key": "one"}
        )
        both = await client.post(
            "/v1/jobs/batch", json={"jobs": jobs}, headers={"idempotency-key": "two"}
        )
        known, new = both.json()["jobs"]
        assert known == first.json()["jobs"][0] | {"is_new": False}
        assert new["is_new"]


async def test_jobs_are_canceled_retried_and_requeued(store_url: str) -> None:
    async with served(make_app(store_url)) as client:
        path = (await enqueue(client, delay_seconds=600)).headers["location"]
        due = await client.post(f"{path}/retry")
        assert due.status_code == 200
        assert due.json()["run_at"] < (await enqueue(client, delay_seconds=60)).json()["run_at"]
        canceled = await client.post(f"{path}/cancel", json={"because": "wrong file"})
        assert canceled.json()["state"] == "canceled"
        assert canceled.json()["error_text"] == "canceled by local: wrong file"
        assert (await client.post(f"{path}/cancel")).json()["code"] == "wrong-state"
        bad = await client.post(f"{path}/requeue", json={"arguments": {"a": None}})
        assert (bad.status_code, pointers(bad)) == (422, ["/arguments/a"])
        copy = await client.post(f"{path}/requeue", json={"arguments": {"a": 7}})
        assert (copy.status_code, copy.json()["arguments"]) == (201, {"a": 7})
        assert copy.json()["requeued_from"] == canceled.json()["id"]
        once = await client.post(f"{path}/requeue", json={"again": False})
        assert (once.status_code, once.json()["code"]) == (409, "already-requeued")
        assert once.json()["job_id"] == copy.json()["id"]
        log = (await client.get("/v1/audit")).json()["entries"]
        done = [each["action"] for each in log if each["outcome"] == "allowed"]
        assert done[-1] == "job.retry"
        assert {"job.cancel", "job.requeue"} <= set(done)


async def test_a_repeated_requeue_with_a_key_makes_one_copy(store_url: str) -> None:
    async with served(make_app(store_url)) as client:
        path = (await enqueue(client)).headers["location"]
        await client.post(f"{path}/cancel")
        client.headers["idempotency-key"] = "again"
        copies = [await client.post(f"{path}/requeue") for _ in range(2)]
        assert copies[0].json()["id"] == copies[1].json()["id"]
        assert [each.headers.get("idempotency-replayed") for each in copies] == [None, "true"]


async def test_attempts_have_their_lease_and_error(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        path = (await enqueue(client, 0)).headers["location"]
        assert (await client.get(f"{path}/attempts")).json() == {"attempts": []}
        await hf.run_due()
        (attempt,) = (await client.get(f"{path}/attempts")).json()["attempts"]
        assert (attempt["attempt"], attempt["fence"], attempt["outcome"]) == (1, 1, "failed")
        assert attempt["error_code"] == "ZERO"
        assert attempt["error_text"].startswith("nothing to add")
        assert attempt["worker"]
        assert attempt["started_at"] <= attempt["ended_at"]


async def test_a_running_attempt_is_listed_too(store_url: str) -> None:
    hf = Holdfast(store_url)
    seen = []

    @hf.job
    async def look(ctx: Context) -> None:
        seen.append((await client.get(f"/v1/jobs/{ctx.job_id}/attempts")).json()["attempts"])

    async with served(hf) as client:
        await look.enqueue()
        await hf.run_due()
    ((attempt,),) = seen
    assert (attempt["outcome"], attempt["ended_at"], attempt["fence"]) == ("running", None, 1)


async def test_why_and_related_explain_a_job(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        parent = await client.post("/v1/jobs", json={"name": "start", "correlation_id": "c-1"})
        why = (await client.get(f"{parent.headers['location']}/why")).json()
        assert why["code"] == "no_worker"
        await hf.run_due()
        related = (await client.get(f"{parent.headers['location']}/related")).json()
        (child,) = related["children"]
        assert related["same_correlation"] == [child]
        assert (await client.get(related["children_link"])).json()["jobs"][0]["id"] == child["id"]
        of_child = (await client.get(f"/v1/jobs/{child['id']}/related")).json()
        assert of_child["parent_id"] == parent.json()["id"]


async def test_why_does_not_tell_a_tenants_key_what_operators_wrote(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        made = await enqueue(client, tenant="acme")
        await hf.queues.pause("sums", by="ann", because="globex does not pay")
        for tenant in ("acme", None):
            key = await hf.keys.create(f"of {tenant}", scopes=["read"], tenant=tenant)
            headers = {"authorization": f"Bearer {key.key}"}
            why = (await client.get(f"{made.headers['location']}/why", headers=headers)).json()
            assert why["code"] == "queue_paused"
            assert ("globex" in str(why), "ann" in str(why)) == (tenant is None, tenant is None)


async def test_correlation_id_and_trace_go_in_and_come_back(store_url: str) -> None:
    headers = {"x-correlation-id": "order-17", "traceparent": TRACE}
    async with served(make_app(store_url)) as client:
        body = {"name": "add", "arguments": {"a": 1}}
        made = await client.post("/v1/jobs", json=body, headers=headers)
        assert (made.json()["correlation_id"], made.json()["trace"]) == ("order-17", TRACE)
        assert {name: made.headers[name] for name in headers} == headers
        refused = await client.post("/v1/jobs", json={}, headers=headers)
        assert refused.headers["x-correlation-id"] == refused.json()["correlation_id"] == "order-17"
        bad = {"x-correlation-id": "a b", "traceparent": "00-zz"}
        other = await client.post("/v1/jobs", json=body, headers=bad)
        assert other.status_code == 201
        assert other.json()["correlation_id"] == other.headers["x-correlation-id"] != "a b"
        assert other.json()["trace"] is None
        assert "traceparent" not in other.headers


async def test_a_body_must_be_json_and_says_so(store_url: str) -> None:
    async with served(make_app(store_url)) as client:
        text = await client.post("/v1/jobs", content="{}", headers={"content-type": "text/plain"})
        assert (text.status_code, text.json()["code"]) == (415, "wrong-media-type")
        path = (await enqueue(client)).headers["location"]
        untyped = await client.post(f"{path}/cancel", content="{}")
        assert untyped.status_code == 415
        empty = await client.post(f"{path}/cancel", headers={"content-type": "application/json"})
        assert empty.status_code == 200
