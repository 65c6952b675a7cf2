"""/ui/workers: which workers are running, their load and their jobs, and which were lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from holdfast.dashboard.page import Pages, Visit
from holdfast.domain.job import Filter, Job
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
        workers = await hf.workers.list()
        running = await hf.jobs.list(Filter(states=(State.RUNNING,)), RUNNING_READ_MAX)
        return visit.render(
            "workers.html",
            title="Workers",
            live=[each for each in workers if not each.lost],
            lost=[each for each in workers if each.lost],
            slots=sum(each.concurrency for each in workers if not each.lost),
            used=sum(each.running for each in workers if not each.lost),
            running=by_worker(running.jobs),
            shown_max=RUNNING_SHOWN_MAX,
            served=served,
        )

    return pages


def by_worker(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    found: defaultdict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        if job.lease_owner is not None:
            found[job.lease_owner].append(job)
    return dict(found)


def served(worker: WorkerStatus) -> str:
    """The queues of a worker, in words."""
    if worker.queues is None:
        return "all queues"
    return ", ".join(
        name if most is None else f"{name} (at most {most})" for name, most in worker.queues.items()
    )
