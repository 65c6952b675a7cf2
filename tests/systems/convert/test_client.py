"""Whatever answers in the gateway's place: it is one failure of one job, with a code."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import pytest

from holdfast import Transient
from holdfast_systems.convert.client import Answer, GatewayClient
from holdfast_systems.convert.files import Files, Pdf
from holdfast_systems.convert.limits import MIB
from tests.support.odd_answers import BROKEN, UNREADABLE, OddServer, answer, odd_server
from tests.systems.convert.scripted import ScriptedGateway, script

pytestmark = pytest.mark.heavy

JOB = UUID(int=7)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path, tmp_path)
    made.write_upload(JOB, [b"%PDF-1.7"])
    return made


async def asked(odd: OddServer, files: Files) -> Answer:
    async with aiohttp.ClientSession() as session:
        with files.open_upload(JOB) as pdf:
            return await GatewayClient(session, odd.url, 20.0).process(pdf, "text", JOB)


async def test_no_answer_is_more_than_a_failure(files: Files) -> None:
    async with odd_server() as odd:
        for odd.answer in (*BROKEN.values(), *UNREADABLE.values()):
            failure = (await asked(odd, files)).failure
            assert failure is not None
            assert failure.code in ("GW_5XX", "GW_4XX")


@pytest.mark.parametrize("host", ["a..b", ".", "a" * 64, "[::1", "a:99999", "a:x", "a\\b"])
async def test_a_url_that_nobody_can_ask_is_a_failure_too(host: str, files: Files) -> None:
    async with aiohttp.ClientSession() as session:
        client = GatewayClient(session, f"http://{host}", 20.0)
        with files.open_upload(JOB) as pdf:
            failure = (await client.process(pdf, "text", JOB)).failure
    assert (type(failure), failure and failure.code) == (Transient, "GW_5XX")


@pytest.mark.parametrize("kind", ["text/html", "text/plain", "application/xhtml+xml", "é"])
async def test_a_page_for_people_is_no_result_though_it_is_well_formed(
    kind: str, files: Files
) -> None:
    async with odd_server() as odd:
        odd.answer = answer(b"<html><p>Sign in</p></html>", kind)
        got = await asked(odd, files)
    assert got.failure is not None
    assert (got.status, got.failure.code, got.xml) == (200, "GW_5XX", b"")


@pytest.mark.parametrize("kind", ["application/xml", "text/xml; charset=utf-8", "image/svg+xml"])
async def test_what_says_that_it_is_xml_is_taken(kind: str, files: Files) -> None:
    async with odd_server() as odd:
        odd.answer = answer(b"<a/>", kind)
        assert await asked(odd, files) == Answer(200, b"<a/>")


class CountingFile(io.FileIO):
    """Notes how much of the file is asked for at once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: list[int] = []

    def readinto(self, buffer: Any, /) -> int:
        self.asked.append(len(buffer))
        return super().readinto(buffer)

    def readall(self) -> bytes:
        raise AssertionError("the whole file was read at once")


async def test_a_pdf_is_streamed_and_never_in_memory_as_a_whole(
    files: Files, gateway: ScriptedGateway
) -> None:
    large, size = UUID(int=8), 8 * MIB
    files.write_upload(large, [script(), *[b" " * MIB] * (size // MIB)])
    file = CountingFile(files.upload_path(large))
    async with aiohttp.ClientSession() as session:
        with Pdf(file) as pdf:
            got = await GatewayClient(session, gateway.url, 20.0).process(pdf, "text", large)
    assert (got.status, got.failure) == (200, None)
    assert len(file.asked) > size // MIB
    assert max(file.asked) <= MIB


class FailingFile(io.FileIO):
    """Reads some of the file, then the disk fails."""

    def readinto(self, buffer: Any, /) -> int:
        if self.tell():
            raise OSError(errno.EIO, "input/output error")
        return super().readinto(buffer[:4])


async def test_a_pdf_that_cannot_be_read_to_its_end_is_an_io_error(
    files: Files, gateway: ScriptedGateway
) -> None:
    async with aiohttp.ClientSession() as session:
        with Pdf(FailingFile(files.upload_path(JOB))) as pdf:
            got = await GatewayClient(session, gateway.url, 20.0).process(pdf, "text", JOB)
    assert got.failure is not None
    assert (type(got.failure), got.failure.code, got.status) == (Transient, "IO_ERROR", None)
    assert gateway.received == []
