"""How long it took until the work that a fault hit was done, or begun again."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from chaos.faults import KILL_IN_CALM, Fault
from chaos.judge import Account, Finding
from chaos.site import LEASE_SECONDS

BOUND_SECONDS = LEASE_SECONDS + 6  # promise 5
BUSY_MIN = 2.0


class Recovery(NamedTuple):
    """Of all faults of one kind, in seconds."""

    kind: str
    times: int
    p50: float | None
    max: float | None


def recoveries(account: Account, faults: Sequence[Fault]) -> list[Recovery]:
    starts = sorted(entry.at for entry in account.of("start"))
    found = []
    for kind in sorted({fault.kind for fault in faults}):
        same = [fault for fault in faults if fault.kind == kind]
        seconds = [span for fault in same for span in _seconds(account, starts, fault)]
        p50 = median(seconds) if seconds else None
        found.append(Recovery(kind, len(same), p50, max(seconds, default=None)))
    return found


def find_late(account: Account, faults: Sequence[Fault]) -> Iterator[Finding]:
    """What was hit while nothing else was wrong has no excuse but a machine that others use."""
    late_seconds = BOUND_SECONDS * max(BUSY_MIN, os.getloadavg()[0] / (os.cpu_count() or 1))
    for fault in faults:
        for seconds in _seconds(account, [], fault) if fault.kind == KILL_IN_CALM else ():
            if seconds > late_seconds:
                text = f"jobs of a killed process started again after {seconds:.1f} s"
                yield Finding("wrong", 5, text)


def _seconds(account: Account, starts: list[float], fault: Fault) -> list[float]:
    """From the fault until the last job of its victims continued; without victims, from its end
    until the next start of a job. None if there was nothing to continue."""
    if fault.pids:
        return [at - fault.began for at in [max(_resumed(account, fault), default=0.0)] if at]
    index = bisect_right(starts, fault.ended)
    return [at - fault.ended for at in starts[index : index + 1]]


def _resumed(account: Account, fault: Fault) -> Iterable[float]:
    for runs in account.runs.values():
        for run in runs:
            start, end = run.start, run.end
            is_hit = start.pid in fault.pids and start.at < fault.began
            # Later attempts may be those of suspects, which wait for their own process.
            if not is_hit or (end and end.at < fault.began) or start.attempt > 1:
                continue
            later = [other.start.at for other in runs if other.start.fence > start.fence]
            times = [*later, *([end.at] if end and end.how == "ok" else [])]
            if times:
                yield min(times)
