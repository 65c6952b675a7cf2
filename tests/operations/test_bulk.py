"""Bulk changes as an operator makes them: previewed, started, paused, resumed, canceled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from holdfast import BadArguments, ConfigurationError, Filter, Holdfast, State, WrongState
from holdfast.domain.bulk import BulkAction, BulkCount, BulkState
from holdfast.domain.errors import BulkChangeNotFound
from holdfast.domain.groups import fingerprint_of
from holdfast.domain.limits import SCAN_ROWS_MAX
from holdfast.operations.bulk_preview import find, with_states
from tests.support.bulk import canceled_jobs, claim, copies, dead_jobs, run_all, waiting_jobs
from tests.support.failures import add_dead
from tests.support.running import QUICK, execute
from tests.support.seams import HandSeam

WAITING = Filter(name="wait")
ENDED = Filter(states=(State.CANCELED,))
NOBODY = UUID(int=7)


async def test_a_preview_counts_the_jobs_shows_some_and_changes_nothing(hf: Holdfast) -> None:
    jobs = await waiting_jobs(hf, 7)
    change = await hf.bulk.create("cancel", WAITING, by="ann", because="wrong file")
    assert (change.state, change.total, change.done, change.capped) == ("previewed", 7, 0, False)
    assert change.counts == (BulkCount(State.QUEUED, "wait", 7),)
    assert [job.id for job in change.sample] == [job.id for job in jobs[:5]]
    assert (change.by, change.because, change.filter) == (
        "ann", "wrong file", Filter(name="wait", states=(State.QUEUED, State.RUNNING)),
    )  # fmt: skip
    assert {job.state for job in (await hf.jobs.list(WAITING)).jobs} == {State.QUEUED}
    assert await hf.bulk.get(change.id) == change


async def test_the_jobs_are_fixed_when_the_change_is_previewed(hf: Holdfast) -> None:
    await waiting_jobs(hf, 3)
    change = await hf.bulk.create("cancel", WAITING)
    late = await waiting_jobs(hf, 2)
    await hf.bulk.start(change.id)
    done = await run_all(hf, change)
    assert (done.state, done.done, done.changed) == ("completed", 3, 3)
    assert {(await hf.get(job.id)).state for job in late} == {State.QUEUED}


async def test_canceled_jobs_say_who_canceled_them_and_why(hf: Holdfast) -> None:
    (job,) = await waiting_jobs(hf, 1)
    change = await hf.bulk.create("cancel", [job.id], by="ann", because="wrong file", start=True)
    assert change.state is BulkState.RUNNING
    await run_all(hf, change)
    assert (await hf.get(job.id)).error_text == "canceled by ann: wrong file"


async def test_a_group_of_dead_jobs_is_requeued_each_job_once(hf: Holdfast) -> None:
    jobs = await dead_jobs(hf, 30)
    await waiting_jobs(hf, 2)
    (group,) = (await hf.dead.grouped()).groups
    change = await hf.bulk.create(
        "requeue", Filter(fingerprint=group.fingerprint), jobs_per_second=1000, start=True
    )
    done = await run_all(hf, change)
    assert (done.total, done.changed, done.state) == (30, 30, "completed")
    assert done.ended_at is not None
    assert await copies(hf) == sorted(job.id for job in jobs)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"queue": "images"},
        {"tenant": "acme"},
        {"states": (State.FAILED,)},
        {"states": (State.CANCELED,)},
        {"since": datetime.now(UTC) - timedelta(minutes=90)},
        {"until": datetime.now(UTC) - timedelta(minutes=90), "queue": "default"},
        {"name": "work"},
    ],
    ids=["all", "queue", "tenant", "failed", "canceled", "since", "until", "name"],
)
async def test_the_jobs_of_a_group_are_those_that_a_search_finds(
    hf: Holdfast, store_url: str, more: dict[str, Any]
) -> None:
    await hf.dead.groups()
    now = datetime.now(UTC)
    places = product(("default", "images"), ("acme", None), ("dead", "failed", "canceled"), (1, 2))
    for queue, tenant, state, hours in places:
        ended_at = now - timedelta(hours=hours)
        options = {"queue": queue, "tenant": tenant, "state": state, "ended_at": ended_at}
        await add_dead(store_url, "no user 17", "no order 4", **options)
    fingerprint = fingerprint_of((await hf.jobs.list(limit=1)).jobs[0])
    dead = (await hf.dead.list(Filter(fingerprint=fingerprint), 1)).jobs[0]
    await hf.jobs.requeue(dead.id)
    for who in (hf, hf.for_tenant("acme"), hf.for_tenant("stranger")):
        wanted = with_states(BulkAction.REQUEUE, Filter(fingerprint=fingerprint, **more))
        for unless_requeued in (True, False):
            change = await who.bulk.create("requeue", wanted, again=not unless_requeued)
            searched = await find(
                who.jobs, wanted, hf._desk.seam(), unless_requeued=unless_requeued
            )
            assert (change.total, change.requeued_before, change.capped) == (
                len(searched.job_ids),
                searched.requeued_before,
                False,
            )
            assert sorted(map(str, change.counts)) == sorted(map(str, searched.counts))
            assert [job.id for job in change.sample] == list(searched.job_ids[:5])


async def test_a_retry_makes_waiting_jobs_due_now(hf: Holdfast) -> None:
    jobs = await waiting_jobs(hf, 2)
    change = await hf.bulk.create("retry", Filter(name="wait", states=(State.QUEUED,)), start=True)
    assert (await run_all(hf, change)).changed == 2
    assert (await hf.get(jobs[0].id)).run_at < jobs[0].run_at
    with pytest.raises(BadArguments, match="must name states"):
        await hf.bulk.create("retry", WAITING)


async def test_jobs_that_moved_on_are_counted_and_do_not_stop_it(hf: Holdfast) -> None:
    jobs = await canceled_jobs(hf, 4)
    ids = [job.id for job in jobs]
    change = await hf.bulk.create("requeue", [*ids, NOBODY], start=True)
    assert change.total == 5
    await hf.jobs.requeue(ids[1])
    done = await run_all(hf, change)
    assert (done.changed, done.requeued_already, done.moved_on, done.done) == (3, 1, 1, 5)
    assert await copies(hf) == sorted(ids)


async def test_jobs_that_were_requeued_before_are_left_out_unless_again(hf: Holdfast) -> None:
    jobs = await canceled_jobs(hf, 3)
    await hf.jobs.requeue(jobs[0].id)
    by_filter = await hf.bulk.create("requeue", ENDED)
    by_id = await hf.bulk.create("requeue", [job.id for job in jobs])
    again = await hf.bulk.create("requeue", ENDED, again=True, start=True)
    assert [(each.total, each.requeued_before) for each in (by_filter, by_id, again)] == [
        (2, 1), (2, 1), (3, 0),
    ]  # fmt: skip
    assert (await run_all(hf, again)).changed == 3


async def test_more_jobs_than_allowed_are_capped_and_it_says_so(hf: Holdfast) -> None:
    jobs = await waiting_jobs(hf, 5)
    for jobs_max, capped in ((4, True), (5, False)):
        found = await find(hf.jobs, WAITING, hf._seam, unless_requeued=False, jobs_max=jobs_max)
        assert found.job_ids == [job.id for job in jobs[-jobs_max:]]  # the newest, oldest first
        assert found.capped is capped


async def test_a_search_that_takes_too_long_is_capped(store_url: str) -> None:
    seam = HandSeam()
    hf = Holdfast(store_url, seam=seam, **QUICK)
    await waiting_jobs(hf, SCAN_ROWS_MAX + 1)
    seam.step_seconds = 30.0
    change = await hf.bulk.create("cancel", WAITING)
    assert (change.total, change.capped) == (SCAN_ROWS_MAX, True)
    await hf.close()


@pytest.mark.parametrize(
    ("action", "jobs", "options"),
    [
        ("delete", WAITING, {}),
        ("cancel", [UUID(int=n) for n in range(10_001)], {}),
        ("cancel", ["1"], {}),
        ("cancel", WAITING, {"jobs_per_second": 0}),
        ("cancel", WAITING, {"jobs_per_second": 1e-300}),
        ("cancel", WAITING, {"by": "line\nbreak"}),
    ],
)
async def test_a_change_that_makes_no_sense_is_refused(
    local_hf: Holdfast, action: str, jobs: object, options: dict[str, object]
) -> None:
    with pytest.raises((BadArguments, ConfigurationError)):
        await local_hf.bulk.create(action, jobs, **options)  # type: ignore[arg-type]
    assert (await local_hf.bulk.list()).changes == []


async def test_verbs_can_be_repeated_but_not_used_out_of_turn(hf: Holdfast) -> None:
    await waiting_jobs(hf, 3)
    change = await hf.bulk.create("cancel", WAITING)
    for verb in (hf.bulk.pause, hf.bulk.resume):
        with pytest.raises(WrongState, match=f"{change.id} is previewed and can't be"):
            await verb(change.id)
    for verb, state in (
        (hf.bulk.start, "running"), (hf.bulk.pause, "paused"), (hf.bulk.resume, "running"),
        (hf.bulk.cancel, "canceled"),
    ):  # fmt: skip
        assert (await verb(change.id)).state == state
        assert (await verb(change.id)).state == state
    for verb in (hf.bulk.start, hf.bulk.pause, hf.bulk.resume):
        with pytest.raises(WrongState):
            await verb(change.id)
    with pytest.raises(BulkChangeNotFound):
        await hf.bulk.start(NOBODY)


async def test_a_change_that_completed_meanwhile_was_started(hf: Holdfast) -> None:
    await waiting_jobs(hf, 1)
    change = await hf.bulk.create("cancel", WAITING, start=True)
    await run_all(hf, change)
    assert (await hf.bulk.start(change.id)).state == "completed"
    with pytest.raises(WrongState):
        await hf.bulk.cancel(change.id)


async def test_a_change_of_no_jobs_completes(hf: Holdfast) -> None:
    change = await hf.bulk.create("cancel", Filter(name="nothing"), start=True)
    assert (await run_all(hf, change)).state == "completed"


async def test_progress_has_a_rate_and_an_estimate(hf: Holdfast, store_url: str) -> None:
    await waiting_jobs(hf, 30)
    change = await hf.bulk.create("cancel", WAITING, jobs_per_second=50)
    assert (change.rate, change.seconds_left) == (None, 30 / 50)
    await hf.bulk.start(change.id)
    await hf._bulk_runs.step(await claim(hf))
    past = "'2020-01-01T00:00:00.000000Z'"
    await execute(store_url, f"UPDATE bulk_changes SET running_since = {past}")
    seen = await hf.bulk.get(change.id)
    assert seen.done == 5
    assert seen.rate is not None
    assert 0 < seen.rate < 0.001
    assert seen.seconds_left == pytest.approx(25 / seen.rate)
    assert (await hf.bulk.pause(change.id)).rate is None


async def test_changes_are_listed_newest_first_in_pages(hf: Holdfast) -> None:
    made = [await hf.bulk.create("cancel", WAITING) for _ in range(5)]
    pages = []
    after = None
    while True:
        page = await hf.bulk.list(2, after)
        pages.append([change.id for change in page.changes])
        after = page.after
        if after is None:
            break
    assert pages == [[made[4].id, made[3].id], [made[2].id, made[1].id], [made[0].id]]


async def test_a_tenant_changes_its_own_jobs_and_sees_its_own_changes(hf: Holdfast) -> None:
    acme, globex = hf.for_tenant("acme"), hf.for_tenant("globex")
    (own,) = await canceled_jobs(hf, 1, "acme")
    (other,) = await canceled_jobs(hf, 1, "globex")
    by_filter = await acme.bulk.create("requeue", ENDED)
    assert (by_filter.total, by_filter.tenant) == (1, "acme")
    assert (
        await acme.bulk.create("requeue", Filter(tenant="globex", states=(State.CANCELED,)))
    ).total == 0
    by_id = await acme.bulk.create("requeue", [own.id, other.id], start=True)
    assert by_id.counts == (BulkCount(State.CANCELED, "wait", 1),)
    assert [job.id for job in by_id.sample] == [own.id]
    done = await run_all(hf, by_id)
    assert (done.changed, done.moved_on) == (1, 1)
    assert await copies(hf) == [own.id]
    for verb in (globex.bulk.get, globex.bulk.start, globex.bulk.cancel):
        with pytest.raises(BulkChangeNotFound):
            await verb(by_filter.id)
    assert (await globex.bulk.list()).changes == []
    assert len((await acme.bulk.list()).changes) == 3
    assert len((await hf.bulk.list()).changes) == 3


async def test_changes_are_deleted_with_their_jobs_when_they_are_no_longer_kept(
    hf: Holdfast, store_url: str
) -> None:
    await waiting_jobs(hf, 3)
    ended = await hf.bulk.create("cancel", WAITING, start=True)
    await run_all(hf, ended)
    never_started = await hf.bulk.create("cancel", WAITING)
    paused = await hf.bulk.create("cancel", WAITING, start=True)
    await hf.bulk.pause(paused.id)
    assert await hf._bulk_runs.tidy() == 0
    past = "'2020-01-01T00:00:00.000000Z'"
    await execute(
        store_url, f"UPDATE bulk_changes SET expires_at = {past} WHERE expires_at IS NOT NULL"
    )
    while await hf._bulk_runs.tidy():
        pass
    assert [change.id for change in (await hf.bulk.list()).changes] == [paused.id]
    with pytest.raises(BulkChangeNotFound):
        await hf.bulk.start(never_started.id)
    async with hf.transaction(read_only=True) as connection:
        schema = "" if store_url.startswith("sqlite") else "holdfast."
        assert await connection.fetchval(f"SELECT count(*) FROM {schema}bulk_jobs") == 0
