"""The processes that render: a rendering that runs wild is ended with its process."""

from __future__ import annotations

import atexit
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from holdfast_systems.documents.rendering.errors import (
    MissingGlyphs,
    RenderError,
    RenderStopped,
)
from holdfast_systems.documents.rendering.limits import (
    CHILD_MEMORY_BYTES_MAX,
    CHILD_RENDERS_MAX,
    CHILD_SECONDS_MAX,
    CHILDREN_MAX,
    MISSING_CHARS_MAX,
    PDF_BYTES_MAX,
)

LENGTH = struct.Struct(">I")
ANSWER = struct.Struct(">cI")
CHILD = Path(__file__).with_name("child.py")


class Children:
    """A few processes that are kept for the next rendering, because to start one takes longer."""

    def __init__(self, fonts: Sequence[Path] = ()) -> None:
        """Beside Typst's own fonts there are those of these folders."""
        self._fonts = fonts
        self._idle: list[_Child] = []
        self._places = threading.Semaphore(CHILDREN_MAX)
        self._lock = threading.Lock()
        atexit.register(self.close)

    def render(self, template: Path, data: bytes, seconds_max: float) -> bytes:
        with self._places:
            child = self._take()
            try:
                kind, content = child.ask(template, data, seconds_max)
            except BaseException:
                child.kill()
                raise
            self._give_back(child)
        if kind == b"E":
            raise RenderError(f"template {template.stem!r}: {content.decode()}")
        if kind == b"G":
            raise MissingGlyphs(
                f"template {template.stem!r}: no installed font has {_shown(content.decode())};"
                " install fonts, or list their folders in DOCUMENTS_FONTS"
            )
        return content

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().kill()

    def _take(self) -> _Child:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.is_alive:
                    return child
                child.kill()
            return _Child(self._fonts)

    def _give_back(self, child: _Child) -> None:
        if child.renders >= CHILD_RENDERS_MAX:
            child.kill()
            return
        with self._lock:
            self._idle.append(child)


class _Child:
    """One process. It ends when its input does, and no rendering goes on for longer than it may,
    so none is left when we are killed."""

    def __init__(self, fonts: Sequence[Path]) -> None:
        self.renders = 0
        limits = [str(CHILD_MEMORY_BYTES_MAX), str(CHILD_SECONDS_MAX)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(CHILD), *limits, *map(str, fonts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        self._answers = self._process.stdout

    def ask(self, template: Path, data: bytes, seconds_max: float) -> tuple[bytes, bytes]:
        self.renders += 1
        deadline = time.monotonic() + seconds_max
        # It also ends a process that does not read what it is asked.
        timer = threading.Timer(seconds_max, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            for part in (str(template).encode(), data):
                self._requests.write(LENGTH.pack(len(part)) + part)
            self._requests.flush()
            kind, size = ANSWER.unpack(self._read(ANSWER.size))
            if size > PDF_BYTES_MAX:
                raise RenderError(f"the PDF has {size:,} bytes; {PDF_BYTES_MAX:,} are allowed")
            return kind, self._read(size)
        except (BrokenPipeError, EOFError):
            message = f"the process that rendered template {template.stem!r} was killed"
            if time.monotonic() >= deadline:
                message = f"template {template.stem!r} took longer than {seconds_max:g} s"
            raise RenderStopped(message) from None
        finally:
            timer.cancel()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._answers.close()
        # What it has not read of a request can't be written any more.
        with suppress(BrokenPipeError):
            self._requests.close()

    def _read(self, size: int) -> bytes:
        content = self._answers.read(size)
        if len(content) < size:
            raise EOFError
        return content


def _shown(characters: str) -> str:
    if len(characters) <= MISSING_CHARS_MAX:
        return characters
    return characters[:MISSING_CHARS_MAX] + "…"
