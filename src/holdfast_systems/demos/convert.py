"""Convert: PDF invoices become XML, although the gateway is down at first."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID
from xml.etree import ElementTree

import typst

from holdfast_systems.convert.failures import ConversionRefused
from holdfast_systems.convert.records import Conversion
from holdfast_systems.convert.service import Convert
from holdfast_systems.convert.settings import GATEWAY, ConvertSettings
from holdfast_systems.demos.frame import WAIT_SECONDS_MAX, Settings, Stage, until
from holdfast_systems.demos.processes import Service

INVOICES = GATEWAY.failures + 1
INVOICE = """
#set page(width: 148mm, height: 210mm, margin: 15mm)
#set text(size: 10pt)
= Kelp & Anchor Ltd.
#v(8mm)
Invoice No. INV-2026-0042

Date: 16 November 2026
#v(8mm)
#table(
  columns: (1fr, auto, auto),
  align: (left, right, right),
  [Item], [Quantity], [Price],
  [Holdfast, coil of 50 m], [2], [400.00],
  [Shackle "Dover" < 20 mm], [10], [200.00],
)
Subtotal #h(1fr) EUR 1,000.00

VAT 19 % #h(1fr) EUR 190.00

*Total* #h(1fr) *EUR 1,190.00*
"""


def make_pdf(text: str) -> bytes:
    pdf = typst.compile(text.encode())
    assert isinstance(pdf, bytes)
    return pdf


async def prepare(stage: Stage) -> Settings:
    gateway = await stage.start("gateway", "holdfast_systems.convert.gateway")
    return {
        "DATABASE_URL": stage.url,
        "GATEWAY_URL": gateway.address,
        "UPLOADS_DIR": str(stage.folder / "uploads"),
        "RESULTS_DIR": str(stage.folder / "results"),
    }


async def run(stage: Stage) -> None:
    with stage.step("start a gateway and a worker") as step:
        await stage.serve("holdfast_systems.convert.app:hf", prepare)
        gateway = stage.services["gateway"]
        settings = ConvertSettings.from_environment(stage.settings)
        convert = Convert(settings.make_holdfast(), settings)
        step.says(f"the gateway is at {gateway.address}")
    async with convert.hf:
        invoice = _keep_invoice(stage)
        await _refuse(stage, convert, invoice)
        await _convert_layout(stage, convert, invoice)
        ids = await _submit_while_down(stage, convert, invoice, gateway)
        await _recover(stage, convert, ids, gateway)


def _keep_invoice(stage: Stage) -> bytes:
    with stage.step("create an invoice as a PDF") as step:
        pdf = make_pdf(INVOICE)
        path = stage.out / "invoice.pdf"
        path.write_bytes(pdf)
        stage.made(path, "the invoice")
        step.says(f"{len(pdf):,} bytes")
    return pdf


async def _refuse(stage: Stage, convert: Convert, pdf: bytes) -> None:
    with stage.step("submit it with a mapping that is not allowed") as step:
        try:
            await convert.submit(pdf, "../../etc/passwd", "invoice.pdf")
        except ConversionRefused as error:
            step.says(f"rejected: {error.code}")
        step.expects(bool(step.outcome), "the mapping is rejected")


async def _convert_layout(stage: Stage, convert: Convert, pdf: bytes) -> None:
    with stage.step("convert it to words with their positions") as step:
        job_id = await convert.submit(pdf, "layout", "invoice.pdf")
        await convert.hf.result(job_id, WAIT_SECONDS_MAX)
        root = await _keep_xml(stage, convert, job_id, "layout.xml", "words with their positions")
        words = [word.text for word in root.iter("word")]
        step.expects("INV-2026-0042" in words, "the invoice number among the words")
        step.says(f"{len(words)} words")


async def _submit_while_down(
    stage: Stage, convert: Convert, pdf: bytes, gateway: Service
) -> list[UUID]:
    with stage.step(f"stop the gateway and submit {INVOICES} invoices") as step:
        await gateway.stop()
        ids = [await convert.submit(pdf, "invoice", "invoice.pdf") for _ in range(INVOICES)]
        (breaker,) = await until(
            convert.hf.breakers.list, lambda found: any(each.is_open for each in found)
        )
        waiting = await until(
            partial(_look_up, convert, ids),
            lambda found: all(each.status == "queued" for each in found),
        )
        failed = [each for each in waiting if each.error_code]
        step.expects({each.error_code for each in failed} == {"GW_5XX"}, "the error GW_5XX")
        step.expects(len(failed) >= GATEWAY.failures, "as many failures as open the breaker")
        step.says(f"all queued, and the breaker {breaker.key} is open")
    return ids


async def _recover(stage: Stage, convert: Convert, ids: list[UUID], gateway: Service) -> None:
    with stage.step("restart the gateway, and do nothing else") as step:
        port = str(urlsplit(gateway.address).port)
        # It serves whoever shares the stage, too, and longer than this demo.
        owner = stage.shared or stage
        await owner.start("gateway", "holdfast_systems.convert.gateway", arguments=["--port", port])
        found = await until(
            partial(_look_up, convert, ids),
            lambda found: all(each.status in ("complete", "failed") for each in found),
        )
        complete = [each for each in found if each.status == "complete"]
        step.expects(len(complete) == INVOICES, "all invoices complete")
        step.expects(not any(each.is_open for each in await convert.hf.breakers.list()), "closed")
        root = await _keep_xml(stage, convert, ids[0], "invoice.xml", "number, date and totals")
        total = root.findtext("invoice/total")
        step.expects(root.findtext("invoice/number") == "INV-2026-0042", "the invoice number")
        step.expects(total == "1190.00", "the total 1190.00")
        step.says(f"{len(complete)} complete, total {total} {root.findtext('invoice/currency')}")


async def _look_up(convert: Convert, ids: list[UUID]) -> list[Conversion]:
    found = [await convert.get(job_id) for job_id in ids]
    return [each for each in found if each is not None]


async def _keep_xml(
    stage: Stage, convert: Convert, job_id: UUID, name: str, what: str
) -> ElementTree.Element:
    conversion = await convert.get(job_id)
    if conversion is None or conversion.result_path is None:
        raise LookupError(f"job {job_id} has no result")
    path = stage.out / name
    shutil.copyfile(Path(conversion.result_path), path)
    stage.made(path, what)
    return ElementTree.fromstring(path.read_bytes())
