"""What a tenant is told about a waiting job: nothing of operators, workers or other tenants."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import pytest

from holdfast import Holdfast, Reason, Tenant, Why
from holdfast.domain.why_for_tenant import for_tenant
from holdfast.domain.workers import Load
from holdfast.stores.protocol import Claim
from holdfast.testing.conformance.workers import worker
from tests.support.stores import full_store

PRIVATE = ("ann", "secret", "box-7", "123", "456", "789")
# What distinguishes these is how many jobs others have.
IN_LINE = (Reason.QUEUE_FULL, Reason.BUSY, Reason.JOBS_AHEAD, Reason.NEXT)
SENTENCES = {
    Reason.QUEUE_PAUSED: "queue default is paused",
    Reason.BREAKER_OPEN: "breaker gateway is open; its jobs are parked until it closes",
    Reason.BREAKER_UNPARKING: (
        "breaker gateway has closed, and workers are releasing the jobs it had parked"
    ),
    Reason.NO_WORKER: "no live worker serves queue default",
    Reason.UNKNOWN_NAME: "no live worker for queue default knows the job name call",
    **dict.fromkeys(IN_LINE, "it is due, and is waiting for its turn in queue default"),
    Reason.LEASED: "a worker has leased it: attempt 1 of 5",
}


def told(code: Reason) -> Reason:
    return Reason.DUE if code in IN_LINE else code


class Shop:
    """`red` has a job that waits, in a queue that it shares with others."""

    def __init__(self, hf: Holdfast, red: Tenant, job_id: UUID) -> None:
        self.hf = hf
        self.red = red
        self.job_id = job_id
        self.told: list[Reason] = []

    async def tells(self, code: Reason, *facts: str) -> None:
        full = await self.hf.jobs.why(self.job_id)
        why = await self.red.jobs.why(self.job_id)
        assert (full.code, why.code, why.sentence) == (code, told(code), SENTENCES[code])
        assert set(why.facts) == {"state", "queue", "name", *facts}
        known = [value for value in why.facts.values() if not isinstance(value, datetime)]
        assert [text for text in PRIVATE if text in repr([why.sentence, known])] == []
        self.told.append(code)

    async def register(self, running: int = 0, **changes: object) -> None:
        store = await full_store(self.hf)
        names = tuple(self.hf.names)
        options = {"id": "box-7", "queues": None, "names": names, "concurrency": 456, **changes}
        await store.register(worker(**options), Load(running))


@pytest.fixture
async def shop(hf: Holdfast) -> Shop:
    @hf.job(breaker="gateway")
    async def call() -> None: ...

    red, blue = hf.for_tenant("red"), hf.for_tenant("blue")
    await blue.enqueue_many([call.call() for _ in range(123)])
    return Shop(hf, red, (await red.enqueue(call)).id)


async def test_a_tenant_is_told_what_its_job_waits_for_but_not_who_and_how_many(
    shop: Shop,
) -> None:
    hf = shop.hf
    await shop.register(id="box-7-images", queues={"secret": None})
    await shop.tells(Reason.NO_WORKER, "run_at")
    await shop.register(id="box-7-old", names=("secret",))
    await shop.tells(Reason.UNKNOWN_NAME)
    await hf.queues.pause("default", by="ann", because="secret")
    await shop.tells(Reason.QUEUE_PAUSED, "paused_at")
    await hf.queues.resume("default")
    await hf.breakers.open("gateway", by="ann", because="secret")
    breaker = ("breaker", "opened_at", "next_probe_at", "probes", "probes_free")
    await shop.tells(Reason.BREAKER_OPEN, *breaker)
    await (await full_store(hf)).park(1000)
    await hf.breakers.close("gateway")
    await shop.register()
    await shop.tells(Reason.BREAKER_UNPARKING, *breaker)
    await (await full_store(hf)).park(1000)
    await shop.tells(Reason.JOBS_AHEAD)
    await hf.queues.cap("default", 0)
    await shop.tells(Reason.QUEUE_FULL)
    await hf.queues.cap("default", None)
    await shop.register(running=456)
    await shop.tells(Reason.BUSY)
    store = await full_store(hf)
    claim = Claim(worker="box-7", limit=123, lease_seconds=60, names=hf.names)
    await store.claim(claim)
    await shop.register(running=123)
    await shop.tells(Reason.NEXT)
    await store.claim(claim)
    times = ("lease_expires_at", "started_at")
    await shop.tells(Reason.LEASED, "attempt", "max_attempts", *times)
    assert set(shop.told) == set(SENTENCES)


@pytest.mark.parametrize("code", list(Reason))
def test_every_answer_has_a_sentence_for_tenants(code: Reason) -> None:
    facts = {
        "queue": "mail",
        "name": "call",
        "attempt": 1,
        "max_attempts": 5,
        "error_text": "no argument 'a'",
        "releases": 2,
        "releases_max": 9,
        "breaker": "gateway",
    }
    private = {
        "paused_by": "ann",
        "paused_because": "secret",
        "opened_by": "ann",
        "opened_because": "secret",
        "worker": "box-7",
        "workers": ["box-7"],
        "servers": ["box-7"],
        "versions": ["secret"],
        "ahead": 123,
        "running": 456,
        "slots": 456,
        "queue_running": 456,
        "running_max": 789,
        "parked": 123,
        "live_workers": 789,
        "lost_workers": 789,
    }
    why = Why(job_id=UUID(int=0), code=code, sentence="full", facts={**facts, **private})
    narrowed = for_tenant(why)
    assert (narrowed.code, narrowed.job_id) == (told(code), why.job_id)
    assert narrowed.facts == facts
    assert [text for text in PRIVATE if text in narrowed.sentence] == []
