"""Run each conversion in its own child process, with limits: PDFs are untrusted programs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import IO

from holdfast_systems.convert.gateway import child
from holdfast_systems.convert.limits import (
    CONVERSION_KILLS_MAX,
    CONVERSION_SECONDS_MAX,
    CONVERSIONS_MAX,
    CONVERSIONS_WAITING_MAX,
    ERROR_MESSAGE_CHARS_MAX,
    XML_BYTES_MAX,
)

_BUSY_SECONDS = 5


class Refused(Exception):
    """Why the gateway rejects a request. The client gets the text in one line.

    400  not a PDF                          415  not a form
    406  the client does not accept XML     422  this PDF or this mapping can't be converted
    413  too large                          500, 503  a problem of the gateway itself
    """

    def __init__(self, status: int, text: str, retry_after_seconds: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_seconds = retry_after_seconds


class Converter:
    def __init__(self, seconds_max: float = CONVERSION_SECONDS_MAX) -> None:
        self._seconds_max = seconds_max
        self._slots = asyncio.Semaphore(CONVERSIONS_MAX)
        self._present = 0

    @property
    def running(self) -> int:
        return min(self._present, CONVERSIONS_MAX)

    async def convert(self, pdf: IO[bytes], mapping: str) -> bytes:
        """Convert a PDF, which the child reads from the file itself."""
        if self._present >= CONVERSIONS_MAX + CONVERSIONS_WAITING_MAX:
            raise Refused(503, "too many conversions are waiting", _BUSY_SECONDS)
        self._present += 1
        try:
            async with self._slots:
                return await self._convert(pdf, mapping)
        finally:
            self._present -= 1

    async def _convert(self, pdf: IO[bytes], mapping: str) -> bytes:
        for _ in range(CONVERSION_KILLS_MAX):
            code, xml, message = await self._run_child(pdf, mapping)
            if code == 0:
                return xml
            if code != -signal.SIGKILL:
                raise _refusal(code, message.decode("utf-8", "replace"))
        # The kernel kills processes to free memory. Once may be bad luck, but a PDF that is killed
        # every time is rejected, so that it can't block the gateway for all others.
        raise Refused(422, f"the conversion was killed {CONVERSION_KILLS_MAX} times")

    async def _run_child(self, pdf: IO[bytes], mapping: str) -> tuple[int, bytes, bytes]:
        descriptor = pdf.fileno()
        pdf.flush()
        os.lseek(descriptor, 0, os.SEEK_SET)
        process = await _start(mapping, descriptor)
        try:
            async with asyncio.timeout(self._seconds_max):
                xml, message = await _listen(process)
                return await process.wait(), xml, message
        except TimeoutError:
            raise _too_slow(self._seconds_max) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _start(mapping: str, pdf: int) -> Process:
    """Start a child without the environment's secrets and the parent's files."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        child.__name__,
        mapping,
        stdin=pdf,
        stdout=PIPE,
        stderr=PIPE,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )


async def _listen(process: Process) -> tuple[bytes, bytes]:
    assert process.stdout is not None
    assert process.stderr is not None
    xml, message = await asyncio.gather(
        _receive(process.stdout, XML_BYTES_MAX),
        _receive(process.stderr, ERROR_MESSAGE_CHARS_MAX),
    )
    return xml, message


async def _receive(output: asyncio.StreamReader, bytes_max: int) -> bytes:
    """Read up to `bytes_max` bytes and discard the rest, so that the child can end."""
    received = bytearray()
    while chunk := await output.read(64 * 1024):
        received += chunk[: bytes_max - len(received)]
    return bytes(received)


def _refusal(code: int, message: str) -> Refused:
    if code in (child.NOT_A_PDF, child.NOT_CONVERTED):
        return Refused(400 if code == child.NOT_A_PDF else 422, message.strip())
    if code == -signal.SIGXCPU:
        return _too_slow(CONVERSION_SECONDS_MAX)
    if code < 0:
        # The library crashes when it runs out of memory, or on some damaged files.
        name = signal.Signals(-code).name
        return Refused(422, f"can't convert the PDF: the conversion was ended by {name}")
    # The child failed before it read the PDF.
    return Refused(500, f"can't start the conversion: it exited with code {code}")


def _too_slow(seconds: float) -> Refused:
    return Refused(422, f"the conversion took longer than {seconds:g} s")
