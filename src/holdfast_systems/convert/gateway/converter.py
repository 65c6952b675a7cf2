"""Each conversion in a child process of its own, with limits: a PDF is somebody else's program."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress

from holdfast_systems.convert.gateway import child
from holdfast_systems.convert.gateway.refusals import Refused
from holdfast_systems.convert.limits import (
    CONVERSION_KILLS_MAX,
    CONVERSION_SECONDS_MAX,
    CONVERSIONS_MAX,
    CONVERSIONS_WAITING_MAX,
    ERROR_MESSAGE_CHARS_MAX,
    XML_BYTES_MAX,
)

_BUSY_SECONDS = 5


class Converter:
    def __init__(self, seconds_max: float = CONVERSION_SECONDS_MAX) -> None:
        self._seconds_max = seconds_max
        self._slots = asyncio.Semaphore(CONVERSIONS_MAX)
        self._present = 0

    @property
    def running(self) -> int:
        return min(self._present, CONVERSIONS_MAX)

    async def convert(self, pdf: bytes, mapping: str) -> bytes:
        if self._present >= CONVERSIONS_MAX + CONVERSIONS_WAITING_MAX:
            raise Refused(503, "too many conversions wait", _BUSY_SECONDS)
        self._present += 1
        try:
            async with self._slots:
                return await self._convert(pdf, mapping)
        finally:
            self._present -= 1

    async def _convert(self, pdf: bytes, mapping: str) -> bytes:
        for _ in range(CONVERSION_KILLS_MAX):
            code, xml, told = await self._run_child(pdf, mapping)
            if code == 0:
                return xml
            if code != -signal.SIGKILL:
                raise _refusal(code, told.decode("utf-8", "replace"))
        # The kernel frees memory that way. Once may be bad luck; a PDF that meets it each time is
        # refused, so that it can't keep the gateway's clients from all others.
        raise Refused(422, f"the conversion was killed {CONVERSION_KILLS_MAX} times")

    async def _run_child(self, pdf: bytes, mapping: str) -> tuple[int, bytes, bytes]:
        process = await _start(mapping)
        try:
            async with asyncio.timeout(self._seconds_max):
                xml, told = await _talk(process, pdf)
                return await process.wait(), xml, told
        except TimeoutError:
            raise _too_slow(self._seconds_max) from None
        finally:
            await _end(process)


async def _start(mapping: str) -> Process:
    """Start a child that knows nothing: no secrets of the environment, no files of the parent."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        child.__name__,
        mapping,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )


async def _talk(process: Process, pdf: bytes) -> tuple[bytes, bytes]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    _, xml, told = await asyncio.gather(
        _send(process.stdin, pdf),
        _receive(process.stdout, XML_BYTES_MAX),
        _receive(process.stderr, ERROR_MESSAGE_CHARS_MAX),
    )
    return xml, told


async def _send(stdin: asyncio.StreamWriter, content: bytes) -> None:
    # A child that does not want the rest says why on its stderr.
    with suppress(BrokenPipeError, ConnectionResetError):
        stdin.write(content)
        await stdin.drain()
        stdin.close()
        await stdin.wait_closed()


async def _receive(output: asyncio.StreamReader, bytes_max: int) -> bytes:
    """Read up to so many bytes, and throw away what is more, so that the child can end."""
    received = bytearray()
    while chunk := await output.read(64 * 1024):
        received += chunk[: bytes_max - len(received)]
    return bytes(received)


async def _end(process: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _refusal(code: int, told: str) -> Refused:
    if code in (child.NO_PDF, child.NOT_CONVERTED):
        return Refused(400 if code == child.NO_PDF else 422, told.strip())
    if code == -signal.SIGXCPU:
        return _too_slow(CONVERSION_SECONDS_MAX)
    if code < 0:
        # How the library ends that finds no memory, or that a damaged file has misled.
        name = signal.Signals(-code).name
        return Refused(422, f"the PDF can't be converted: the conversion died of {name}")
    # It did not come as far as the PDF.
    return Refused(500, f"the conversion could not be started: it ended with the code {code}")


def _too_slow(seconds: float) -> Refused:
    return Refused(422, f"it took longer than {seconds:g} s")
