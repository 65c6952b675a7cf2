"""/v1/workers, /v1/overview and /v1/doctor: what runs, and how it is."""

from __future__ import annotations

from typing import Any

from holdfast import Holdfast, Permanent
from tests.support.api import served


async def test_a_running_worker_is_listed_and_seen_at_a_glance(store_url: str) -> None:
    hf = Holdfast(store_url)
    seen: list[Any] = []

    @hf.job(queue="images")
    async def look() -> None:
        paths = ("/v1/workers", "/v1/overview", "/v1/doctor")
        seen.extend([(await client.get(path)).json() for path in paths])
        raise Permanent("enough", code="ENOUGH")

    async with served(hf) as client:
        await look.enqueue()
        await hf.run_due()
        workers, during, doctor = seen
        (worker,) = workers["workers"]
        assert (worker["names"], worker["lost"]) == (["look"], False)
        assert [each["id"] for each in during["workers"]] == [worker["id"]]
        assert during["queues"][0]["running"] == 1
        assert {each["code"] for each in doctor["findings"]} > {"reachable", "workers"}
        assert hf.url_shown == doctor["database"]
        after = (await client.get("/v1/overview")).json()
        assert after["ended"] == [{"queue": "images", "state": "failed", "jobs": 1}]
        assert after["failures"][0]["error_code"] == "ENOUGH"
        assert after["latency"]["jobs"] == 1
