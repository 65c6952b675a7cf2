"""Rendering outside of jobs: processes with a clean environment, which are kept and reused."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import msgspec

from holdfast_systems.documents.rendering import limits
from holdfast_systems.documents.rendering.child import Answer, Question, read_answer
from holdfast_systems.documents.rendering.errors import MissingGlyphs, RenderError, RenderStopped
from holdfast_systems.documents.rendering.fonts import font_folders
from holdfast_systems.documents.rendering.render import TEMPLATES, encoded, template_path

_LENGTH_BYTES = 4
_COMMAND = ("-m", "holdfast_systems.documents.rendering.child")
_ERRORS = {each.default_code: each for each in (RenderError, MissingGlyphs)}


class Renderers:
    """At most `processes_max` processes, each with one document at a time."""

    def __init__(
        self,
        processes_max: int,
        *,
        templates: Path = TEMPLATES,
        seconds_max: float = limits.RENDER_SECONDS_MAX,
    ) -> None:
        self._free = asyncio.Semaphore(processes_max)
        self._idle: list[asyncio.subprocess.Process] = []
        self._templates = templates
        self._seconds_max = seconds_max

    async def __aenter__(self) -> Renderers:
        """Start the first process now: the first document should not wait for it."""
        self._idle.append(await _start())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        while self._idle:
            await _kill(self._idle.pop())

    async def render(self, template: str, data: Mapping[str, object]) -> bytes:
        """Make a PDF. A process that takes too long or dies is replaced."""
        question = Question(template_path(self._templates, template), encoded(data), font_folders())
        async with self._free:
            process = self._idle.pop() if self._idle else await _start()
            try:
                async with asyncio.timeout(self._seconds_max):
                    answer = await _ask(process, msgspec.msgpack.encode(question, enc_hook=str))
            except BaseException as error:
                await _kill(process)
                if isinstance(error, TimeoutError | OSError | EOFError):
                    raise RenderStopped(f"template {template!r}: {_reason(error)}") from error
                raise
            self._idle.append(process)
        if answer.pdf is None:
            raise _ERRORS.get(answer.code, RenderStopped)(answer.text)
        return answer.pdf


def clean_environment() -> dict[str, str]:
    """What a child needs to start. The environment of the service has secrets."""
    return {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": os.pathsep.join(sys.path)}


async def _start() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *_COMMAND,
        env=clean_environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def _ask(process: asyncio.subprocess.Process, question: bytes) -> Answer:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(len(question).to_bytes(_LENGTH_BYTES, "big") + question)
    await process.stdin.drain()
    length = int.from_bytes(await process.stdout.readexactly(_LENGTH_BYTES), "big")
    return read_answer(await process.stdout.readexactly(length))


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


def _reason(error: BaseException) -> str:
    return "it took too long" if isinstance(error, TimeoutError) else "its process died"
