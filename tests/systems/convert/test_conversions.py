"""What becomes of a conversion, whatever the gateway and the disk do."""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from holdfast import State
from holdfast_systems.convert.failures import ConversionRefused
from holdfast_systems.convert.files import Files
from holdfast_systems.convert.limits import PDF_BYTES_MAX, PDF_HEADER_BYTES_MAX, XML_BYTES_MAX
from tests.promises.stage import both_stores
from tests.support.processes import wait_until
from tests.support.running import WAIT_SECONDS_MAX, execute, working
from tests.systems.convert.bench import Bench
from tests.systems.convert.scripted import ScriptedGateway, script

pytestmark = pytest.mark.heavy

# For what does not depend on the store.
one_store = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


@both_stores
async def test_the_happy_path_goes_from_queued_over_processing_to_complete(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    gateway.gate.clear()
    job_id = await bench.submit(mapping="invoice")
    queued = await bench.conversion(job_id)
    assert (queued.status, queued.attempts, queued.started_at) == ("queued", 0, None)
    async with working(bench.hf):
        (request,) = await gateway.arrivals()
        processing = await bench.conversion(job_id)
        assert (processing.status, processing.result_path) == ("processing", None)
        assert bench.results == {}
        gateway.gate.set()
        complete = await bench.reaches(job_id, "complete")
    assert complete.result_path == str(bench.settings.results_dir / f"{job_id}.1.xml")
    assert bench.results == {f"{job_id}.1.xml": "<document>1</document>"}
    assert complete.started_at is not None
    assert complete.completed_at is not None
    assert timedelta() <= complete.completed_at - complete.started_at < timedelta(minutes=1)
    assert (complete.error_code, complete.error_message, complete.failed_at) == (None, None, None)
    assert (await bench.hf.get(job_id)).result == {"result_path": complete.result_path}
    assert (request.mapping, request.job_id) == ("invoice", str(job_id))
    assert (request.filename, request.content_type) == (f"{job_id}.pdf", "application/pdf")
    assert request.headers["Accept"] == "application/xml"


@one_store
async def test_the_original_file_name_is_kept_but_never_part_of_a_path(bench: Bench) -> None:
    name = "../../../etc/passwd\n\0invoice.pdf"
    job_id = await bench.convert.submit(script(), "text", name)
    await bench.hf.run_due()
    conversion = await bench.conversion(job_id)
    assert conversion.original_filename == "../../../etc/passwd invoice.pdf"
    assert [path.name for path in bench.settings.uploads_dir.iterdir()] == [f"{job_id}.pdf"]
    assert list(bench.results) == [f"{job_id}.1.xml"]


@both_stores
async def test_gateway_400_and_406_end_the_job_at_once(bench: Bench) -> None:
    answers = [{"status": status, "body": "no\nPDF,\tat all"} for status in (400, 406)]
    ids = {answer["status"]: await bench.submit(answer) for answer in answers}
    await bench.hf.run_due()
    for status, job_id in ids.items():
        failed = await bench.conversion(job_id)
        assert (failed.status, failed.error_code, failed.attempts) == ("failed", "GW_4XX", 1)
        assert failed.error_message == f"the gateway answered {status}: no PDF, at all"
        assert failed.failed_at is not None
        assert (failed.completed_at, failed.result_path) == (None, None)
    assert bench.results == {}


@both_stores
async def test_gateway_5xx_is_tried_again_after_10_to_15_and_20_to_25_seconds(
    bench: Bench,
) -> None:
    job_id = await bench.submit({"status": 503, "body": "busy"})
    for least in (10, 20):
        await bench.run_again(job_id)
        waiting = await bench.conversion(job_id)
        assert (waiting.status, waiting.error_code) == ("queued", "GW_5XX")
        assert (waiting.error_message, waiting.failed_at) == (
            "the gateway answered 503: busy",
            None,
        )
        assert least <= await bench.wait_seconds(job_id) <= least + 5
    await bench.run_again(job_id)
    failed = await bench.conversion(job_id)
    assert (failed.status, failed.error_code, failed.attempts) == ("failed", "GW_5XX", 3)
    assert failed.failed_at is not None
    assert (await bench.hf.get(job_id)).state is State.DEAD


@both_stores
async def test_a_gateway_that_was_down_and_is_back_completes_the_job(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    job_id = await bench.submit({"breaks": True}, {"status": 500}, {})
    for _ in range(2):
        await bench.run_again(job_id)
        assert (await bench.conversion(job_id)).error_code == "GW_5XX"
    await bench.run_again(job_id)
    complete = await bench.conversion(job_id)
    assert (complete.status, complete.attempts, complete.error_code) == ("complete", 3, None)
    assert list(bench.results.values()) == ["<document>3</document>"]


@both_stores
async def test_while_the_gateway_is_down_conversions_wait_and_lose_no_attempt(
    bench: Bench, gateway: ScriptedGateway, store_url: str
) -> None:
    gateway.gate.clear()
    ids = [await bench.submit({"status": 503}, {}) for _ in range(12)]
    async with working(bench.hf, concurrency=12):
        await gateway.arrivals(12)
        gateway.gate.set()
        await wait_until(partial(holds, bench, 7), "held: all but those that opened the breaker")
        waiting = [await bench.conversion(job_id) for job_id in ids]
        assert {each.status for each in waiting} == {"queued"}
        assert sorted(each.attempts or 0 for each in waiting) == [0] * 7 + [1] * 5
        assert len(gateway.received) == 12
        # The time of the next probe comes, and then nobody does anything.
        due = "0" if store_url.startswith("sqlite") else "'-infinity'"
        await execute(store_url, f"UPDATE breakers SET next_probe_at = {due}")
        for each in waiting:
            if not each.attempts:
                await bench.reaches(each.id, "complete")
    assert [breaker.is_open for breaker in await bench.hf.breakers.list()] == [False]


async def holds(bench: Bench, count: int) -> bool:
    return any(breaker.parked == count for breaker in await bench.hf.breakers.list())


@one_store
async def test_a_gateway_that_is_at_work_but_refuses_holds_no_conversion(bench: Bench) -> None:
    for _ in range(6):
        await bench.submit({"status": 429})
        await bench.submit({"status": 404})
    await bench.hf.run_due()
    assert await bench.hf.breakers.list() == []


@one_store
async def test_a_document_whose_xml_is_too_large_ends_and_holds_no_other(bench: Bench) -> None:
    job_id = await bench.submit({"body": "<a/>", "padding": XML_BYTES_MAX})
    await bench.hf.run_due()
    failed = await bench.conversion(job_id)
    assert (failed.status, failed.error_code, failed.attempts) == ("failed", "GW_5XX", 1)
    assert failed.error_message == "the gateway's XML is larger than 64 MiB"
    assert await bench.hf.breakers.list() == []
    assert bench.results == {}


@both_stores
async def test_a_gateway_that_nobody_serves_is_gw_5xx(bench: Bench) -> None:
    job_id = await bench.submit()
    convert = bench.other(gateway_url="http://127.0.0.1:1")
    async with convert.hf:
        await convert.hf.run_due()
    waiting = await bench.conversion(job_id)
    assert (waiting.status, waiting.error_code) == ("queued", "GW_5XX")


@both_stores
async def test_a_timeout_is_gw_timeout_and_respects_the_most_attempts(bench: Bench) -> None:
    convert = bench.other(gateway_timeout_seconds=0.2, max_attempts=2)
    async with convert.hf:
        job_id = await convert.submit(script({"hangs": True}), "text", "slow.pdf")
        await convert.hf.run_due()
        waiting = await bench.conversion(job_id)
        assert (waiting.status, waiting.error_code) == ("queued", "GW_TIMEOUT")
        assert 10 <= await bench.wait_seconds(job_id) <= 15
        await convert.hf.jobs.retry(job_id)
        await convert.hf.run_due()
    failed = await bench.conversion(job_id)
    assert (failed.status, failed.error_code, failed.attempts) == ("failed", "GW_TIMEOUT", 2)
    assert failed.error_message == "the gateway did not answer within 0.2 s"


@one_store
async def test_429_waits_as_long_as_retry_after_says(bench: Bench) -> None:
    job_id = await bench.submit({"status": 429, "headers": {"Retry-After": "40"}})
    await bench.hf.run_due()
    waiting = await bench.conversion(job_id)
    assert (waiting.status, waiting.error_code) == ("queued", "GW_4XX")
    assert await bench.wait_seconds(job_id) == pytest.approx(40, abs=0.5)


@both_stores
async def test_an_answer_without_xml_is_never_a_result(bench: Bench) -> None:
    bodies = ["", "<document>", "no XML", "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>"]
    ids = [await bench.submit({"body": body}) for body in bodies]
    await bench.hf.run_due()
    for job_id in ids:
        waiting = await bench.conversion(job_id)
        assert (waiting.status, waiting.error_code) == ("queued", "GW_5XX")
        assert waiting.result_path is None
    assert bench.results == {}


@both_stores
async def test_a_missing_upload_is_an_io_error_tried_once_more(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    job_id = await bench.submit()
    bench.convert.files.upload_path(job_id).unlink()
    await bench.hf.run_due()
    waiting = await bench.conversion(job_id)
    assert (waiting.status, waiting.error_code) == ("queued", "IO_ERROR")
    await bench.run_again(job_id)
    failed = await bench.conversion(job_id)
    assert (failed.status, failed.error_code, failed.attempts) == ("failed", "IO_ERROR", 2)
    assert str(bench.folder) not in (failed.error_message or "")
    assert gateway.received == []


@both_stores
async def test_an_io_error_is_tried_once_more_whatever_failed_before(bench: Bench) -> None:
    job_id = await bench.submit({"status": 503})
    await bench.hf.run_due()
    assert (await bench.conversion(job_id)).error_code == "GW_5XX"
    bench.convert.files.upload_path(job_id).unlink()
    await bench.run_again(job_id)
    waiting = await bench.conversion(job_id)
    assert (waiting.status, waiting.error_code) == ("queued", "IO_ERROR")
    await bench.run_again(job_id)
    failed = await bench.conversion(job_id)
    assert (failed.status, failed.error_code, failed.attempts) == ("failed", "IO_ERROR", 3)


@both_stores
async def test_how_a_conversion_ended_outlives_the_history_of_its_job(
    bench: Bench, store_url: str
) -> None:
    ids = [await bench.submit({"status": 400, "body": "no PDF"}), await bench.submit()]
    await bench.hf.run_due()
    before = [await bench.conversion(job_id) for job_id in ids]
    assert [each.status for each in before] == ["failed", "complete"]
    await execute(store_url, "DELETE FROM history")
    for known, job_id in zip(before, ids, strict=True):
        after = await bench.conversion(job_id)
        assert after.failed_at is None or known.failed_at is not None
        for name in ("status", "attempts", "error_code", "error_message", "result_path"):
            assert getattr(after, name) == getattr(known, name)


@one_store
async def test_the_last_attempt_of_a_job_that_is_parked_is_no_failure(
    bench: Bench, gateway: ScriptedGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """The breaker opens while the attempt runs, and the job gets its attempt back."""
    gateway.gate.clear()
    convert = bench.other(max_attempts=1)
    async with convert.hf, working(convert.hf):
        job_id = await convert.submit(script({"status": 503}), "text", "scripted.pdf")
        await gateway.arrivals()
        await convert.hf.breakers.open("convert-gateway")
        gateway.gate.set()
        waiting = await bench.reaches(job_id, "queued")
    assert (waiting.attempts, waiting.error_code, waiting.failed_at) == (0, "GW_5XX", None)
    assert "failed" not in [record.message for record in caplog.records]


@one_store
async def test_a_result_that_cannot_be_written_is_an_io_error(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    gateway.gate.clear()
    job_id = await bench.submit()
    async with working(bench.hf):
        await gateway.arrivals()
        shutil.rmtree(bench.settings.results_dir)
        gateway.gate.set()
        waiting = await bench.reaches(job_id, "queued")
    assert (waiting.error_code, waiting.result_path) == ("IO_ERROR", None)


@one_store
async def test_an_unknown_mapping_is_refused_when_it_is_handed_in(bench: Bench) -> None:
    with pytest.raises(ConversionRefused, match=r"no mapping 'x/../y'; use one of: text, layout"):
        await bench.submit(mapping="x/../y")
    assert (await bench.hf.jobs.list()).jobs == []
    assert not bench.settings.uploads_dir.exists()


@both_stores
async def test_an_unknown_mapping_is_refused_by_the_worker_again(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    """The list of the worker may be shorter than that of the web side, or somebody went past it."""
    job_id = await bench.submit(mapping="layout")
    convert = bench.other(mappings=("text",))
    async with convert.hf:
        await convert.hf.run_due()
    failed = await bench.conversion(job_id)
    assert (failed.status, failed.error_code, failed.attempts) == ("failed", "UNKNOWN_MAPPING", 1)
    assert gateway.received == []


@one_store
async def test_what_is_empty_too_large_or_no_pdf_is_refused(bench: Bench) -> None:
    for pdf, code in (
        (b"", "PDF_SIZE"),
        (b"%PDF-1.7" + bytes(PDF_BYTES_MAX), "PDF_SIZE"),
        (b"<html>no PDF</html>", "NOT_A_PDF"),
        (bytes(PDF_HEADER_BYTES_MAX) + b"%PDF-1.7", "NOT_A_PDF"),
    ):
        with pytest.raises(ConversionRefused) as refused:
            await bench.convert.submit(pdf, "text", "a.pdf")
        assert refused.value.code == code
    assert list(bench.settings.uploads_dir.iterdir()) == []
    assert (await bench.hf.jobs.list()).jobs == []


@both_stores
async def test_a_canceled_job_is_canceled_here_too(bench: Bench) -> None:
    job_id = await bench.submit()
    await bench.hf.jobs.cancel(job_id)
    assert (await bench.conversion(job_id)).status == "canceled"


@both_stores
async def test_a_requeued_job_converts_the_same_upload_under_its_own_id(bench: Bench) -> None:
    first = await bench.submit({"status": 400})
    await bench.hf.run_due()
    bench.convert.files.write_upload(first, [script()])
    again = (await bench.hf.jobs.requeue(first)).id
    await bench.hf.run_due()
    complete = await bench.conversion(again)
    assert (complete.status, complete.original_filename) == ("complete", "scripted.pdf")
    assert list(bench.results) == [f"{again}.1.xml"]
    assert (await bench.conversion(first)).status == "failed"


@both_stores
async def test_a_claim_takes_exactly_one_job_and_no_job_is_claimed_twice(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    gateway.gate.clear()
    ids = [await bench.submit() for _ in range(5)]
    rival = bench.other()
    async with rival.hf, working(bench.hf, concurrency=1):
        (first,) = await gateway.arrivals()
        words = [(await bench.conversion(job_id)).status for job_id in ids]
        assert (first.job_id, words) == (str(ids[0]), ["processing", *["queued"] * 4])
        async with working(rival.hf, concurrency=1):
            await gateway.arrivals(2)
            gateway.gate.set()
            for job_id in ids:
                await bench.reaches(job_id, "complete")
    assert sorted(request.job_id for request in gateway.received) == sorted(map(str, ids))
    assert [(await bench.conversion(job_id)).attempts for job_id in ids] == [1] * 5


class LosingFiles(Files):
    """Another one takes the job when its result is written, before that is recorded."""

    def __init__(self, files: Files, url: str) -> None:
        super().__init__(files.uploads, files.results)
        self.written: list[Path] = []
        self._url = url

    def write_result(self, job_id: UUID, fence: int, xml: bytes) -> Path:
        path = super().write_result(job_id, fence, xml)
        assert path.exists()
        self.written.append(path)
        asyncio.run(execute(self._url, f"UPDATE jobs SET fence = fence + 1 WHERE id = '{job_id}'"))
        return path


@one_store
async def test_the_file_of_a_worker_that_lost_its_job_is_removed(
    bench: Bench, store_url: str
) -> None:
    job_id = await bench.submit()
    files = bench.convert.files = LosingFiles(bench.convert.files, store_url)
    async with working(bench.hf):
        await wait_until(lambda: files.written and bench.results == {}, "removed")
    assert [path.name for path in files.written] == [f"{job_id}.1.xml"]
    lost = await bench.conversion(job_id)
    assert (lost.status, lost.result_path) == ("processing", None)


class SlowFiles(Files):
    """The result is on its way to the disk until the gate opens."""

    def __init__(self, files: Files) -> None:
        super().__init__(files.uploads, files.results)
        self.started, self.gate, self.written = (threading.Event() for _ in range(3))

    def write_result(self, job_id: UUID, fence: int, xml: bytes) -> Path:
        self.started.set()
        assert self.gate.wait(WAIT_SECONDS_MAX)
        path = super().write_result(job_id, fence, xml)
        self.written.set()
        return path


@one_store
async def test_a_job_canceled_while_its_result_is_written_leaves_no_file(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    job_id = await bench.submit()
    files = bench.convert.files = SlowFiles(bench.convert.files)
    try:
        async with working(bench.hf):
            await wait_until(files.started.is_set, "started")
            await bench.hf.cancel(job_id)
            await wait_until(lambda: "the job was canceled" in caplog.text, "told to stop")
            files.gate.set()
            await wait_until(lambda: files.written.is_set() and bench.results == {}, "removed")
    finally:
        files.gate.set()
    assert (await bench.conversion(job_id)).status == "canceled"


@both_stores
async def test_a_conversion_of_another_tenant_does_not_exist(bench: Bench) -> None:
    job_id = await bench.convert.submit(script(), "text", "a.pdf", tenant="acme")
    assert (await bench.hf.get(job_id)).tenant == "acme"
    assert await bench.convert.get(job_id, tenant="acme") is not None
    assert await bench.convert.get(job_id) is None
