"""/ui/queues: how queues are doing, and what operators do to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.responses import Response

from holdfast.api.callers import Caller
from holdfast.dashboard.page import Pages, Visit
from holdfast.dashboard.trends import (
    RANGES,
    find_range,
    read_queue_trends,
    read_samples,
    trends,
)
from holdfast.domain.errors import HoldfastError
from holdfast.domain.job import Filter
from holdfast.domain.limits import QUEUE_RUNNING_MAX
from holdfast.domain.queues import QueueStatus
from holdfast.domain.states import State
from holdfast.domain.texts import check_name
from holdfast.domain.workers import WorkerStatus, serving

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

QUEUE = "/ui/queues/{queue:name}"


def pages(site: Site) -> Pages:
    pages = Pages()
    hf = site.service.hf

    @pages.get("/ui/queues", needs="read", across=True)
    async def show_queues(visit: Visit) -> Response:
        queues = await hf.queues.list()
        found = await read_queue_trends(hf.samples)
        live = {each.name for each in queues}
        quiet = [QueueStatus(name=name) for name in found if name not in live]
        return visit.render(
            "queues.html",
            title="Queues",
            queues=sorted([*queues, *quiet], key=lambda each: each.name),
            queue_trends=found,
        )

    @pages.get(QUEUE, needs="read", across=True)
    async def show_queue(visit: Visit) -> Response:
        return await _show(visit)

    @pages.post(f"{QUEUE}/pause", needs="operate", across=True)
    async def pause_queue(visit: Visit) -> Response:
        queue, because = visit.path["queue"], (await visit.form()).get("because") or None
        async with visit.caller.audited("queue.pause", queue, jobs=0, because=because):
            await hf.queues.pause(queue, by=visit.caller.name, because=because)
        return visit.redirect(_path(queue), notice=f"Queue {queue} is paused.")

    @pages.post(f"{QUEUE}/resume", needs="operate", across=True)
    async def resume_queue(visit: Visit) -> Response:
        queue = visit.path["queue"]
        async with visit.caller.audited("queue.resume", queue, jobs=0):
            await hf.queues.resume(queue)
        return visit.redirect(_path(queue), notice=f"Queue {queue} is running again.")

    @pages.post(f"{QUEUE}/cap", needs="operate", across=True)
    async def cap_queue(visit: Visit) -> Response:
        queue, text = visit.path["queue"], (await visit.form()).get("running_max", "").strip()
        if text and not _is_cap(text):
            problem = f"The cap must be a number from 0 to {QUEUE_RUNNING_MAX:,}, or empty."
            return await _show(visit, status=422, cap=text, cap_error=problem)
        running_max = int(text) if text else None
        async with visit.caller.audited("queue.cap", queue, jobs=0):
            await hf.queues.cap(queue, running_max)
        return visit.redirect(_path(queue), notice=_capped(queue, running_max))

    @pages.post(f"{QUEUE}/purge", needs="operate", across=True)
    async def purge_queue(visit: Visit) -> Response:
        queue, form = visit.path["queue"], await visit.form()
        if form.get("name") != queue:
            problem = "Nothing was canceled: type the name of the queue to confirm."
            return await _show(visit, status=422, purge_error=problem)
        total = await _purge(visit.caller, queue, form.get("because") or None)
        return visit.redirect(
            _path(queue), notice=f"Canceling {total:,} waiting jobs of queue {queue}."
        )

    return pages


async def _show(visit: Visit, status: int = 200, **values: Any) -> Response:
    hf, queue = visit.caller.hf, visit.path["queue"]
    check_name("queue", queue)
    chosen = find_range(visit.query.get("range"))
    samples = await read_samples(hf.samples, chosen, await hf.now(), queue)
    return visit.render(
        "queue.html",
        title=f"Queue {queue}",
        status=status,
        queue=await hf.queues.get(queue),
        workers=await _serving(visit, queue),
        ranges=RANGES,
        chosen=chosen,
        trends=[] if samples is None else trends(samples),
        **{"cap": None, "cap_error": None, "purge_error": None} | values,
    )


async def _serving(visit: Visit, queue: str) -> list[WorkerStatus] | None:
    """The live workers that serve the queue; None if this database doesn't know its workers."""
    try:
        workers = await visit.caller.hf.workers.list()
    except HoldfastError:
        return None
    return serving((each for each in workers if not each.lost), queue)


async def _purge(caller: Caller, queue: str, because: str | None) -> int:
    """Cancel the waiting jobs in the background, and return how many there are."""
    waiting = Filter(states=(State.QUEUED,), queue=queue)
    preview = await caller.bulk.create("cancel", waiting, by=caller.name, because=because)
    async with caller.audited("queue.purge", queue, jobs=preview.total, because=because):
        if preview.total:
            await caller.bulk.start(preview.id)
    return preview.total


def _is_cap(text: str) -> bool:
    """Python reads no number of thousands of digits."""
    is_short = len(text) <= len(str(QUEUE_RUNNING_MAX))
    return is_short and text.isascii() and text.isdigit() and int(text) <= QUEUE_RUNNING_MAX


def _capped(queue: str, running_max: int | None) -> str:
    if running_max is None:
        return f"Queue {queue} has no cap now."
    return f"Queue {queue} runs at most {running_max:,} jobs at once."


def _path(queue: str) -> str:
    return f"/ui/queues/{quote(queue, safe='')}"
