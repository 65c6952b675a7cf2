"""How long it took until the work that a fault hit was done again, or begun again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from chaos.faults import Fault
from chaos.judge import Account


class Recovery(NamedTuple):
    """Of all faults of one kind. `alone_max` leaves out the time that other faults took."""

    kind: str
    times: int
    p50: float | None
    max: float | None
    alone_max: float | None


def recoveries(account: Account, faults: Sequence[Fault]) -> list[Recovery]:
    starts = sorted(entry.at for entry in account.of("start"))
    found = []
    for kind in sorted({fault.kind for fault in faults}):
        same = [fault for fault in faults if fault.kind == kind]
        seconds, alone = [], []
        for fault in same:
            since, until = _span(account, starts, fault)
            if until is not None:
                seconds.append(until - since)
                alone.append(_undisturbed(since, until, fault, faults))
        found.append(
            Recovery(
                kind,
                len(same),
                median(seconds) if seconds else None,
                max(seconds, default=None),
                max(alone, default=None),
            )
        )
    return found


def _span(account: Account, starts: list[float], fault: Fault) -> tuple[float, float | None]:
    """From the fault until the last job of its victims went on; without victims, from its end until
    anybody started anything."""
    if not fault.pids:
        index = bisect_right(starts, fault.ended)
        return fault.ended, starts[index] if index < len(starts) else None
    return fault.began, max(_resumed(account, fault), default=None)


def _resumed(account: Account, fault: Fault) -> Iterable[float]:
    for runs in account.runs.values():
        for run in runs:
            start, end = run.start, run.end
            is_hit = start.pid in fault.pids and start.at < fault.began
            # Later attempts may belong to suspects, who wait for a process of their own.
            if not is_hit or (end and end.at < fault.began) or start.attempt > 1:
                continue
            later = [other.start.at for other in runs if other.start.fence > start.fence]
            times = [*later, *([end.at] if end and end.how == "ok" else [])]
            if times:
                yield min(times)


def _undisturbed(since: float, until: float, own: Fault, faults: Iterable[Fault]) -> float:
    """So much of this time was free of other faults."""
    spans = sorted(
        (max(fault.began, since), min(fault.ended, until)) for fault in faults if fault is not own
    )
    free, at = 0.0, since
    for began, ended in spans:
        if ended > began:
            free += max(0.0, began - at)
            at = max(at, ended)
    return free + max(0.0, until - at)
