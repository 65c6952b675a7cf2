"""Watched jobs: what changed since the last look."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from holdfast.domain.job import DEFAULT_TENANT, JobStatus, Watched
from holdfast.domain.states import ENDED, State
from holdfast.stores.protocol import FullStore as Store
from holdfast.stores.protocol import ProgressNotes, Watching
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    Room,
    Suite,
    claim_one,
    enqueue,
    enqueue_many,
    failure,
    job_in,
    needs,
    new_id,
    recorded,
    release,
    success,
)


async def look(store: Store, known: dict[UUID, str]) -> Mapping[UUID, Watched | None]:
    """Return what changed, and know it from now on."""
    found = await store.changed(known)
    known.update({job_id: job.version for job_id, job in found.items() if job is not None})
    return found


@needs(Watching)
class Watch(Suite):
    async def test_the_first_look_shows_every_job_in_any_state(self, store: Store) -> None:
        ids = [await job_in(store, state) for state in State]
        found = await store.changed(dict.fromkeys(ids, ""))
        for job_id in ids:
            job = found[job_id]
            assert job is not None
            assert job.status == JobStatus.of(await recorded(store, job_id))
            assert (job.tenant, bool(job.version)) == (DEFAULT_TENANT, True)

    @needs(Room.OPTIONS)
    async def test_a_watched_job_names_its_tenant(self, store: Store) -> None:
        job_id = await enqueue(store, tenant="t")
        job = (await store.changed({job_id: ""}))[job_id]
        assert job is not None
        assert job.tenant == "t"

    async def test_a_job_that_does_not_exist_is_none(self, store: Store) -> None:
        there, nowhere = await enqueue(store), new_id()
        known = {there: "", nowhere: ""}
        assert (await look(store, known))[nowhere] is None
        assert await look(store, known) == {nowhere: None}
        assert await store.changed({nowhere: "known before"}) == {nowhere: None}
        assert await store.changed({}) == {}

    async def test_a_second_look_shows_only_what_changed(self, store: Store, other: Store) -> None:
        ids = await enqueue_many(store, 5)
        known = dict.fromkeys(ids, "")
        assert (await look(store, known)).keys() == set(ids)
        assert await look(store, known) == {}
        await other.cancel([ids[2]])
        assert (await look(store, known)).keys() == {ids[2]}
        assert await look(store, known) == {}

    async def test_every_step_of_a_job_is_a_change(self, store: Store) -> None:
        job_id = await enqueue(store)
        known = {job_id: ""}
        states = []
        for settled in (failure, release, success):
            assert (await look(store, known)).keys() == {job_id}
            job = await store.claim_by_id(job_id, "worker", LEASE_SECONDS)
            assert job is not None
            assert (await look(store, known)).keys() == {job_id}
            await store.settle([settled(job)])
            states.append((await recorded(store, job_id)).state)
        ended = (await look(store, known))[job_id]
        assert ended is not None
        assert ended.status == JobStatus.of(await recorded(store, job_id))
        assert states == [State.QUEUED, State.QUEUED, State.SUCCEEDED]
        assert await look(store, known) == {}

    async def test_each_end_of_a_running_job_is_a_change(self, store: Store) -> None:
        for state in ENDED:
            job = await claim_one(store)
            known = {job.id: ""}
            await look(store, known)
            if state is State.CANCELED:
                await store.cancel([job.id])
            else:
                await store.settle(
                    [success(job) if state is State.SUCCEEDED else failure(job, state)]
                )
            ended = (await look(store, known))[job.id]
            assert ended is not None
            assert ended.status.state is state

    @needs(ProgressNotes)
    async def test_progress_is_a_change_if_it_differs(self, store: Store) -> None:
        job = await claim_one(store)
        known = {job.id: ""}
        await look(store, known)
        for progress, value in ((b"1", 1), (b'{"done": 7}', {"done": 7}), (b"null", None)):
            assert await store.progress(job.lease, progress)
            changed = (await look(store, known))[job.id]
            assert changed is not None
            assert changed.status.progress == value
            assert await store.progress(job.lease, progress)
            assert await look(store, known) == {}

    async def test_a_new_due_time_is_a_change(self, store: Store) -> None:
        job_id = await enqueue(store, delay_seconds=600.0)
        known = {job_id: ""}
        await look(store, known)
        assert await store.retry(job_id)
        changed = (await look(store, known))[job_id]
        assert changed is not None
        assert changed.status.run_at == (await recorded(store, job_id)).run_at

    async def test_a_renewed_lease_is_no_change(self, store: Store) -> None:
        job = await claim_one(store)
        known = {job.id: ""}
        await look(store, known)
        assert await store.renew([job.lease], LEASE_SECONDS) == []
        assert await look(store, known) == {}
