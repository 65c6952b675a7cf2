"""/ui/workers: which workers are running, their load and their jobs, and which were lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response

from holdfast.dashboard.page import Pages, Visit
from holdfast.domain.job import Filter, Job
from holdfast.domain.messenger_overview import messenger_overviews
from holdfast.domain.states import State
from holdfast.domain.workers import WorkerStatus

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

RUNNING_READ_MAX: Final = 200
RUNNING_SHOWN_MAX: Final = 5  # of each worker


def pages(site: Site) -> Pages:
    pages = Pages()
    hf = site.service.hf

    @pages.get("/ui/workers", needs="read", across=True)
    async def show_workers(visit: Visit) -> Response:
        page = await hf.jobs.list(Filter(states=(State.RUNNING,)), RUNNING_READ_MAX)
        running = by_worker(page.jobs)
        workers = await hf.workers.list()
        if page.after is None:
            workers = [with_load(each, running) for each in workers]
        return visit.render(
            "workers.html",
            title="Workers",
            live=[each for each in workers if not each.lost],
            lost=[each for each in workers if each.lost],
            slots=sum(each.concurrency for each in workers if not each.lost),
            used=sum(each.running for each in workers if not each.lost),
            running=running,
            shown_max=RUNNING_SHOWN_MAX,
            served=served,
            messenger_overviews=messenger_overviews,
        )

    return pages


def by_worker(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    found: defaultdict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        if job.lease_owner is not None:
            found[job.lease_owner].append(job)
    return dict(found)


def with_load(worker: WorkerStatus, running: Mapping[str, Sequence[Job]]) -> WorkerStatus:
    """The worker with its load as of now; its heartbeat tells of a few seconds ago. It may have
    claimed more jobs ahead than it has slots."""
    slots_used = min(len(running.get(worker.id, ())), worker.concurrency)
    return msgspec.structs.replace(worker, running=slots_used)


def served(worker: WorkerStatus) -> str:
    """The queues of a worker, in words."""
    if worker.queues is None:
        return "all queues"
    return ", ".join(
        name if most is None else f"{name} (at most {most})" for name, most in worker.queues.items()
    )
