"""A clock of a process's own, by the library libfaketime: wrong from the start, or stepping.

Only the time of day is faked. The monotonic clock stays real, as it does when a machine's clock is
set. The library replaces what threads wait with, too: Python's take turns three times as slowly,
and `time.sleep` fails. So leases must be long where none may be lost.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tests.support.services import missing


class Clock:
    """Shifts the time of day for the processes that are started with its environment."""

    def __init__(self, folder: Path, shift: str = "+0") -> None:
        self._library = faked_time_library() or missing("libfaketime is not installed")
        self._file = folder / "clock"
        self.set(shift)

    def set(self, shift: str) -> None:
        """Step to the real time plus this: `-1h`, `+30m`, `+0`. No process sees half of it."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{shift}\n")
        os.replace(new, self._file)

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }


def faked_time_library() -> Path | None:
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    return found[0] if found else None
