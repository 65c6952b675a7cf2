"""What handlers and clients record themselves, outside the database under test.

Every line is one append, so it is whole even if its writer is killed right after it. Times are
those of the machine's monotonic clock: all processes share it, and it can't be set.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

FOLDER = "CHAOS_FOLDER"
NAME = "ledger"
_open: dict[str, int] = {}


class Entry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line. A run of a handler has a job and a fence; a wish of a client has a request."""

    what: str
    at: float
    pid: int
    # start, end: a run of a handler, and how it ended
    job: str = ""
    name: str = ""
    queue: str = ""
    fence: int = 0
    attempt: int = 0
    how: str = ""
    # ask, told, undone: a client's request, its answer, or that the client rolled it back
    request: str = ""
    jobs: int = 0
    delay_seconds: float = 0.0
    key: str = ""
    ids: list[str] = []


def write(what: str, **fields: Any) -> None:
    entry = Entry(what=what, at=time.monotonic(), pid=os.getpid(), **fields)
    os.write(_descriptor(), msgspec.json.encode(entry) + b"\n")


def _descriptor() -> int:
    path = os.path.join(os.environ[FOLDER], NAME)
    if path not in _open:
        _open[path] = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    return _open[path]


class Ledger:
    """Reads along what the others write."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._bytes_read = 0
        self.entries: list[Entry] = []
        self.counts: defaultdict[str, int] = defaultdict(int)

    def read(self) -> list[Entry]:
        """Answer the lines that are new."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._bytes_read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._bytes_read += len(whole)
        new = [msgspec.json.decode(line, type=Entry) for line in whole.splitlines()]
        for entry in new:
            self.counts[entry.what] += 1
        self.entries += new
        return new


@dataclass
class Run:
    """A run of a handler, as the ledger has it; the end is missing if its process died."""

    start: Entry
    end: Entry | None = None


def runs_by_job(entries: Iterable[Entry]) -> dict[str, list[Run]]:
    found: defaultdict[str, list[Run]] = defaultdict(list)
    open_runs: dict[tuple[str, int, int], Run] = {}
    for entry in entries:
        key = (entry.job, entry.fence, entry.pid)
        if entry.what == "start":
            open_runs[key] = Run(entry)
            found[entry.job].append(open_runs[key])
        elif entry.what == "end" and key in open_runs:
            open_runs[key].end = entry
    return found


def open_runs(entries: Iterable[Entry]) -> list[Run]:
    return [run for runs in runs_by_job(entries).values() for run in runs if run.end is None]
