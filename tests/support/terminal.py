"""A terminal with a command in it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
from pathlib import Path

from tests.support.processes import WAIT_SECONDS


class Terminal:
    def __init__(
        self,
        command: list[str],
        folder: Path,
        environment: dict[str, str],
        kind: str = "xterm-256color",
        columns: int = 80,
    ) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(24, columns)
        self.modes_before = self.modes()
        dropped = ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE")
        kept = {key: value for key, value in environment.items() if key not in dropped}
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**kept, "TERM": kind},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def resize(self, lines: int, columns: int) -> None:
        """Resize it. The system signals the command."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def modes(self) -> list[object]:
        """The terminal's modes: echo, line buffering and the like."""
        return termios.tcgetattr(self._ours)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def write(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """Send what Ctrl-C sends, once the command has been idle for a while."""
        stat = Path(f"/proc/{self._process.pid}/stat")
        quiet = 0
        while quiet < 20:
            select.select([], [], [], 0.01)
            asleep = stat.read_text().rpartition(") ")[2].startswith("S")
            quiet = quiet + 1 if asleep else 0
        self._process.send_signal(signal.SIGINT)

    def read_until(self, part: str) -> str:
        text = ""
        while part not in text:
            piece = self._read()
            assert piece, f"it ended without {part!r}: {text}"
            text += piece
        return text

    def read_all(self) -> str:
        text = ""
        while piece := self._read():
            text += piece
        return text

    def end(self) -> int:
        code = self._process.wait(WAIT_SECONDS)
        os.close(self._ours)
        return code

    def _read(self) -> str:
        ready, _, _ = select.select([self._ours], [], [], WAIT_SECONDS)
        assert ready, "the terminal stays silent"
        try:
            return os.read(self._ours, 65536).decode()
        except OSError:  # Linux says so when the other side has gone.
            return ""
