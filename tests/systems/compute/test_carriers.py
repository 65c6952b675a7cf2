"""The same three paths over every carrier: how a worker hears of a job must make no difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from holdfast.servicebus_local import QueueOptions
from holdfast_systems.compute.contract import load_contracts
from tests.support.servicebus import LOST_SOCKETS
from tests.systems.compute.terminals import FIELDS, Terminals, terminals

pytestmark = [pytest.mark.heavy, pytest.mark.slow, *LOST_SOCKETS]

Start = Callable[..., AbstractAsyncContextManager[Terminals]]


@pytest.fixture(params=["polling", "notify", "rabbitmq", "servicebus"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Start the system with this carrier: a database that is polled, one that notifies, or a broker
    beside a database that would be polled too late."""
    sqlite = f"sqlite:///{tmp_path / 'jobs.db'}"
    match request.param:
        case "polling":
            yield partial(terminals, sqlite, tmp_path, HOLDFAST_POLL_SECONDS="0.2")
        case "notify":
            migrated = request.getfixturevalue("migrated_database")
            for url in migrated("pg15"):
                yield partial(terminals, url, tmp_path, HOLDFAST_POLL_SECONDS="60")
        case "rabbitmq":
            names = request.getfixturevalue("rabbitmq")
            url = f"{names.url}?exchange={names.exchange}&queue={names.queue}"
            yield partial(terminals, sqlite, tmp_path, url, HOLDFAST_POLL_SECONDS="60")
        case "servicebus":
            bus = request.getfixturevalue("servicebus")({"jobs": QueueOptions()})
            yield partial(
                terminals,
                sqlite,
                tmp_path,
                SERVICEBUS_CONN=bus.connection_string,
                SERVICEBUS_QUEUE="jobs",
                LOCK_RENEW_SEC="20",
                HOLDFAST_POLL_SECONDS="60",
            )


def statuses(lines: list[dict[str, object]]) -> list[object]:
    assert all(name in line for line in lines for name in FIELDS), lines
    assert {line["definition@version"] for line in lines} == {"house-fit@1.0.0"}
    return [line["status"] for line in lines]


async def test_happy_path(start: Start) -> None:
    async with start() as run:
        status, answer = await run.post("order-1")
        assert status == 202
        job_id = answer["job_id"]
        done = await run.until(job_id, "succeeded", "failed")
        assert (done["status"], done["attempts"], done["last_error"]) == ("succeeded", 1, None)
        status, outputs = await run.get(f"/jobs/result/{job_id}")
        assert status == 200
        load_contracts().find("house-fit", "1.0.0").outputs.check(outputs)

        assert statuses(await run.lines(run.api, "order-1", 1)) == ["queued"]
        assert statuses(await run.lines(run.worker, "order-1", 2)) == ["running", "succeeded"]
        lines = await run.lines(run.appserver, "order-1", 2)
        assert statuses(lines) == ["running", "succeeded"]
        assert {line["job_id"] for line in lines} == {job_id}


async def test_retry_path(start: Start) -> None:
    async with start(faults={"FAIL_ONCE": "true"}) as run:
        _, answer = await run.post("order-2")
        job_id = answer["job_id"]
        waiting = await run.until(job_id, "queued", "failed", failed_once=True)
        assert (waiting["status"], waiting["attempts"]) == ("queued", 1)
        assert waiting["last_error"]["code"] == "APP_5XX"
        assert "FAIL_ONCE" in waiting["last_error"]["message"]
        done = await run.until(job_id, "succeeded", "failed")
        assert (done["status"], done["attempts"], done["last_error"]) == ("succeeded", 2, None)

        lines = await run.lines(run.worker, "order-2", 4)
        assert statuses(lines) == ["running", "queued", "running", "succeeded"]
        assert [line["attempt"] for line in lines] == [1, 1, 2, 2]
        assert (lines[1]["event"], lines[1]["error_code"]) == ("abandoned", "APP_5XX")
        lines = await run.lines(run.appserver, "order-2", 4)
        assert statuses(lines) == ["running", "failed", "running", "succeeded"]
        assert [line["attempt"] for line in lines] == [1, 1, 2, 2]

        _, told = await run.get("/jobs/counters")
        counts = [told[name] for name in ("received", "completed", "abandoned", "failed")]
        assert counts == [2, 1, 1, 0]
        assert told["average_latency_ms"] > 0


async def test_dead_letter_path(start: Start) -> None:
    async with start(faults={"FAULT_STATUS": "502"}, MAX_DELIVERY_COUNT="2") as run:
        _, answer = await run.post("order-3")
        job_id = answer["job_id"]
        ended = await run.until(job_id, "succeeded", "failed")
        assert (ended["status"], ended["attempts"]) == ("failed", 2)
        assert ended["last_error"]["code"] == "APP_5XX"
        assert [str(each.id) for each in (await run.hf.dead.list()).jobs] == [job_id]

        lines = await run.lines(run.worker, "order-3", 4)
        assert statuses(lines) == ["running", "queued", "running", "failed"]
        _, told = await run.get("/jobs/counters")
        counts = [told[name] for name in ("received", "completed", "abandoned", "failed")]
        assert counts == [2, 0, 1, 1]
        assert told["average_latency_ms"] is None
