"""Lists and counts: filters, stable pages, cursors, and numbers that stay fast."""

from __future__ import annotations

from typing import Any

import httpx

from holdfast import Holdfast
from holdfast.api import limits
from tests.support.api import served

TRAPS = ["%00", "a%00b", "%ED%A0%80", "%FF", "x" * 5000, "'; DROP TABLE jobs; --", "%F0%9F%A6%80"]


def make_app(url: str) -> Holdfast:
    hf = Holdfast(url)

    @hf.job
    async def echo(value: Any = None) -> Any:
        return value

    return hf


async def enqueue(client: httpx.AsyncClient, jobs: int, **options: Any) -> list[str]:
    new = [{"name": "echo", "arguments": {"value": number}, **options} for number in range(jobs)]
    made = await client.post("/v1/jobs/batch", json={"jobs": new}, headers={"idempotency-key": "x"})
    return [each["id"] for each in made.json()["jobs"]]


async def follow(client: httpx.AsyncClient, path: str) -> list[list[str]]:
    """Read a list to its end; return the ids of each page."""
    pages = []
    following: str | None = path
    while following is not None:
        page = await client.get(following)
        assert page.status_code == 200, page.text
        pages.append([each["id"] for each in page.json()["jobs"]])
        following = page.json()["next"]
        assert page.links.get("next", {}).get("url") == following
    return pages


async def test_pages_have_every_job_once_while_new_ones_come_in(store_url: str) -> None:
    async with served(make_app(store_url)) as client:
        ids = await enqueue(client, 7)
        first = (await client.get("/v1/jobs?limit=3")).json()
        await client.post("/v1/jobs", json={"name": "echo"})
        rest = await follow(client, first["next"])
        assert [each["id"] for each in first["jobs"]] == ids[:3:-1]
        assert [job_id for page in rest for job_id in page] == ids[3::-1]
        assert list(map(len, rest)) == [3, 1]


async def test_lists_are_filtered_by_every_field(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        await client.post("/v1/jobs", json={"name": "echo", "queue": "other"})
        options = {"queue": "q/1", "tenant": "acme", "tags": ["t"], "correlation_id": "c"}
        made = (await client.post("/v1/jobs", json={"name": "echo", **options})).json()
        for query in (
            {"queue": "q/1"},
            {"tenant": "acme"},
            {"tag": "t"},
            {"correlation_id": "c"},
            {"state": ["queued", "running"], "queue": "q/1"},
            {"name": "echo", "since": made["created_at"], "tenant": "acme"},
        ):
            found = (await client.get("/v1/jobs", params=query)).json()
            assert [each["id"] for each in found["jobs"]] == [made["id"]]
        for nothing in (
            {"queue": "q"},
            {"parent_id": made["id"]},
            {"state": "dead"},
            {"error_code": "E"},
            {"fingerprint": "f"},
            {"until": made["created_at"], "tenant": "acme"},
        ):
            found = (await client.get("/v1/jobs", params=nothing)).json()
            assert found == {"jobs": [], "next": None}


async def test_a_cursor_belongs_to_its_filter(store_url: str) -> None:
    async with served(make_app(store_url)) as client:
        await enqueue(client, 3)
        following = (await client.get("/v1/jobs?limit=1&state=queued")).json()["next"]
        cursor = httpx.URL(following).params["cursor"]
        assert (await client.get(f"/v1/jobs?state=queued&cursor={cursor}")).status_code == 200
        for bad in (
            f"/v1/jobs?cursor={cursor}",
            f"/v1/jobs?state=running&cursor={cursor}",
            f"/v1/dead?cursor={cursor}",
            "/v1/jobs?cursor=x",
            "/v1/jobs?cursor=",
            f"/v1/jobs?state=queued&cursor={cursor}x",
            "/v1/jobs?cursor=%00",
            "/v1/jobs?cursor=%C3%A4",
        ):
            refused = await client.get(bad)
            assert refused.status_code == 400, bad
            assert refused.json()["errors"][0]["parameter"] == "cursor"


async def test_a_bad_query_is_refused_with_the_parameter(store_url: str) -> None:
    async with served(make_app(store_url)) as client:
        for query, parameter in (
            ("stat=queued", "stat"),
            ("state=sleeping", "state"),
            ("limit=0", "limit"),
            (f"limit={limits.PAGE_JOBS_MAX + 1}", "limit"),
            ("limit=9223372036854775808", "limit"),
            ("limit=1e3", "limit"),
            ("queue=a&queue=b", "queue"),
            ("since=yesterday", "since"),
            ("since=2026-11-17T09:30:00", "since"),
            ("since=0001-01-01T00:00:00Z", "since"),
            ("parent_id=17", "parent_id"),
            ("%00=1", "\0"),
        ):
            refused = await client.get(f"/v1/jobs?{query}")
            assert refused.status_code == 400, query
            assert refused.json()["errors"][0]["parameter"] == parameter.replace("\0", "\ufffd")


async def test_no_text_in_a_query_or_a_path_is_a_server_error(store_url: str) -> None:
    async with served(make_app(store_url)) as client:
        for trap in TRAPS:
            for field in ("queue", "name", "tenant", "tag", "correlation_id", "error_code"):
                listed = await client.get(f"/v1/jobs?{field}={trap}")
                assert listed.status_code == (400 if "%00" in trap else 200), (field, trap)
            for path in ("/v1/jobs/{}", "/v1/queues/{}", "/v1/names/{}", "/v1/problems/{}"):
                assert (await client.get(path.format(trap))).status_code < 500, (path, trap)


async def test_a_page_of_large_jobs_is_cut_short(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        large = "x" * (hf.settings.payload_bytes_max - 100)
        jobs = limits.PAGE_BYTES_MAX // len(large) + 3
        for _ in range(jobs):
            new = {"name": "echo", "arguments": {"value": large}}
            assert (await client.post("/v1/jobs", json=new)).status_code == 201
        first, second = await follow(client, "/v1/jobs")
        assert len({*first, *second}) == jobs
        assert len(first) * len(large) <= limits.PAGE_BYTES_MAX


async def test_counts_are_by_queue_and_state_of_the_keys_tenant(store_url: str) -> None:
    hf = make_app(store_url)
    own = await hf.keys.create("own", scopes=["read"], tenant="acme")
    every = await hf.keys.create("all", scopes=["read", "enqueue"])
    async with served(hf) as client:
        client.headers["authorization"] = f"Bearer {every.key}"
        await enqueue(client, 3, queue="a", tenant="acme")
        await client.post("/v1/jobs", json={"name": "echo", "queue": "b"})
        a = {"queue": "a", "state": "queued", "jobs": 3, "is_capped": False}
        b = {"queue": "b", "state": "queued", "jobs": 1, "is_capped": False}
        assert (await client.get("/v1/counts")).json() == {"counts": [a, b], "is_capped": False}
        acme = await client.get("/v1/counts?tenant=acme")
        assert acme.json()["counts"] == [a]
        client.headers["authorization"] = f"Bearer {own.key}"
        assert (await client.get("/v1/counts")).json() == acme.json()
        assert (await client.get("/v1/counts?tenant=default")).json()["code"] == "not-allowed"
