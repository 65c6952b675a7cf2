"""The child processes that render. A rendering that gets out of hand is killed with its child."""

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

from holdfast_systems.documents.rendering import limits
from holdfast_systems.documents.rendering.errors import MissingGlyphs, RenderError, RenderStopped

LENGTH = struct.Struct(">I")
ANSWER = struct.Struct(">cI")
CHILD = Path(__file__).with_name("child.py")


class Children:
    """A few child processes, reused because starting one takes longer than rendering.

    They use Typst's own fonts and those in the folders `fonts`.
    """

    def __init__(self, fonts: Sequence[Path] = ()) -> None:
        self._fonts = fonts
        self._idle: list[_Child] = []
        self._slots = threading.Semaphore(limits.CHILDREN_MAX)
        self._lock = threading.Lock()
        atexit.register(self.close)

    def render(self, template: Path, data: bytes, seconds_max: float) -> bytes:
        with self._slots:
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
            missing = content.decode()
            if len(missing) > limits.MISSING_CHARS_MAX:
                missing = missing[: limits.MISSING_CHARS_MAX] + "…"
            raise MissingGlyphs(
                f"template {template.stem!r}: no installed font has {missing};"
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
        if child.renders >= limits.CHILD_RENDERS_MAX:
            child.kill()
            return
        with self._lock:
            self._idle.append(child)


class _Child:
    """One process. If we are killed, it ends: its input is closed, and its time is limited."""

    def __init__(self, fonts: Sequence[Path]) -> None:
        self.renders = 0
        arguments = [CHILD, limits.CHILD_MEMORY_BYTES_MAX, limits.CHILD_SECONDS_MAX, *fonts]
        self._process = subprocess.Popen(
            [sys.executable, "-P", *map(str, arguments)],
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
        # The timer also ends a child that doesn't read its input.
        timer = threading.Timer(seconds_max, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            for part in (str(template).encode(), data):
                self._requests.write(LENGTH.pack(len(part)) + part)
            self._requests.flush()
            kind, size = ANSWER.unpack(self._read(ANSWER.size))
            if size > limits.PDF_BYTES_MAX:
                raise RenderError(
                    f"the PDF has {size:,} bytes; the limit is {limits.PDF_BYTES_MAX:,}"
                )
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
        # Closing fails if part of a request is still unread.
        with suppress(BrokenPipeError):
            self._requests.close()

    def _read(self, size: int) -> bytes:
        content = self._answers.read(size)
        if len(content) < size:
            raise EOFError
        return content
