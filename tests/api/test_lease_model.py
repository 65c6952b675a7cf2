"""Whatever workers do in whatever order: a job has at most one live lease, and its fence rises."""

from __future__ import annotations

import random
from collections import defaultdict
from uuid import UUID

import httpx
import pytest

from holdfast import State
from tests.support.api import served
from tests.support.leasing import LeaseAnswer, WatchedApp, end, job_of, make_app, renew, take
from tests.support.running import let_leases_run_out

JOBS = 3
STEPS = 60
OUTCOMES: list[dict[str, object]] = [
    {"status": "succeeded", "result": 1},
    {"status": "failed", "code": "BROKEN", "retry_after_seconds": 0},
    {"status": "snoozed", "seconds": 0},
    {"status": "released"},
]


class Model:
    """What must be true. `live` are the leases that may end their jobs, `stale` all others."""

    def __init__(self, hf: WatchedApp, url: str, client: httpx.AsyncClient) -> None:
        self.hf, self.url, self.client = hf, url, client
        self.live: dict[str, LeaseAnswer] = {}
        self.stale: list[LeaseAnswer] = []
        self.fences: dict[str, int] = defaultdict(int)

    async def take(self, chance: random.Random) -> None:
        repeated = {"request_id": f"r{chance.randrange(4)}"} if chance.random() < 0.7 else {}
        for lease in await take(self.client, max=chance.randrange(1, 4), **repeated):
            before = self.live.get(lease["job_id"])
            assert before is None or before["lease_id"] == lease["lease_id"]
            self.live[lease["job_id"]] = lease

    async def renew(self, chance: random.Random) -> None:
        leases = [*self.live.values(), *self.stale]
        for lease, found in zip(leases, await renew(self.client, *leases), strict=True):
            is_live = lease in self.live.values()
            assert (found["status"] == "ok") == is_live

    async def end(self, chance: random.Random) -> None:
        lease = chance.choice([*self.live.values(), *self.stale])
        before = await self.hf.get(UUID(lease["job_id"]))
        answer = await end(self.client, lease, **chance.choices(OUTCOMES, [1, 4, 4, 4])[0])
        if lease in self.live.values():
            assert answer.status_code == 200
            self.stale.append(self.live.pop(lease["job_id"]))
        else:
            assert answer.status_code in (200, 409)  # 200: the same as before
            after = await self.hf.get(UUID(lease["job_id"]))
            assert (after.state, after.fence) == (before.state, before.fence)

    async def expire(self, chance: random.Random) -> None:
        await let_leases_run_out(self.url)
        await (await self.hf._store()).reclaim(10)
        self.stale += self.live.values()
        self.live.clear()

    async def check(self, job_id: UUID) -> None:
        job = await self.hf.get(job_id)
        assert (job.state is State.RUNNING) == (str(job_id) in self.live)
        assert job.fence >= self.fences[str(job_id)]
        self.fences[str(job_id)] = job.fence


@pytest.mark.parametrize("seed", range(3))
async def test_a_job_has_one_live_lease_and_its_fence_rises(store_url: str, seed: int) -> None:
    chance = random.Random(seed)
    hf = make_app(store_url)
    async with served(hf) as client:
        model = Model(hf, store_url, client)
        jobs = [await job_of(hf).options(max_attempts=50).enqueue(n) for n in range(JOBS)]
        for _ in range(STEPS):
            steps = [model.take]
            if model.live or model.stale:
                steps = [model.take, model.take, model.renew, model.end, model.end, model.expire]
            await chance.choice(steps)(chance)
            for job in jobs:
                await model.check(job.id)
