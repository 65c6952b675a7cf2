"""Functions for child processes, which import this module again."""

from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import Permanent, RetryAfter
from tests.support import hostile
from tests.support.processes import poll_blocking
from tests.worker import child_jobs


@dataclass
class Place:
    name: str
    pid: int = 0
    parent: int = 0


def look(place: Place, *, suffix: str = "") -> Place:
    return Place(place.name + suffix, os.getpid(), os.getppid())


def pid() -> int:
    return os.getpid()


async def wait() -> None: ...


def environment() -> dict[str, str]:
    return dict(os.environ)


class Twofold(Exception):
    """An error whose arguments are not those that it was made of."""

    def __init__(self, user: str, *, number: int) -> None:
        super().__init__(f"user {user}")
        self.number = number


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("not to be carried")
        self.lock = threading.Lock()


ERRORS: dict[str, BaseException] = {
    "Twofold": Twofold("ann", number=7),
    "ValueError": ValueError("no"),
    "UnicodeDecodeError": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    "FileNotFoundError": FileNotFoundError(2, "No such file", "here.txt"),
    "GONE": Permanent("no", code="GONE"),
    "RETRY_AFTER": RetryAfter(5),
}
STRANGERS: dict[str, BaseException] = {
    "Unpicklable": Unpicklable(),
    "SystemExit": SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt(),
}


def fail(kind: str) -> None:
    raise {**ERRORS, **STRANGERS, **hostile.ERRORS}[kind]


def crash(reason: str) -> None:
    child_jobs.CRASHES[reason]()
    threading.Event().wait()


def give(size: int) -> bytes:
    return b"x" * size


def give_unpicklable() -> Any:
    return threading.Lock()


def allocate(megabytes: int) -> int:
    return len(bytearray(megabytes * 1_000_000)) and os.getpid()


def hang(folder: Path) -> None:
    """Tell its process, then hang without ever letting another thread run."""
    (folder / str(os.getpid())).touch()
    ctypes.PyDLL(None).pause()


def meet(folder: Path, number: int) -> int:
    """Wait until so many are here; return how many there are."""
    (folder / str(os.getpid())).touch()
    poll_blocking(lambda: len(list(folder.iterdir())) >= number)
    return len(list(folder.iterdir()))
