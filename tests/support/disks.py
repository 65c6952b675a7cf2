"""A small disk that a test can fill."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.services import missing

DISK_BYTES = 4 * 1024**2


class SmallDisk:
    """A disk in memory, and a file that fills it."""

    def __init__(self, folder: Path) -> None:
        self.database = str(folder / "jobs.db")
        self._folder = folder
        self._ballast = folder / "ballast"

    def fill(self, spare_bytes: int = 0) -> None:
        with self._ballast.open("wb", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(4096))
        os.truncate(self._ballast, self._ballast.stat().st_size - spare_bytes)

    def make_room(self) -> None:
        self._ballast.unlink()

    def protect(self) -> None:
        """Make it read-only."""
        subprocess.run(["mount", "-o", "remount,ro", str(self._folder)], check=True)


@contextmanager
def small_disk(parent: Path, size_bytes: int = DISK_BYTES) -> Iterator[SmallDisk]:
    folder = parent / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "small-disk", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        missing("a small disk can't be mounted here")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
