"""What the commands report about a queue in Salesforce, and what they say they can't."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.support.command import run_command
from tests.support.scraping import Scraped
from tests.systems.documents.bench import Bench, claim, success

pytestmark = pytest.mark.heavy


async def told(bench: Bench, *words: str) -> str:
    """Return both output streams of a command that succeeds."""
    done = await asyncio.to_thread(run_command, *words, folder=Path.cwd(), url=bench.url)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


async def fill(bench: Bench) -> None:
    """One record of each: ready, scheduled, running, succeeded."""
    store = await bench.store()
    for _ in range(3):
        await bench.create()
    done, _ = await claim(store, 2)
    await store.settle([success(done)])
    await bench.create(ScheduledAfter__c="2100-01-01T00:00:00Z")


async def test_every_view_tells_what_it_can_and_names_the_rest(bench: Bench) -> None:
    await fill(bench)
    untold = "this store (SalesforceStore) can't tell"
    doctor = await told(bench, "doctor")
    assert "documents: 1 ready, 1 scheduled, 1 running" in doctor
    assert "can't report the health of its database and workers" in " ".join(doctor.split())
    (queue,) = map(json.loads, (await told(bench, "queues", "list", "--json")).splitlines())
    assert [queue[state] for state in ("ready", "scheduled", "running")] == [1, 1, 1]
    top = json.loads(await told(bench, "top", "--json"))
    assert [each["ready"] for each in top["queues"]] == [1]
    assert [(each["state"], each["jobs"]) for each in top["ended"]] == [("succeeded", 1)]
    assert top["untold"] == f"{untold} how long jobs took or which workers are running"
    assert top["workers"] is None
    once = await told(bench, "top", "--once")
    assert top["untold"] in " ".join(once.split())
    assert max(map(len, once.splitlines())) <= 80
    assert " 1 running  - workers" in once
    assert any(line.startswith("documents ") for line in once.splitlines())
    assert "can't list its workers" in await told(bench, "workers")
    assert await told(bench, "breakers") == "this store (SalesforceStore) can't keep breakers\n"


async def test_why_tells_what_the_record_says(bench: Bench) -> None:
    store = await bench.store()
    running = await bench.create(Priority__c=9)
    await claim(store, 1, worker="somebody")
    due = await bench.create()
    later = await bench.create(ScheduledAfter__c="2100-01-01T00:00:00Z")
    canceled = await bench.create()
    await store.cancel([canceled])
    sentences = [await told(bench, "jobs", "why", str(each)) for each in (running, due, later)]
    assert "leased by somebody until" in sentences[0]
    assert "it has been due since" in sentences[1]
    assert "it is not due until 2100-01-01" in sentences[2]
    caveat = "can't tell what else it waits for"
    assert [caveat in each for each in sentences] == [False, True, True]
    assert "it ended as canceled: CANCELED" in await told(bench, "jobs", "why", str(canceled))


async def test_the_depth_of_the_queue_is_a_metric(bench: Bench) -> None:
    await fill(bench)
    async with Holdfast(bench.url) as hf:
        scraped = Scraped(await hf.metrics())
    for state, jobs in {"ready": 1, "scheduled": 1, "running": 1, "parked": 0}.items():
        assert scraped.value("holdfast_queue_depth", queue="documents", state=state) == jobs
    assert scraped.value("holdfast_database_up") == 1
    assert "holdfast_workers" not in scraped.families
