"""A terminal of 80 columns: what a command shows in it, and when."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import pyte
from pyte.screens import Char

COLUMNS = 80
PROMPT = "\x1b[32m$\x1b[0m "
DIM = re.compile(r"\x1b\[2m")
GREY = "\x1b[90m"  # which the emulator knows, unlike dim

Line = tuple[Char, ...]


class Frame(NamedTuple):
    """What the screen shows, and for how many seconds."""

    lines: tuple[Line, ...]
    seconds: float


class Recording:
    """Runs commands in one terminal, one after the other, as a person would."""

    def __init__(self, folder: Path, environment: dict[str, str], lines: int) -> None:
        self.frames: list[Frame] = []
        self._folder = folder
        self._environment = environment
        self._lines = lines
        self._screen = pyte.Screen(COLUMNS, lines)
        self._screen.set_mode(pyte.modes.LNM)
        self._stream = pyte.Stream(self._screen)

    def clear(self) -> None:
        self._screen.reset()
        self._screen.set_mode(pyte.modes.LNM)

    def type(self, words: str) -> None:
        self._stream.feed(PROMPT + words)
        self.hold(0.8)
        self._stream.feed("\n")

    def hold(self, seconds: float) -> None:
        """Show the screen as it is for this long."""
        lines = tuple(
            tuple(self._screen.buffer[row][column] for column in range(COLUMNS))
            for row in range(self._lines)
        )
        self.frames.append(Frame(deepcopy(lines), seconds))

    def run(self, words: Sequence[str], shown_seconds: float) -> str:
        """Run a command to its end and show its output; return that as text."""
        self.type(" ".join(["holdfast", *words]))
        session = Session(self, words)
        session.watch_to_end()
        self.hold(shown_seconds)
        return "\n".join(line.rstrip() for line in self._screen.display)

    def start(self, words: Sequence[str]) -> Session:
        """Start a command that is driven by keys."""
        return Session(self, words)

    def feed(self, text: str) -> None:
        self._stream.feed(text)


class Session:
    def __init__(self, recording: Recording, words: Sequence[str]) -> None:
        self._recording = recording
        self._ours, theirs = pty.openpty()
        size = struct.pack("HHHH", recording._lines, COLUMNS, 0, 0)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli.main", *words],
            cwd=recording._folder,
            env={**recording._environment, "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def watch(self, seconds: float, every_seconds: float) -> None:
        """Let it run, and record the screen at intervals."""
        end = time.monotonic() + seconds
        following = time.monotonic() + every_seconds
        while time.monotonic() < end:
            self._read(min(end, following) - time.monotonic())
            if time.monotonic() >= following:
                self._recording.hold(every_seconds)
                following += every_seconds

    def wait_for(self, seconds: float) -> None:
        """Let it run without recording."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._read(end - time.monotonic())

    def watch_to_end(self) -> None:
        while self._read(30.0):
            pass
        self._process.wait(10)
        os.close(self._ours)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(0.0, seconds))
        if not ready:
            return False
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux says so when the other side has gone.
            return False
        self._recording.feed(DIM.sub(GREY, data.decode(errors="replace")))
        return bool(data)
