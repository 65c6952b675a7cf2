"""What the machine is, and what processes use of it: read from /proc."""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1
PROC = Path("/proc")


def tree(pid: int) -> list[int]:
    """A process and all below it that are there at this moment."""
    found = [pid]
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in (PROC / str(pid) / "task").iterdir():
            for child in (thread / "children").read_text(encoding="ascii").split():
                found += tree(int(child))
    return found


def cpu_seconds(pid: int) -> float:
    """What a tree of processes has used, those included that have ended and were waited for."""
    return sum(map(_cpu_seconds, tree(pid)))


def _cpu_seconds(pid: int) -> float:
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = (PROC / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS_PER_SECOND
    return 0.0


def memory_bytes(pid: int, field: str = "VmHWM") -> int:
    """The peak memory of each process of a tree, or with VmRSS the current one."""
    found = 0
    for each in tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            for line in (PROC / str(each) / "status").read_text(encoding="utf-8").splitlines():
                if line.startswith(f"{field}:"):
                    found += int(line.split()[1]) * 1024
    return found


class Others:
    """How busy the machine is with processes outside this one's tree."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._used = self._used_by_others()

    def share(self) -> float:
        """Of all cores, since this object was made."""
        seconds = (time.monotonic() - self._began) * CORES
        return max(0.0, self._used_by_others() - self._used) / seconds if seconds else 0.0

    def _used_by_others(self) -> float:
        fields = (PROC / "stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
        user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen = fields[:8]
        busy = sum(map(int, (user, nice, system, interrupts, soft_interrupts, stolen)))
        return busy / TICKS_PER_SECOND - cpu_seconds(os.getpid())


def description() -> dict[str, str]:
    cpu = PROC / "cpuinfo"
    models = [
        line.partition(":")[2].strip()
        for line in cpu.read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": f"{CORES} x {models[0] if models else platform.machine()}",
        "memory": f"{memory / 1024**3:.0f} GiB",
        "system": f"Linux {platform.release()}",
        "python": platform.python_version(),
    }
