"""The reference gateway, over HTTP."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import aiohttp
import pypdf
import pytest

from holdfast_systems.convert.gateway.accept import accepts_xml
from holdfast_systems.convert.gateway.app import make_app
from holdfast_systems.convert.gateway.converter import Converter, Refused
from holdfast_systems.convert.limits import (
    CONVERSION_MEMORY_BYTES_MAX,
    FORM_BYTES_MAX,
    MIB,
    PDF_BYTES_MAX,
)
from holdfast_systems.demos.convert import make_pdf
from tests.support.processes import ROOT, Process, wait_until
from tests.systems.convert.bench import gateway_address
from tests.systems.convert.raw_pdf import one_page

pytestmark = pytest.mark.heavy

XML = {"Accept": "application/xml"}


@pytest.fixture
async def client(real_gateway: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(real_gateway, headers=XML) as session:
        yield session


def form(pdf: bytes, mapping: str | None = "text") -> aiohttp.FormData:
    made = aiohttp.FormData()
    if mapping is not None:
        made.add_field("mapping", mapping)
    made.add_field("file", io.BytesIO(pdf), filename="a.pdf", content_type="application/pdf")
    return made


async def converted(client: aiohttp.ClientSession, pdf: bytes, mapping: str) -> ElementTree.Element:
    async with client.post("/process", data=form(pdf, mapping)) as response:
        assert (response.status, response.content_type) == (200, "application/xml")
        return ElementTree.fromstring(await response.read())


async def refused(client: aiohttp.ClientSession, data: aiohttp.FormData) -> tuple[int, str]:
    async with client.post("/process", data=data) as response:
        return response.status, await response.text()


async def test_text_has_the_text_of_every_page(client: aiohttp.ClientSession) -> None:
    pdf = make_pdf("Tom & \\<Jerry\\>\n\nsecond line #pagebreak() Größe: 5 €")
    root = await converted(client, pdf, "text")
    assert root.attrib == {"mapping": "text", "pages": "2"}
    assert [(page.get("number"), page.text) for page in root.iter("page")] == [
        ("1", "Tom & <Jerry>\nsecond line"),
        ("2", "Größe: 5 €"),
    ]


async def test_layout_has_every_word_in_its_place(client: aiohttp.ClientSession) -> None:
    pdf = make_pdf(
        "#set page(width: 200pt, height: 100pt, margin: 0pt)\n"
        "#place(dx: 20pt, dy: 30pt)[upper]\n#place(dx: 120pt, dy: 70pt)[lower right]"
    )
    (page,) = await converted(client, pdf, "layout")
    assert (page.get("width"), page.get("height")) == ("200.00", "100.00")
    words = {word.text: word for word in page.iter("word")}
    assert set(words) == {"upper", "lower", "right"}
    assert float(words["upper"].attrib["left"]) == pytest.approx(20, abs=2)
    assert float(words["upper"].attrib["top"]) == pytest.approx(30, abs=6)
    assert float(words["lower"].attrib["left"]) == pytest.approx(120, abs=2)
    assert float(words["lower"].attrib["top"]) == pytest.approx(70, abs=6)
    assert [len(list(line)) for line in page.iter("line")] == [1, 2]


async def test_invoice_has_number_date_and_totals(
    client: aiohttp.ClientSession, invoice_pdf: bytes
) -> None:
    (invoice,) = await converted(client, invoice_pdf, "invoice")
    assert {element.tag: element.text for element in invoice} == {
        "number": "INV-2026-0042",
        "date": "2026-11-16",
        "currency": "EUR",
        "subtotal": "1000.00",
        "tax": "190.00",
        "total": "1190.00",
    }


async def test_400_for_what_is_no_pdf(client: aiohttp.ClientSession, invoice_pdf: bytes) -> None:
    for content in (b"", b"no PDF", invoice_pdf[:200]):
        assert await refused(client, form(content)) == (400, "the file is not a readable PDF")
    without_file = aiohttp.FormData({"mapping": "text"}, default_to_multipart=True)
    assert await refused(client, without_file) == (400, "the field file is missing")
    headers = {"Content-Type": "Multipart/Form-Data; boundary=b"}
    async with client.post("/process", data=b"--b--\r\n", headers=headers) as response:
        assert (response.status, await response.text()) == (400, "the field file is missing")


@pytest.mark.parametrize("charset", ["undefined", "punycode", "idna", "none", "hex", "'"])
async def test_400_for_a_form_in_a_charset_that_nobody_can_read(
    client: aiohttp.ClientSession, charset: str
) -> None:
    headers = {"Content-Type": f"multipart/form-data; boundary=b; charset={charset}"}
    field = b'--b\r\nContent-Disposition: form-data; name="mapping"\r\n\r\ntext\r\n--b--\r\n'
    async with client.post("/process", data=field, headers=headers) as response:
        assert response.status == 400
        assert await response.text() in (
            "the field file is missing",
            "the form can't be read: check the charset in Content-Type",
        )


async def test_406_for_a_client_that_takes_no_xml(
    client: aiohttp.ClientSession, invoice_pdf: bytes
) -> None:
    headers = {"Accept": "application/json"}
    async with client.post("/process", data=form(invoice_pdf), headers=headers) as response:
        assert response.status == 406


async def test_413_for_what_is_too_large(client: aiohttp.ClientSession) -> None:
    status, _ = await refused(client, form(bytes(PDF_BYTES_MAX + 1)))
    assert status == 413


async def test_a_body_that_does_not_end_is_not_read_to_its_end(real_gateway: str) -> None:
    address = urlsplit(real_gateway)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(
        b"POST /process HTTP/1.1\r\nHost: gateway\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    )
    start = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n'
    sent = 0
    answer = asyncio.create_task(reader.readline())
    with suppress(ConnectionError):
        while sent < 2 * FORM_BYTES_MAX and not answer.done():
            piece = (b"" if sent else start) + bytes(MIB)
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            sent += len(piece)
    assert FORM_BYTES_MAX < sent < 2 * FORM_BYTES_MAX
    with suppress(ConnectionResetError):  # which may overtake the answer
        assert b" 413 " in await answer
    writer.close()


async def test_a_client_that_goes_away_is_no_error_of_the_gateway() -> None:
    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def ignore(_message: MutableMapping[str, Any]) -> None:
        return

    headers = [(b"content-type", b"multipart/form-data; boundary=b")]
    scope = {"type": "http", "method": "POST", "path": "/process", "headers": headers}
    await make_app()({**scope, "query_string": b""}, gone, ignore)


async def test_415_for_what_is_no_form(client: aiohttp.ClientSession, invoice_pdf: bytes) -> None:
    async with client.post("/process", data=io.BytesIO(invoice_pdf)) as response:
        assert response.status == 415


async def test_422_for_what_can_never_be_converted(
    client: aiohttp.ClientSession, invoice_pdf: bytes
) -> None:
    for mapping in ("", "other", None):
        status, text = await refused(client, form(invoice_pdf, mapping))
        assert (status, text.startswith("no such mapping")) == (422, True)
    assert await refused(client, form(make_pdf("A letter."), "invoice")) == (
        422,
        "the PDF has no invoice number and total",
    )
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(invoice_pdf))
    writer.encrypt("secret")
    locked = io.BytesIO()
    writer.write(locked)
    assert await refused(client, form(locked.getvalue())) == (422, "the PDF has a password")


async def test_a_code_that_is_no_character_costs_that_character_alone(
    client: aiohttp.ClientSession,
) -> None:
    odd = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding<</Differences[65/u110000]>>>>"
    pdf = one_page("BT /F 12 Tf 20 50 Td (xAy) Tj ET", font=odd)
    root = await converted(client, pdf, "text")
    assert root.findtext("page") == "x\ufffdy"


async def test_whatever_the_converter_raises_is_422_with_the_reason(
    invoice_file: IO[bytes],
) -> None:
    with pytest.raises(Refused, match="can't convert the PDF: KeyError: 'none'") as caught:
        await Converter().convert(invoice_file, "none")
    assert caught.value.status == 422


async def test_a_conversion_that_is_killed_again_and_again_is_422(invoice_file: IO[bytes]) -> None:
    before = children()
    conversion = asyncio.create_task(Converter().convert(invoice_file, "text"))

    def kill_it() -> bool:
        for pid in children() - before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return conversion.done()

    await wait_until(kill_it, "given up")
    with pytest.raises(Refused, match="the conversion was killed 2 times") as caught:
        await conversion
    assert caught.value.status == 422


async def test_a_conversion_that_is_killed_once_is_tried_again(invoice_file: IO[bytes]) -> None:
    before = children()
    conversion = asyncio.create_task(Converter().convert(invoice_file, "text"))
    await wait_until(lambda: children() - before, "a child")
    os.kill(min(children() - before), signal.SIGKILL)
    assert b"INV-2026-0042" in await conversion


def children() -> set[int]:
    pid = os.getpid()
    return {int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


async def test_the_command_holdfast_gateway_serves_it(tmp_path: Path) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["holdfast-gateway"].partition(":")
    code = f"from {module} import {function}; {function}()"
    process = Process("gateway", ["-c", code, "--port", "0"], tmp_path, {})
    try:
        address = await gateway_address(process)
        async with aiohttp.ClientSession() as session, session.get(f"{address}/health") as found:
            assert (await found.json())["status"] == "ok"
    finally:
        process.kill()


async def test_health_and_correlation_ids_are_answered(
    client: aiohttp.ClientSession, invoice_pdf: bytes
) -> None:
    async with client.get("/health") as response:
        assert await response.json() == {
            "status": "ok",
            "mappings": ["text", "layout", "invoice"],
            "running": 0,
        }
    headers = {"x-correlation-id": "abc"}
    for content in (invoice_pdf, b"no PDF"):
        async with client.post("/process", data=form(content), headers=headers) as response:
            assert response.headers["x-correlation-id"] == "abc"


async def test_a_conversion_that_takes_too_long_is_killed(invoice_file: IO[bytes]) -> None:
    converter = Converter(seconds_max=0.01)
    with pytest.raises(Refused, match=r"longer than 0\.01 s") as caught:
        await converter.convert(invoice_file, "text")
    assert (caught.value.status, converter.running) == (422, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has no limit of the address space")
def test_a_conversion_has_a_limit_of_memory_and_writes_no_files() -> None:
    code = (
        "from holdfast_systems.convert.gateway.child import limit_resources\n"
        "limit_resources()\n"
        f"try: bytearray({CONVERSION_MEMORY_BYTES_MAX})\n"
        "except MemoryError: print('limited')\n"
        "import resource\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_CPU)\n"
        "print('a signal that tells why' if soft < hard else 'SIGKILL')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "limited\na signal that tells why\n"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, True),
        ("", True),
        ("*/*", True),
        ("application/*;q=0.5", True),
        ("text/html, APPLICATION/XML", True),
        ("text/xml", True),
        ("application/json", False),
        ("application/xml;q=0", False),
        ("application/xml;q=0, */*", False),
        ("application/json, */*;q=0", False),
        ("application/xml;q=x", False),
    ],
)
def test_the_accept_header_is_understood(header: str | None, expected: bool) -> None:
    assert accepts_xml(header) is expected
