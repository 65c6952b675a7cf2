"""The memory of a process, and its limits."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_STATM = Path("/proc/self/statm")
_CGROUP = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")


def used_bytes() -> int:
    """The memory of this process now or, where the system doesn't say, at its peak."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextmanager
def limited(bytes_max: int | None) -> Iterator[None]:
    """Make allocations above the limit fail with a MemoryError inside the block."""
    if bytes_max is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    least = bytes_max if hard == resource.RLIM_INFINITY else min(bytes_max, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (least, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def count_oom_kills() -> int:
    """How often the kernel ran out of memory and killed in this cgroup; 0 if unknown."""
    try:
        for line in _events_file().read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    except (OSError, ValueError):
        pass
    return 0


@cache
def _events_file() -> Path:
    """The file with the counter, in cgroups version 2 or 1."""
    for line in _CGROUP.read_text().splitlines():
        _, controllers, place = line.split(":", 2)
        if not controllers:
            return _CGROUPS / place.lstrip("/") / "memory.events"
        if "memory" in controllers.split(","):
            return _CGROUPS / "memory" / place.lstrip("/") / "memory.oom_control"
    raise FileNotFoundError(_CGROUP)
