"""Remote leases: what a lease is for, whose it is, and claims for one tenant."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.domain.job import DEFAULT_TENANT, Lease
from holdfast.domain.states import State
from holdfast.stores.protocol import Breakers, RemoteLeases, Suspects
from holdfast.stores.protocol import FullStore as Store
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    RICH,
    Harness,
    Room,
    Suite,
    claim,
    claim_alone,
    claim_one,
    claim_suspect,
    enqueue,
    make_suspect,
    needs,
    recorded,
    request,
    settlement,
    success,
)
from holdfast.testing.conformance.probes import next_probe, park_some, probe


@needs(RemoteLeases)
class Leasing(Suite):
    @needs(RemoteLeases, Room.OPTIONS)
    async def test_a_lease_tells_what_its_claim_told(self, store: Store) -> None:
        await enqueue(store, **RICH, breaker="gateway", trace="00-1-2-01")
        (first,) = await claim(store)
        failed = settlement(first, State.QUEUED, outcome="failed", failures={"BROKEN": 1})
        assert await store.settle([failed]) == []
        (second,) = await claim(store)
        assert await store.leased(second.lease) == second
        assert (second.attempt, second.fence, second.failures) == (2, 3, {"BROKEN": 1})

    async def test_a_lost_lease_tells_nothing(self, store: Store) -> None:
        job = await claim_one(store)
        assert await store.leased(Lease(job.id, job.fence + 1)) is None
        await store.settle([success(job)])
        assert await store.leased(job.lease) is None

    @needs(RemoteLeases, Breakers)
    async def test_a_lease_tells_that_its_job_is_a_probe(
        self, store: Store, harness: Harness
    ) -> None:
        await park_some(store, 1)
        job = await next_probe(store, harness)
        assert job.probes == 1
        assert await store.leased(job.lease) == job
        await store.close_breaker("gateway", by_hand=False)
        assert await store.leased(job.lease) == replace(job, probes=0)

    @needs(RemoteLeases, Suspects)
    async def test_a_lease_tells_that_its_job_is_a_suspect(self, store: Store) -> None:
        await make_suspect(store)
        job = await claim_alone(store)
        assert await store.leased(job.lease) == replace(job, suspect=True)

    async def test_the_leases_of_a_worker_are_found(self, store: Store, other: Store) -> None:
        await enqueue(store)
        await enqueue(store)
        jobs = await claim(store, worker="one")
        (third,) = await claim(store, worker="two") or [await claim_one(store)]
        found = await other.leases_of(["one", "worker", "nobody"])
        assert {worker: [job.id for job in held] for worker, held in found.items()} == {
            "one": [job.id for job in jobs],
            "worker": [third.id],
        }
        await store.settle([success(job) for job in jobs])
        assert await other.leases_of(["one"]) == {}

    async def test_an_expired_lease_is_found_until_it_is_reclaimed(
        self, store: Store, harness: Harness
    ) -> None:
        job = await claim_one(store)
        await harness.advance(LEASE_SECONDS + 1)
        assert await store.leases_of(["worker"]) == {"worker": [job]}
        await store.reclaim(10)
        assert await store.leases_of(["worker"]) == {}

    async def test_a_lease_gets_another_owner_and_nothing_else_changes(self, store: Store) -> None:
        first, second = await claim_one(store), await claim_one(store)
        before = await recorded(store, first.id)
        assert await store.assign({first.lease: "ann", second.lease: "ben"}) == []
        assert await recorded(store, first.id) == replace(before, lease_owner="ann")
        assert (await store.leases_of(["ann", "ben"])).keys() == {"ann", "ben"}

    async def test_a_lost_lease_gets_no_other_owner(self, store: Store) -> None:
        lost, kept = await claim_one(store), await claim_one(store)
        await store.settle([settlement(lost, State.QUEUED, attempt_back=True)])
        await store.claim_by_id(lost.id, "worker", LEASE_SECONDS)
        assert await store.assign({lost.lease: "ann", kept.lease: "ann"}) == [lost.lease]
        assert (await recorded(store, lost.id)).lease_owner == "worker"
        assert (await recorded(store, kept.id)).lease_owner == "ann"

    async def test_a_claim_for_a_tenant_takes_its_jobs_only(self, store: Store) -> None:
        theirs = [await enqueue(store, tenant="other") for _ in range(3)]
        own = await enqueue(store, tenant="acme")
        nobodys = await enqueue(store)
        assert [job.id for job in await claim(store, tenant="acme")] == [own]
        assert [job.id for job in await claim(store, tenant=DEFAULT_TENANT)] == [nobodys]
        assert await claim(store, job_id=theirs[0], tenant="acme") == []
        assert {job.id for job in await claim(store)} == {*theirs}

    async def test_full_claims_for_a_tenant_skip_nothing_of_another(self, store: Store) -> None:
        """A store may remember how far claims got: that differs by tenant."""
        for _ in range(20):
            await enqueue(store, tenant="acme")
            await enqueue(store, tenant="other")
        for tenant in ("acme", "other"):
            counts = [len(await claim(store, 2, tenant=tenant)) for _ in range(11)]
            assert counts == [*[2] * 10, 0]

    @needs(RemoteLeases, Suspects, Breakers)
    async def test_suspects_and_probes_for_a_tenant_are_its_own(
        self, store: Store, harness: Harness
    ) -> None:
        await make_suspect(store, tenant="acme")
        assert await claim_suspect(store, tenant="other") is None
        assert await claim_suspect(store, tenant="acme") is not None
        await park_some(store, 1, tenant="acme")
        assert await store.claim_probes(request(1, tenant="other")) == []
        await next_probe(store, harness, tenant="acme")
        assert await probe(store) == []
