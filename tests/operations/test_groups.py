"""Error groups: each dead job is counted once, and each group has a life of its own."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import msgspec
import pytest

from holdfast import (
    BadArguments,
    ErrorGroup,
    ErrorGroupNotFound,
    GroupFilter,
    GroupOrder,
    GroupState,
    Holdfast,
    WrongState,
)
from holdfast.domain.limits import GROUP_STEP_JOBS_MAX, GROUPS_PAGE_LOOK_MAX
from holdfast.domain.workers import Load
from holdfast.testing.conformance.workers import WORKER
from tests.support.bulk import dead_jobs
from tests.support.failures import POSTGRES, add_dead, add_rows, dead_row
from tests.support.running import execute
from tests.support.stores import full_store

LONG_AGO = timedelta(hours=1)


async def counted(hf: Holdfast) -> dict[str, int]:
    await hf.dead.count_groups()
    return jobs_of((await hf.dead.groups()).groups)


def jobs_of(groups: Any) -> dict[str, int]:
    return {group.shape: group.jobs for group in groups}


async def only(hf: Holdfast) -> ErrorGroup:
    await hf.dead.count_groups()
    (group,) = (await hf.dead.groups()).groups
    return group


async def test_10_000_dead_jobs_with_three_causes_are_three_rows(
    hf: Holdfast, store_url: str
) -> None:
    await hf.dead.groups()
    texts = [("no user {}", "no order {}", "no car {}")[n % 3].format(n) for n in range(10_000)]
    await add_dead(store_url, *texts)
    assert await counted(hf) == {"no user *": 3334, "no order *": 3333, "no car *": 3333}


async def test_a_group_tells_its_jobs_times_queues_and_tenants(hf: Holdfast) -> None:
    first = await dead_jobs(hf, 2, "acme")
    last = await dead_jobs(hf, 1, "umbrella")
    group = await only(hf)
    assert (group.name, group.error_code, group.jobs, group.jobs_ever) == (
        "fail",
        "RuntimeError",
        3,
        3,
    )
    ended = [job.finished_at for job in (*first, *last) if job.finished_at]
    assert (group.first_seen, group.last_seen) == (min(ended), max(ended))
    assert (group.example_id, group.queues) == (last[0].id, ("default",))
    assert [(each.tenant, each.jobs) for each in group.tenants] == [("acme", 2), ("umbrella", 1)]
    assert await hf.dead.group(group.fingerprint) == group
    listed = await hf.dead.group_jobs(group.fingerprint, limit=2)
    rest = await hf.dead.group_jobs(group.fingerprint, after=listed.after)
    ids = [job.job_id for job in (*listed.jobs, *rest.jobs)]
    assert ids == sorted((job.id for job in (*first, *last)), reverse=True)
    assert rest.after is None


async def test_jobs_of_a_group_tell_what_they_were_requeued_as(hf: Holdfast) -> None:
    first, _ = await dead_jobs(hf, 2)
    group = await only(hf)
    copy = await hf.dead.requeue(first.id)
    listed = await hf.dead.group_jobs(group.fingerprint)
    assert {job.job_id: job.requeued_as for job in listed.jobs}[first.id] == copy.id


async def test_canceled_jobs_are_no_errors(hf: Holdfast, store_url: str) -> None:
    await hf.dead.groups()
    await add_dead(store_url, "canceled", state="canceled")
    await add_dead(store_url, "failed", state="failed")
    assert await counted(hf) == {"failed": 1}


async def test_a_tenant_sees_its_own_groups_and_numbers_only(hf: Holdfast) -> None:
    await dead_jobs(hf, 2, "acme")
    await dead_jobs(hf, 5, "umbrella")
    whole = await only(hf)
    acme, stranger = hf.for_tenant("acme").dead, hf.for_tenant("stranger").dead
    (own,) = (await acme.groups()).groups
    assert (own.jobs, [each.tenant for each in own.tenants]) == (2, ["acme"])
    assert len((await acme.group_jobs(own.fingerprint)).jobs) == 2
    assert own.example_id in {job.job_id for job in (await acme.group_jobs(own.fingerprint)).jobs}
    assert (await stranger.groups()).groups == []
    assert (await stranger.group_jobs(whole.fingerprint)).jobs == []
    for call in (stranger.group, stranger.acknowledge):
        with pytest.raises(ErrorGroupNotFound):
            await call(whole.fingerprint)


async def test_what_a_tenant_does_to_its_group_is_its_own_affair(hf: Holdfast) -> None:
    await dead_jobs(hf, 1, "acme")
    await dead_jobs(hf, 1, "umbrella")
    group = await only(hf)
    await hf.for_tenant("acme").dead.resolve(group.fingerprint, by="ann", note="our own fault")
    assert (await hf.for_tenant("acme").dead.group(group.fingerprint)).state == "resolved"
    other = await hf.for_tenant("umbrella").dead.group(group.fingerprint)
    assert (other.state, other.note) == ("new", None)
    assert (await only(hf)).state == "new"


async def test_several_processes_count_each_job_once(hf: Holdfast, store_url: str) -> None:
    await hf.dead.groups()
    jobs = 3 * GROUP_STEP_JOBS_MAX + 7
    await add_dead(store_url, *["boom"] * jobs)
    async with Holdfast(store_url) as other:
        await asyncio.gather(*(each.dead.count_groups() for each in (hf, other, hf, other)))
    assert await counted(hf) == {"boom": jobs}


async def test_a_step_that_is_cut_off_counts_nothing_and_the_next_one_everything(
    hf: Holdfast, store_url: str
) -> None:
    await hf.dead.groups()
    await add_dead(store_url, *["boom"] * 5)
    fold = hf.dead._fold
    place, rows = await fold._look("newest", "uncounted_failures")
    async with hf._own_tables.transaction(read_only=True) as (_, before):
        untouched = await before.value("error_group_place", name="newest")
    end = (rows[-1].ended_at, rows[-1].job_id)

    async def break_off() -> None:
        async with hf.transaction() as connection:
            statements = hf._own_tables.tables.on(connection)
            await fold._record(statements, "newest", place, end, rows)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await break_off()
    async with hf._own_tables.transaction(read_only=True) as (_, after):
        assert await after.value("error_group_place", name="newest") == untouched
    assert await counted(hf) == {"boom": 5}
    # Whoever read the place before writes nothing any more.
    await fold._write("newest", place, end, rows)
    assert await counted(hf) == {"boom": 5}


async def test_a_job_that_is_committed_after_later_ones_is_counted(
    hf: Holdfast, store_url: str
) -> None:
    """Its transaction began first, so its end is before those that are counted already."""
    await hf.dead.groups()
    early = dead_row("boom", ended_at=datetime.now(UTC) - timedelta(seconds=1))
    await add_dead(store_url, *["boom"] * 3)
    assert await counted(hf) == {"boom": 3}
    await add_rows(store_url, [early])
    assert await counted(hf) == {"boom": 4}
    assert await counted(hf) == {"boom": 4}


async def test_a_job_that_is_committed_very_late_is_counted_by_the_second_look(
    hf: Holdfast, store_url: str
) -> None:
    await hf.dead.groups()
    now = datetime.now(UTC)
    await add_dead(store_url, "boom", ended_at=now - timedelta(seconds=30))
    assert await counted(hf) == {"boom": 1}
    await add_dead(store_url, "boom", ended_at=now - LONG_AGO)
    assert await counted(hf) == {"boom": 1}
    while await hf.dead._fold.late():
        pass
    assert await counted(hf) == {"boom": 2}
    assert (await only(hf)).first_seen == now - LONG_AGO


async def test_a_job_that_both_looks_have_found_is_counted_once(
    hf: Holdfast, store_url: str
) -> None:
    await hf.dead.groups()
    await add_dead(store_url, *["boom"] * 3)
    fold = hf.dead._fold
    place, rows = await fold._look("late", "failures_after")
    assert await counted(hf) == {"boom": 3}
    await fold._write("late", place, (rows[-1].ended_at, rows[-1].job_id), rows)
    assert await counted(hf) == {"boom": 3}


async def test_the_second_look_begins_again_at_the_end_of_the_history(
    hf: Holdfast, store_url: str
) -> None:
    await hf.dead.groups()
    await add_dead(store_url, *["boom"] * (GROUP_STEP_JOBS_MAX + 1))
    await counted(hf)
    steps = [await hf.dead._fold.late() for _ in range(4)]
    assert steps == [True, False, True, False]
    assert await counted(hf) == {"boom": GROUP_STEP_JOBS_MAX + 1}


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_a_transaction_that_is_open_while_others_are_counted_is_counted_once(
    hf: Holdfast, store_url: str
) -> None:
    connection = await asyncpg.connect(store_url)
    try:
        async with connection.transaction():
            await connection.execute(POSTGRES, msgspec.json.encode([dead_row("boom")]).decode())
            await add_dead(store_url, "boom")
            assert await counted(hf) == {"boom": 1}
    finally:
        await connection.close()
    assert await counted(hf) == {"boom": 2}
    assert await counted(hf) == {"boom": 2}


async def test_more_jobs_than_a_step_may_end_at_one_moment(hf: Holdfast, store_url: str) -> None:
    await hf.dead.groups()
    moment = datetime.now(UTC) - LONG_AGO
    jobs = 2 * GROUP_STEP_JOBS_MAX + 1
    await add_dead(store_url, *["boom"] * jobs, ended_at=moment)
    assert await counted(hf) == {"boom": jobs}


async def test_jobs_that_leave_the_history_are_subtracted_but_remembered(
    hf: Holdfast, store_url: str
) -> None:
    await hf.dead.groups()
    await add_dead(store_url, *["boom"] * 3, tenant="acme")
    await add_dead(store_url, "bang")
    assert await counted(hf) == {"boom": 3, "bang": 1}
    early, *_ = (await hf.dead.groups(GroupFilter(text="boom"))).groups
    fingerprint = early.fingerprint
    job = (await hf.dead.group_jobs(fingerprint)).jobs[0]
    past = "'2020-01-01T00:00:00.000000Z'"
    expire = f"UPDATE error_group_jobs SET kept_until = {past} WHERE job_id = '{job.job_id}'"
    await execute(store_url, expire)
    assert await hf.dead._fold.forget() == 1
    for dead in (hf.dead, hf.for_tenant("acme").dead):
        group = await dead.group(fingerprint)
        assert (group.jobs, group.jobs_ever) == (2, 3)
    assert await hf.dead._fold.forget() == 0


async def test_a_group_without_jobs_is_deleted_unless_it_was_resolved(
    hf: Holdfast, store_url: str
) -> None:
    await hf.dead.groups()
    await add_dead(store_url, "new", "known", "fixed", "fixed long ago")
    groups = {group.shape: group for group in (await _all(hf))}
    await hf.dead.acknowledge(groups["known"].fingerprint)
    await hf.dead.resolve(*(groups[text].fingerprint for text in ("fixed", "fixed long ago")))
    past = "'2020-01-01T00:00:00.000000Z'"
    await execute(store_url, f"UPDATE error_group_jobs SET kept_until = {past}")
    await execute(
        store_url,
        f"UPDATE error_groups SET state_since = {past} WHERE shape = 'fixed long ago'",
    )
    await hf.dead._fold.forget()
    assert jobs_of((await hf.dead.groups()).groups) == {"fixed": 0}


async def _all(hf: Holdfast) -> list[ErrorGroup]:
    await hf.dead.count_groups()
    return list((await hf.dead.groups()).groups)


async def test_jobs_that_are_about_to_leave_the_history_are_not_counted_again(
    hf: Holdfast, store_url: str
) -> None:
    await hf.dead.groups()
    await add_dead(
        store_url, "old", ended_at=datetime.now(UTC) - LONG_AGO, kept=timedelta(seconds=1)
    )
    assert await hf.dead._fold.newest() == 0
    assert await counted(hf) == {}
    assert await hf.dead.groups_behind_since() is None


async def test_a_group_is_acknowledged_resolved_and_comes_back(
    hf: Holdfast, store_url: str
) -> None:
    await hf.dead.groups()
    await add_dead(store_url, "boom")
    fingerprint = (await only(hf)).fingerprint
    (acknowledged,) = await hf.dead.acknowledge(fingerprint, by="ann", note="on it")
    assert (acknowledged.state, acknowledged.state_by, acknowledged.note) == (
        "acknowledged",
        "ann",
        "on it",
    )
    await add_dead(store_url, "boom")
    assert (await only(hf)).state == "acknowledged"
    (resolved,) = await hf.dead.resolve(fingerprint, by="bob", version="1.2")
    assert (resolved.state, resolved.resolved_in, resolved.note) == ("resolved", "1.2", "on it")
    with pytest.raises(WrongState, match="is resolved, so you can't acknowledge it"):
        await hf.dead.acknowledge(fingerprint)
    await add_dead(store_url, "boom", ended_at=resolved.last_seen)
    assert (await only(hf)).state == "resolved"
    await add_dead(store_url, "boom")
    back = await only(hf)
    assert (back.state, back.state_by, back.resolved_in, back.jobs) == ("back", None, "1.2", 4)
    assert back.state_since == back.last_seen
    (reopened,) = await hf.dead.reopen(fingerprint, by="ann")
    assert (reopened.state, reopened.resolved_in) == ("new", None)
    counts = await hf.dead.group_counts()
    assert (counts.groups[GroupState.NEW], counts.capped) == (1, False)


async def test_an_older_version_of_the_application_does_not_bring_a_group_back(
    hf: Holdfast, store_url: str
) -> None:
    await hf.dead.groups()
    await add_dead(store_url, "boom")
    await hf.dead.resolve((await only(hf)).fingerprint, version="1.10")
    for version in ("1.9", "1.10"):
        worker = msgspec.structs.replace(WORKER, id=f"w-{version}", app_version=version)
        await (await full_store(hf)).register(worker, Load())
    await add_dead(store_url, "boom", worker="w-1.9")
    assert (await only(hf)).state == "resolved"
    await add_dead(store_url, "boom", worker="w-1.10")
    assert (await only(hf)).state == "back"


async def test_several_groups_change_together_or_not_at_all(hf: Holdfast, store_url: str) -> None:
    await hf.dead.groups()
    await add_dead(store_url, "one", "two")
    one, two = [group.fingerprint for group in await _all(hf)]
    with pytest.raises(ErrorGroupNotFound):
        await hf.dead.acknowledge(one, two, "0123456789ab")
    assert {group.state for group in await _all(hf)} == {"new"}
    await hf.dead.acknowledge(one, two)
    assert {group.state for group in await _all(hf)} == {"acknowledged"}
    with pytest.raises(BadArguments, match="name 1 to"):
        await hf.dead.resolve()


async def test_pages_of_groups_go_on_without_a_gap(hf: Holdfast, store_url: str) -> None:
    await hf.dead.groups()
    now = datetime.now(UTC)
    names = ["a", "b", "c", "d", "e"]
    for age, name in enumerate(names):
        await add_dead(
            store_url, *["boom"] * (age + 1), name=name, ended_at=now - timedelta(seconds=age)
        )
    await hf.dead.count_groups()
    for order, expected in ((GroupOrder.RECENT, names), (GroupOrder.LARGEST, names[::-1])):
        seen: list[str] = []
        after = None
        while True:
            page = await hf.dead.groups(None, 2, after, order=order)
            seen += [group.name for group in page.groups]
            after = page.after
            if after is None:
                break
        assert seen == expected


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        (GroupFilter(queue="images"), ["no image *"]),
        (GroupFilter(name="mail"), ["no mail server"]),
        (GroupFilter(text="IMAGE"), ["no image *"]),
        (GroupFilter(text="runtime"), ["no image *", "no mail server"]),
        (GroupFilter(text="%"), []),
        (GroupFilter(state=GroupState.ACKNOWLEDGED), ["no mail server"]),
        (GroupFilter(error_code="RuntimeError", queue="other"), []),
    ],
)
async def test_groups_are_found_by_what_they_are_about(
    hf: Holdfast, store_url: str, filter: GroupFilter, found: list[str]
) -> None:
    await hf.dead.groups()
    await add_dead(store_url, "no image 17", queue="images")
    await add_dead(store_url, "no mail server", name="mail")
    mail = next(group for group in await _all(hf) if group.name == "mail")
    await hf.dead.acknowledge(mail.fingerprint)
    assert sorted(jobs_of((await hf.dead.groups(filter)).groups)) == found


async def test_a_search_behind_many_groups_goes_on_in_steps(hf: Holdfast, store_url: str) -> None:
    await hf.dead.groups()
    await add_dead(store_url, "rare", ended_at=datetime.now(UTC) - LONG_AGO)
    await add_dead(store_url, *_words(GROUPS_PAGE_LOOK_MAX))
    await hf.dead.count_groups()
    first = await hf.dead.groups(GroupFilter(text="rare"))
    assert (first.groups, first.after is None) == ([], False)
    second = await hf.dead.groups(GroupFilter(text="rare"), after=first.after)
    assert [group.shape for group in second.groups] == ["rare"]


def _words(count: int) -> list[str]:
    """Texts without digits, which are groups of their own."""
    digits = str.maketrans("0123456789", "ghijklmnop")
    return [f"word {str(number).translate(digits)}" for number in range(count)]


async def test_groups_that_nobody_keeps_up_to_date_say_so(hf: Holdfast, store_url: str) -> None:
    await hf.dead.groups()
    ended = datetime.now(UTC) - LONG_AGO
    await add_dead(store_url, "boom", ended_at=ended)
    behind = await hf.dead.groups_behind_since()
    assert behind is not None
    assert abs(behind - ended) < timedelta(milliseconds=1)
    await hf.dead.count_groups()
    assert await hf.dead.groups_behind_since() is None


async def test_jobs_can_be_grouped_by_a_filter_with_the_states_of_their_groups(
    hf: Holdfast,
) -> None:
    jobs = await dead_jobs(hf, 3)
    await hf.dead.acknowledge((await only(hf)).fingerprint)
    found = await hf.dead.grouped(look_max=2)
    assert (found.looked_at, found.is_all) == (2, False)
    assert [(group.jobs, group.state) for group in found.groups] == [(2, "acknowledged")]
    assert found.groups[0].example_id in {job.id for job in jobs[1:]}
