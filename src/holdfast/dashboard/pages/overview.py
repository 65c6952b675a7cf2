"""/: whether all is well, and what needs attention first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from holdfast.dashboard.attention import Examiner, concerns
from holdfast.dashboard.page import Pages, Visit
from holdfast.dashboard.trends import (
    RANGES,
    find_range,
    read_queue_trends,
    read_samples,
    trends,
)
from holdfast.domain.diagnosis.findings import naming_app
from holdfast.domain.overview import Overview
from holdfast.domain.queues import QueueStatus
from holdfast.domain.samples import Samples

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

CONCERNS_SHOWN: Final = 3
QUEUES_SHOWN: Final = 8
WORKERS_SHOWN: Final = 8
FAILURES_SHOWN: Final = 8


def pages(site: Site) -> Pages:
    pages = Pages()
    hf = site.service.hf
    examiner = Examiner(hf, site.live.hint)
    site.service.add_background(examiner.running)

    @pages.get("/", needs="any")
    async def show_overview(visit: Visit) -> Response:
        if not visit.may("read", across=True):
            # The overview is of all tenants. A key of one begins with its jobs.
            if visit.may("read"):
                return visit.redirect("/ui/jobs")
            return visit.render("start.html", title="Holdfast")
        seen = await hf.overview()
        chosen = find_range(visit.query.get("range"))
        samples = await read_samples(hf.samples, chosen, seen.now)
        examination = examiner.latest()
        if examination is not None:
            examination = naming_app(examination, site.app)
        return visit.render(
            "overview.html",
            title="Overview",
            seen=seen,
            is_new=not (seen.queues or seen.failures or _has_worked(samples)),
            examination=examination,
            concerns_shown=CONCERNS_SHOWN,
            concerns=[] if examination is None else concerns(examination),
            ranges=RANGES,
            chosen=chosen,
            trends=[] if samples is None else trends(samples),
            queues=busiest(seen)[:QUEUES_SHOWN],
            queue_trends=await read_queue_trends(hf.samples),
            workers=None if seen.workers is None else seen.workers[:WORKERS_SHOWN],
            failures=seen.failures[:FAILURES_SHOWN],
        )

    return pages


def _has_worked(samples: Samples | None) -> bool:
    return samples is not None and any(each.succeeded for each in samples.samples)


def busiest(seen: Overview) -> list[QueueStatus]:
    """Paused queues with jobs first, then those with the longest wait."""
    return sorted(
        seen.queues,
        key=lambda each: (
            not (each.paused and each.waiting),
            -(each.oldest_ready_seconds or 0.0),
            -each.running,
            each.name,
        ),
    )
