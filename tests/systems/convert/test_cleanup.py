"""Uploads, results and orphans are removed after their time, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

import pytest

from holdfast import SweepContext
from holdfast_systems.convert.limits import CLEANUP_FILES_MAX, CLEANUP_ROWS_MAX, ORPHAN_SECONDS_MAX
from holdfast_systems.convert.service import Convert
from tests.promises.stage import both_stores
from tests.support.processes import wait_until
from tests.support.running import execute, working
from tests.systems.convert.bench import Bench
from tests.systems.convert.scripted import ScriptedGateway

pytestmark = pytest.mark.heavy

CTX = SweepContext("worker")
NOW = {"uploads_kept_seconds": 1e-6, "results_kept_seconds": 1e-6}
SOON = {"uploads_kept_seconds": 1e-6, "results_kept_seconds": 3600.0}


async def clean(convert: Convert) -> None:
    while await convert.cleanup.clean_up_conversions(CTX) == 0:
        pass


async def remove_orphans(convert: Convert) -> None:
    while await convert.cleanup.remove_orphans(CTX) == 0:
        pass


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@both_stores
async def test_an_old_upload_is_removed_before_its_result(bench: Bench) -> None:
    job_id = await bench.submit()
    await bench.hf.run_due()
    later = bench.other(**SOON)
    async with later.hf:
        await clean(later)
        assert names(bench.settings.uploads_dir) == []
        assert list(bench.results) == [f"{job_id}.1.xml"]
        assert (await bench.conversion(job_id)).status == "complete"
    last = bench.other(**NOW)
    async with last.hf:
        await clean(last)
    assert bench.results == {}
    assert await bench.convert.get(job_id) is None


@both_stores
async def test_what_has_not_ended_keeps_its_files_however_old_it_is(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    waiting = await bench.submit({"status": 503})
    await bench.hf.run_due()
    fresh = await bench.submit()
    convert = bench.other(**NOW)
    async with convert.hf:
        await clean(convert)
    assert names(bench.settings.uploads_dir) == sorted([f"{waiting}.pdf", f"{fresh}.pdf"])
    assert (await bench.conversion(waiting)).status == "queued"


@both_stores
async def test_a_canceled_conversion_and_one_whose_worker_was_lost_end_too(
    bench: Bench, store_url: str
) -> None:
    canceled = await bench.submit()
    await bench.hf.jobs.cancel(canceled)
    gone = await bench.submit()
    await bench.hf.jobs.cancel(gone)
    await execute(store_url, f"DELETE FROM history WHERE id = '{gone}'")
    kept = await bench.submit()
    convert = bench.other(**NOW)
    async with convert.hf:
        await clean(convert)
        await clean(convert)
    assert names(bench.settings.uploads_dir) == [f"{kept}.pdf"]
    assert await bench.convert.get(canceled) is None
    assert await bench.convert.get(kept) is not None


@both_stores
async def test_an_upload_stays_while_a_requeued_job_needs_it(bench: Bench) -> None:
    first = await bench.submit({"status": 400})
    await bench.hf.run_due()
    again = (await bench.hf.jobs.requeue(first)).id
    convert = bench.other(**NOW)
    async with convert.hf:
        await clean(convert)
        assert names(bench.settings.uploads_dir) == [f"{first}.pdf"]
        await bench.hf.run_due()
        assert (await bench.conversion(again)).error_code == "GW_4XX"
        await clean(convert)
    assert names(bench.settings.uploads_dir) == []


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_many_old_conversions_are_removed_in_bounded_steps(bench: Bench) -> None:
    count = CLEANUP_ROWS_MAX + 1
    for _ in range(count):
        await bench.submit({"status": 400})
    await bench.hf.run_due(concurrency=8)
    convert = bench.other(**NOW)
    async with convert.hf:
        assert await convert.cleanup.clean_up_conversions(CTX) == 0
        left = names(bench.settings.uploads_dir)
        assert len(left) == count - CLEANUP_ROWS_MAX
        await clean(convert)
    assert names(bench.settings.uploads_dir) == []


@both_stores
async def test_orphans_are_removed_after_a_day_and_others_stay(bench: Bench) -> None:
    job_id = await bench.submit()
    await bench.hf.run_due()
    uploads, results = bench.settings.uploads_dir, bench.settings.results_dir
    unknown = UUID(int=9)
    orphans = [
        uploads / f"{unknown}.pdf",
        uploads / f".{unknown}.pdf.{'a' * 32}.tmp",
        results / f"{unknown}.1.xml",
        results / f"{job_id}.2.xml",  # of a worker that lost its lease, and then died
        results / f".{job_id}.1.xml.{'b' * 32}.tmp",
    ]
    stay = [uploads / "notes.txt", results / "README.xml"]
    for path in (*orphans, *stay):
        path.write_text("x")
    await remove_orphans(bench.convert)
    assert all(path.exists() for path in orphans), "too young: it may be in use"
    for folder in (uploads, results):
        for path in folder.iterdir():
            make_old(path)
    await remove_orphans(bench.convert)
    assert names(uploads) == sorted([f"{job_id}.pdf", "notes.txt"])
    assert names(results) == sorted([f"{job_id}.1.xml", "README.xml"])


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_many_files_are_looked_at_in_bounded_steps(bench: Bench) -> None:
    bench.convert.files.make_folders()
    for number in range(CLEANUP_FILES_MAX + 1):
        path = bench.settings.uploads_dir / f"{UUID(int=number)}.pdf"
        path.touch()
        make_old(path)
    assert await bench.convert.cleanup.remove_orphans(CTX) == 0
    assert len(names(bench.settings.uploads_dir)) == 1
    assert await bench.convert.cleanup.remove_orphans(CTX) is None
    assert names(bench.settings.uploads_dir) == []


@both_stores
async def test_workers_clean_up_by_themselves(bench: Bench) -> None:
    job_id = await bench.submit()
    await bench.hf.run_due()
    orphan = bench.settings.results_dir / f"{UUID(int=9)}.1.xml"
    orphan.touch()
    make_old(orphan)
    convert = bench.other(**NOW)
    async with convert.hf, working(convert.hf):
        await wait_until(lambda: bench.results == {}, "removed")
        await wait_until(lambda: is_gone(bench, job_id), "its row, too")


async def is_gone(bench: Bench, job_id: UUID) -> bool:
    return await bench.convert.get(job_id) is None


def make_old(path: Path) -> None:
    age = path.stat().st_mtime - ORPHAN_SECONDS_MAX - 60
    os.utime(path, (age, age))
