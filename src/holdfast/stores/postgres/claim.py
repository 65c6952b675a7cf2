"""Claims: which lanes to walk, and from where.

A lane is a (queue, priority). A claim steps through the lanes with due jobs and takes from the
best; queues of equal priority take turns. The walk starts at the front of the index, where every
claimed job leaves a dead entry. Vacuum clears these, but not while an old transaction is open: then
the walk gets slower with every job. So when several claims in a row are full, or slow, the claimer
remembers how far it got in each lane and continues from there.

A scan looks at the front of every lane for what came in behind that position: a late commit, an
earlier due time, a new lane, an unparked job. Scans take at most a twentieth of the time. A claim
that comes back short also causes one, if the last one was quick. A scan has to pass the dead
entries, so it may take seconds; then it runs beside the claims.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from holdfast.domain.errors import HoldfastError
from holdfast.domain.job import Claimed
from holdfast.domain.limits import PROBE_LOOK_MAX, PROBES_MAX
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres.caps import Caps
from holdfast.stores.postgres.rows import Fetch, to_claimed
from holdfast.stores.protocol import Claim

FULL_CLAIMS_BEFORE_REMEMBERING = 5
SLOW_CLAIMS_BEFORE_REMEMBERING = 5  # one may be slow because the machine is busy
SLOW_CLAIM_SECONDS = 0.05
QUICK_SCAN_SECONDS = 0.005
SCAN_AWAITED_SECONDS = 0.05
SCAN_SHARE = 20  # scans take at most 1/20 of the time
TRACKS_MAX = 64

_IN_ORDER = itemgetter("priority", "run_at", "id")


class Position(NamedTuple):
    """A key in a lane's index. Everything before it was claimed, or is not for us."""

    run_at: datetime
    id: UUID


class Track:
    """How far the claims for one set of names, queues and tenants got in each lane."""

    def __init__(self) -> None:
        self.full_claims = 0
        self.slow_claims = 0
        self.last_queue = ""
        self.lanes: dict[tuple[str, int], Position] | None = None
        self.scanned_at = 0.0
        self.scan_seconds = 0.0
        self.scanning: asyncio.Task[None] | None = None
        self.fronts: dict[tuple[str, int], Position] = {}  # as the last scan found them

    def in_turn(self) -> list[tuple[str, int, datetime, UUID]]:
        """Order the lanes by priority, then by queue, starting after the last one served."""
        lanes = self.lanes or {}
        keys = sorted(lanes, key=lambda lane: (lane[1], lane[0] <= self.last_queue, lane[0]))
        return [(queue, priority, *lanes[queue, priority]) for queue, priority in keys]

    def remember(self, rows: Sequence[Any]) -> None:
        """Start to continue from where these rows were taken."""
        self.lanes, self.fronts = {}, {}
        self.scanned_at = self.scan_seconds = 0.0
        self.advance(rows)

    def advance(self, rows: Sequence[Any]) -> None:
        """Move to the last row taken in each lane; the rows are in order."""
        if rows:
            self.last_queue = rows[-1]["queue"]
        if self.lanes is not None:
            last = {(row["queue"], row["priority"]): row for row in rows}
            for lane, row in last.items():
                self.lanes[lane] = Position(row["run_at"], row["id"])

    def go_back(self) -> None:
        """Continue from what a scan found. Call this only after a claim that ran beside the scan
        has advanced, or that would skip what the scan found."""
        # A lane without waiting jobs keeps its position: the next job comes after it.
        self.lanes = (self.lanes or {}) | self.fronts
        self.fronts = {}

    def scan_is_due(self, now: float) -> bool:
        return self.scanning is None and now - self.scanned_at >= SCAN_SHARE * self.scan_seconds

    def should_remember(self, is_full: bool, is_slow: bool) -> bool:
        """Count this claim. Were several claims in a row full, or slow?"""
        self.full_claims = self.full_claims + 1 if is_full else 0
        self.slow_claims = self.slow_claims + 1 if is_slow else 0
        return (
            self.full_claims >= FULL_CLAIMS_BEFORE_REMEMBERING
            or self.slow_claims >= SLOW_CLAIMS_BEFORE_REMEMBERING
        )

    def forget(self) -> None:
        self.lanes = None
        self.full_claims = self.slow_claims = 0


class Claimer:
    def __init__(self, fetch: Fetch, caps: Caps, seam: Seam) -> None:
        self._fetch = fetch
        self._caps = caps
        self._seam = seam
        self._tracks: dict[tuple[object, ...], Track] = {}
        self._scans: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for scan in self._scans:
            scan.cancel()
        await asyncio.gather(*self._scans, return_exceptions=True)

    async def claim(self, claim: Claim) -> list[Claimed]:
        if claim.job_id is not None:
            found = await self._caps.claim("claim_named", claim, job_id=claim.job_id)
            return [to_claimed(row) for row in found]
        track = self._track(claim)
        if track.lanes is None:
            rows = await self._claim_from_front(claim, track)
        else:
            rows = await self._claim_onwards(claim, track)
        return [to_claimed(row) for row in rows]

    async def claim_by_id(self, job_id: UUID, worker: str, lease_seconds: float) -> Claimed | None:
        anywhere = Claim(worker, 1, lease_seconds, names=())
        rows = await self._caps.claim("claim_by_id", anywhere, job_id=job_id)
        return to_claimed(rows[0]) if rows else None

    async def claim_suspect(self, claim: Claim) -> Claimed | None:
        rows = await self._caps.claim("claim_suspect", claim._replace(alone=True))
        return to_claimed(rows[0]) if rows else None

    async def claim_probes(self, claim: Claim) -> list[Claimed]:
        limit = min(claim.limit, PROBES_MAX)
        rows = await self._caps.claim("claim_probes", claim, limit=limit, look_max=PROBE_LOOK_MAX)
        if not rows:
            await self._fetch("pass_over", look_max=PROBE_LOOK_MAX)
        return [replace(to_claimed(row[:-1]), probes=row["probes"]) for row in rows]

    def _track(self, claim: Claim) -> Track:
        queues = None if claim.queues is None else tuple(claim.queues)
        key = (tuple(claim.names), queues, tuple(claim.except_queues), claim.tenant)
        track = self._tracks.get(key)
        if track is None:
            if len(self._tracks) >= TRACKS_MAX:
                self._tracks.clear()
            track = self._tracks[key] = Track()
        return track

    async def _claim_from_front(self, claim: Claim, track: Track) -> list[Any]:
        started = self._seam.monotonic()
        rows = await self._take("claim", claim, track, claim.limit, last_queue=track.last_queue)
        is_slow = self._seam.monotonic() - started > SLOW_CLAIM_SECONDS
        # Without a row there is no position to remember: the next claim starts at the front.
        if track.should_remember(len(rows) == claim.limit, is_slow) and rows:
            track.remember(rows)
            await self._scan(claim, track)
        return rows

    async def _claim_onwards(self, claim: Claim, track: Track) -> list[Any]:
        if track.scan_is_due(self._seam.monotonic()):
            await self._scan(claim, track)
        track.go_back()
        rows = await self._take_onwards(claim, track, claim.limit)
        if len(rows) == claim.limit:
            return rows
        if track.scanning is not None or track.scan_seconds > QUICK_SCAN_SECONDS:
            return rows
        track.forget()
        # If this fails, the rows taken so far are strays too, and are released with the rest.
        return rows + await self._take(
            "claim", claim, track, claim.limit - len(rows), last_queue=track.last_queue
        )

    async def _take_onwards(self, claim: Claim, track: Track, limit: int) -> list[Any]:
        lanes = track.in_turn()
        return await self._take(
            "claim_onwards",
            claim,
            track,
            limit,
            lane_queues=[lane[0] for lane in lanes],
            lane_priorities=[lane[1] for lane in lanes],
            lane_run_at=[lane[2] for lane in lanes],
            lane_ids=[lane[3] for lane in lanes],
        )

    async def _take(
        self, statement: str, claim: Claim, track: Track, limit: int, **lanes: object
    ) -> list[Any]:
        rows = list(await self._caps.claim(statement, claim, limit=limit, **lanes))
        if len(rows) > 1:
            rows.sort(key=_IN_ORDER)
        track.advance(rows)
        return rows

    async def _scan(self, claim: Claim, track: Track) -> None:
        """Start a scan, and wait a moment for it."""
        track.scanning = asyncio.create_task(self._look_in_front(claim, track))
        self._scans.add(track.scanning)
        track.scanning.add_done_callback(self._scans.discard)
        await asyncio.wait({track.scanning}, timeout=SCAN_AWAITED_SECONDS)

    async def _look_in_front(self, claim: Claim, track: Track) -> None:
        started = self._seam.monotonic()
        try:
            # An error here must not stop the claims. If the database is down, they report it.
            with suppress(HoldfastError):
                rows = await self._fetch(
                    "lanes", queues=claim.queues, except_queues=claim.except_queues
                )
                track.fronts = {
                    (row["queue"], row["priority"]): Position(row["run_at"], row["id"])
                    for row in rows
                }
        finally:
            track.scanning = None
            track.scanned_at = self._seam.monotonic()
            track.scan_seconds = track.scanned_at - started
