"""A disk in memory whose room can be taken away."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOM_BYTES = 1024**3


class Disk:
    """Only root can mount one; elsewhere it is a plain folder, and never full."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.can_be_full = os.geteuid() == 0 and self._mount("-t", "tmpfs", "chaos-disk")

    def fill(self) -> None:
        """Shrink it to the size of its contents."""
        status = os.statvfs(self.folder)
        used_bytes = (status.f_blocks - status.f_bfree) * status.f_frsize
        self._mount("-o", f"remount,size={used_bytes + status.f_frsize}")

    def make_room(self) -> None:
        self._mount("-o", f"remount,size={ROOM_BYTES}")

    def remove(self) -> None:
        if self.can_be_full:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def _mount(self, *arguments: str) -> bool:
        command = ["mount", *arguments, str(self.folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
