"""Claims: which lanes to walk, and from where.

A claim steps through the lanes with due jobs and takes from the best; queues of equal priority take
turns. It walks each lane from its front as long as that is near. Every claimed job leaves a dead
entry there, which vacuum clears, but not while an old transaction is open. So every few seconds a
scan counts, beside the claims, how many entries it has to pass. If the fronts are far, or several
claims in a row were full, the claimer continues in each lane from where it got: after the last job
that it took or, once it has found nothing more, from a moment before that look. What a claim reads
then no longer depends on what is dead, and an idle worker's claim reads what came since its last.

Scans go on looking at the front of every lane for what came in behind: a late commit, an earlier
due time, a new lane, an unparked job. They pass every dead entry, so they may take seconds, but run
beside the claims, and at most a fiftieth of the time. So such a job waits until the next scan has
ended, and for a poll: 51 times the time of a scan, and a poll, at the most. As long as the fronts
are near, a claim that found less than it wanted has looked there itself, and no job waits.

Workers whose fronts are far note where they are, in the table `lanes`. A new worker begins there.
Its first scan looks at what is before, so a note may be old or wrong: it costs latency only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, Final
from uuid import UUID

from msgspec.structs import replace

from holdfast.domain.errors import HoldfastError, StoreUnavailable
from holdfast.domain.job import Claimed
from holdfast.domain.limits import PROBE_LOOK_MAX, PROBES_MAX
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres.caps import Caps
from holdfast.stores.postgres.lanes import LATE_MAX, LOOK_BACK_SECONDS, Lane, Scan, Track
from holdfast.stores.postgres.rows import Fetch, to_claimed
from holdfast.stores.protocol import Claim

SCAN_AWAITED_SECONDS: Final = 0.005
TRACKS_MAX: Final = 64
NOTED_EVERY_SECONDS: Final = 10.0
NOTES_KEPT_SECONDS: Final = 600.0

_IN_ORDER = itemgetter("priority", "run_at", "id")


class Claimer:
    """Looks in front `aside`, on another connection than the claims use."""

    def __init__(self, fetch: Fetch, aside: Fetch, caps: Caps, seam: Seam) -> None:
        self._fetch = fetch
        self._aside = aside
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
            rows = await self._claim_named(claim, claim.job_id)
            return [to_claimed(row) for row in rows]
        track = await self._track(claim)
        self._scan_if_due(claim, track)
        track.heed_scan()
        if track.lanes is None:
            rows = await self._claim_from_front(claim, track)
        else:
            rows = await self._claim_onwards(claim, track)
        return [to_claimed(row) for row in rows]

    async def _claim_named(self, claim: Claim, job_id: UUID) -> Sequence[Any]:
        return await self._caps.claim("claim_named", claim, job_id=job_id)

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

    async def _track(self, claim: Claim) -> Track:
        queues = None if claim.queues is None else tuple(claim.queues)
        key = (tuple(claim.names), queues, tuple(claim.except_queues), claim.tenant)
        track = self._tracks.pop(key, None)
        if track is None:
            rows = await self._fetch(
                "noted_lanes",
                queues=claim.queues,
                except_queues=claim.except_queues,
                kept_seconds=NOTES_KEPT_SECONDS,
            )
            noted = {(row["queue"], row["priority"]): row["run_at"] for row in rows}
            track = Track(self._seam.monotonic(), noted)
            while len(self._tracks) >= TRACKS_MAX:
                del self._tracks[next(iter(self._tracks))]
        self._tracks[key] = track  # those used last are kept longest
        return track

    async def _claim_from_front(self, claim: Claim, track: Track) -> list[Any]:
        began_at = self._seam.monotonic()
        rows = await self._take("claim", claim, last_queue=track.last_queue)
        track.took(rows, None if len(rows) == claim.limit else began_at)
        return rows

    async def _claim_onwards(self, claim: Claim, track: Track) -> list[Any]:
        rows = await self._take_onwards(claim, track)
        if len(rows) < claim.limit and not track.is_far:
            track.forget()
            # If this fails, the rows taken so far are strays too, and are released with the rest.
            rest = claim._replace(limit=claim.limit - len(rows))
            return rows + await self._claim_from_front(rest, track)
        if not rows and track.scanning is not None:
            await asyncio.wait({track.scanning}, timeout=SCAN_AWAITED_SECONDS)
            track.heed_scan()
            rows = await self._take_onwards(claim, track)
        return rows

    async def _take_onwards(self, claim: Claim, track: Track) -> list[Any]:
        """Take what the last scan found behind us, each job by its id: a walk to it would pass
        every dead entry again. Then walk the lanes."""
        rows: list[Any] = []
        while track.left_behind and len(rows) < claim.limit:
            rows += await self._claim_named(claim, track.left_behind.pop(0))
        if len(rows) < claim.limit:
            rest = claim._replace(limit=claim.limit - len(rows))
            rows += await self._walk_onwards(rest, track)
        return rows

    async def _walk_onwards(self, claim: Claim, track: Track) -> list[Any]:
        began_at = self._seam.monotonic()
        lanes = track.in_turn()
        rows = await self._take(
            "claim_onwards",
            claim,
            lane_queues=[queue for (queue, _), _ in lanes],
            lane_priorities=[priority for (_, priority), _ in lanes],
            lane_run_at=[start.position and start.position.run_at for _, start in lanes],
            lane_ids=[start.position and start.position.id for _, start in lanes],
            looked_seconds_ago=[start.seconds_ago(began_at) for _, start in lanes],
        )
        is_full = len(rows) == claim.limit
        track.took(rows, None if is_full else began_at)
        # A cap may have left jobs in lanes that rows were taken from.
        if not rows or not (is_full or self._caps.exist):
            track.took_all(began_at, self._caps.stopped)
        return rows

    async def _take(self, statement: str, claim: Claim, **values: object) -> list[Any]:
        rows = list(await self._caps.claim(statement, claim, limit=claim.limit, **values))
        if len(rows) > 1:
            rows.sort(key=_IN_ORDER)
        return rows

    def _scan_if_due(self, claim: Claim, track: Track) -> None:
        if track.scan_is_due(self._seam.monotonic()):
            track.scanning = asyncio.create_task(self._scan(claim, track))
            self._scans.add(track.scanning)
            track.scanning.add_done_callback(self._scans.discard)

    async def _scan(self, claim: Claim, track: Track) -> None:
        began_at = self._seam.monotonic()
        scan = None
        try:
            await self._caps.find_first_lease(self._aside)
            began_at = self._seam.monotonic()  # that may have waited for claims
            (row,) = await self._aside(
                "scan_lanes",
                names=claim.names,
                queues=claim.queues,
                except_queues=claim.except_queues,
                tenant=claim.tenant,
                look_back_seconds=LOOK_BACK_SECONDS,
                late_max=LATE_MAX,
            )
            scan = Scan.of(row, began_at)
            if scan.is_far and track.is_far:
                await self._note(track.notes(scan))
        except StoreUnavailable:
            pass  # The claims continue. If the database is down, they report it.
        except HoldfastError:
            track.is_far = False  # What no scan may look at, the claims must.
        finally:
            track.scanned(scan, began_at, self._seam.monotonic())

    async def _note(self, notes: Mapping[Lane, datetime | None]) -> None:
        await self._aside(
            "note_lanes",
            lane_queues=[queue for queue, _ in notes],
            lane_priorities=[priority for _, priority in notes],
            lane_run_at=list(notes.values()),
            every_seconds=NOTED_EVERY_SECONDS,
            kept_seconds=NOTES_KEPT_SECONDS,
        )
