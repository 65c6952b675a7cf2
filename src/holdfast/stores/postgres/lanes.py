"""Lanes: where the claims of one kind begin to walk in each.

A lane is a (queue, priority) in the claim's index. Its front is where its first job waits. Every
claimed job leaves a dead entry before the front, which vacuum can't clear while an old transaction
is open. Then the front is far: a walk to it gets slower with every job.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

FULL_CLAIMS_BEFORE_REMEMBERING: Final = 5
FAR_ENTRIES: Final = 1000  # about a fifth of a millisecond
LANE_ENTRIES: Final = 4  # what a scan reads in a lane where nothing is dead
LANES_MAX: Final = 2000
LATE_MAX: Final = 20  # fewer are claimed by their ids; for more, the walk goes back to them
SCAN_SECONDS: Final = 5.0  # between two scans while the fronts are near
SCAN_SHARE: Final = 50  # scans take at most 1/50 of the time
LOOK_BACK_SECONDS: Final = 1.0  # a job may be due that long before its transaction commits

Lane = tuple[str, int]


class Position(NamedTuple):
    """A key in a lane's index."""

    run_at: datetime
    id: UUID


class Start(NamedTuple):
    """Where the next walk of a lane begins: at the position, or a moment before the time of the
    look, whichever comes first. The look found nothing for us before the position; without one, it
    found nothing at all."""

    position: Position | None
    looked_at: float | None

    def seconds_ago(self, now: float) -> float | None:
        return None if self.looked_at is None else now - self.looked_at + LOOK_BACK_SECONDS


class Scan(NamedTuple):
    """The lanes, seen from their fronts."""

    began_at: float
    waits_since: Mapping[Lane, datetime]
    late: Mapping[Lane, Sequence[Position]]  # the first jobs for us, due before the last moment
    is_far: bool

    @property
    def late_jobs(self) -> int:
        return sum(map(len, self.late.values()))

    def late_ids(self) -> list[UUID]:
        """Of the best priority first."""
        lanes = sorted(self.late, key=lambda lane: lane[1])
        return [position.id for lane in lanes for position in self.late[lane]]

    @classmethod
    def of(cls, row: Any, began_at: float) -> Scan:
        lanes = list(zip(row["queues"], row["priorities"], strict=True))
        late: dict[Lane, list[Position]] = defaultdict(list)
        names = ("late_queues", "late_priorities", "late_run_at", "late_ids")
        for queue, priority, run_at, id in zip(*(row[name] for name in names), strict=True):
            late[queue, priority].append(Position(run_at, id))
        usual = LANE_ENTRIES * len(lanes) + len(row["late_ids"])
        waits_since = dict(zip(lanes, row["waits_since"], strict=True))
        return cls(began_at, waits_since, late, row["entries"] - usual > FAR_ENTRIES)


class Track:
    """How far the claims for one set of names, queues and tenants got in each lane."""

    def __init__(self, now: float, noted: Mapping[Lane, datetime]) -> None:
        self.last_queue = ""
        self.lanes: dict[Lane, Start] | None = None  # None: claims walk from the fronts
        self.is_far = bool(noted)
        if noted:
            first = UUID(int=0)
            self.lanes = {
                lane: Start(Position(run_at, first), now) for lane, run_at in noted.items()
            }
        self.scanning: asyncio.Task[None] | None = None
        self.left_behind: list[UUID] = []
        self._served: dict[Lane, None] = {}
        self._scan: Scan | None = None
        self._scanned_at = now
        self._scan_seconds = 0.0
        self._full_claims = 0

    @property
    def _is_draining(self) -> bool:
        return self._full_claims >= FULL_CLAIMS_BEFORE_REMEMBERING

    def in_turn(self) -> list[tuple[Lane, Start]]:
        """Order the lanes by priority, then by queue, starting after the last one served."""
        lanes = (self.lanes or {}).items()
        return sorted(lanes, key=lambda each: self._turn(*each[0]))

    def _turn(self, queue: str, priority: int) -> tuple[int, bool, str]:
        return priority, queue <= self.last_queue, queue

    def took(self, rows: Sequence[Any], looked_at: float | None) -> None:
        """Begin after the last row taken in each lane; the rows are in order. Without `looked_at`,
        the claim was full: then what became due in the last moment can wait for a scan."""
        self._full_claims = self._full_claims + 1 if looked_at is None else 0
        if rows:
            self.last_queue = rows[-1]["queue"]
            self._served[self.last_queue, rows[-1]["priority"]] = None
        if self.lanes is None:
            return
        last = {(row["queue"], row["priority"]): row for row in rows}
        for lane, row in last.items():
            self.lanes.pop(lane, None)  # those served last are kept longest
            self.lanes[lane] = Start(Position(row["run_at"], row["id"]), looked_at)
        _forget_first(self.lanes)

    def took_all(self, looked_at: float, stopped: Collection[str]) -> None:
        """Nothing is left in any lane, unless claims were stopped there."""
        if self.lanes is not None:
            for lane in self.lanes:
                if lane[0] not in stopped:
                    self.lanes[lane] = Start(None, looked_at)

    def forget(self) -> None:
        """Walk from the fronts again."""
        self.lanes = None
        self.left_behind = []
        self._full_claims = 0

    def scan_is_due(self, now: float) -> bool:
        rest_seconds = SCAN_SHARE * self._scan_seconds
        if self.lanes is None and not self._is_draining:
            rest_seconds = max(rest_seconds, SCAN_SECONDS)
        return self.scanning is None and now >= self._scanned_at + rest_seconds

    def scanned(self, scan: Scan | None, began_at: float, now: float) -> None:
        """Note what a scan found, for the next claim. One that failed found nothing."""
        self.scanning = None
        self._scanned_at = now
        self._scan_seconds = now - began_at
        self._scan = scan or self._scan

    def heed_scan(self) -> None:
        """Begin where the last scan says. Call this only between two claims: the rows of one that
        is under way could move the lanes beyond what the scan found."""
        scan, self._scan = self._scan, None
        if scan is None:
            return
        self.is_far = scan.is_far
        if not scan.is_far and not self._is_draining:
            self.forget()
            return
        known = (*self._served, *(self.lanes or ()), *scan.waits_since)
        self.lanes = dict.fromkeys(known, Start(None, scan.began_at))
        _forget_first(self._served)
        self.left_behind = []
        if scan.is_far and scan.late_jobs < LATE_MAX:
            self.left_behind = scan.late_ids()
        else:
            for lane, late in scan.late.items():
                self.lanes[lane] = Start(late[0], scan.began_at)

    def notes(self, scan: Scan) -> Mapping[Lane, datetime | None]:
        """Where a claim that knows nothing could begin in each lane; None stands for now."""
        return dict.fromkeys(self.lanes or ()) | dict(scan.waits_since)


def _forget_first(lanes: dict[Lane, Any]) -> None:
    for lane in list(lanes)[:-LANES_MAX]:
        del lanes[lane]
