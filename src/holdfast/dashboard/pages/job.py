"""The page of a job: what it is, why it waits, its attempts and its relatives; and what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from starlette.responses import Response

from holdfast.api.problems import Problem
from holdfast.dashboard.format import without_command
from holdfast.dashboard.limits import RELATED_JOBS_SHOWN_MAX
from holdfast.dashboard.page import Pages, Visit
from holdfast.dashboard.searching import JOBS, search_url
from holdfast.dashboard.timeline import draw, took_seconds
from holdfast.domain.encrypted_jobs import EncryptedValue
from holdfast.domain.endings import error_line, why_it_ended
from holdfast.domain.errors import AlreadyRequeued, BadArguments, WrongState
from holdfast.domain.groups import fingerprint_of
from holdfast.domain.job import DEFAULT_TENANT, Job
from holdfast.domain.states import DEAD_STATES, State
from holdfast.domain.texts import check_name
from holdfast.operations.job_details import attempts_of, related_to

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

JOB: Final = f"{JOBS}/{{job_id}}"


_TONES: Final = {
    "succeeded": "good",
    "running": "busy",
    "released": "muted",
    "canceled": "muted",
    "lost": "warn",
}


class Actions(NamedTuple):
    """What can be done with a job in this state."""

    cancel: bool
    run_now: bool
    requeue: bool


class Refused(NamedTuple):
    """Why nothing was changed. `requeued_as` is set if somebody requeued the job before."""

    reason: str
    requeued_as: UUID | None = None

    @property
    def sentence(self) -> str:
        return f"Nothing was changed: {self.reason.removesuffix('; nothing was changed')}."


def pages(site: Site) -> Pages:
    pages = Pages()

    @pages.get(JOB, needs="read")
    async def show_job(visit: Visit) -> Response:
        return await show(visit, await find_job(visit))

    @pages.post(f"{JOB}/cancel", needs="operate")
    async def cancel_job(visit: Visit) -> Response:
        job = await find_job(visit)
        because = (await visit.form()).get("because", "").strip() or None
        if because is not None:
            try:
                check_name("reason", because)
            except BadArguments as error:
                return await show(visit, job, Refused(str(error)), 422)

        async def cancel() -> Job:
            return await visit.caller.jobs.cancel(job.id, by=visit.caller.name, because=because)

        return await change_job(visit, job, "job.cancel", cancel, "Canceled", because=because)

    @pages.post(f"{JOB}/retry", needs="operate")
    async def retry_job(visit: Visit) -> Response:
        job = await find_job(visit)

        async def retry() -> Job:
            if job.state.ended:  # `retry` would requeue it, which nobody asked for here
                raise WrongState(f"job {job.id} already ended as {job.state}")
            return await visit.caller.jobs.retry(job.id, again=False)

        return await change_job(visit, job, "job.retry", retry, "Due now")

    return pages


async def find_job(visit: Visit) -> Job:
    """The job of the path, or a problem that is the same for jobs of others and for none."""
    try:
        job_id = UUID(visit.path["job_id"])
    except ValueError:
        raise Problem("job-not-found", "this is not the ID of a job") from None
    return await visit.caller.jobs.get(job_id)


async def change_job(
    visit: Visit,
    job: Job,
    action: str,
    change: Callable[[], Awaitable[Job]],
    notice: str,
    *,
    because: str | None = None,
) -> Response:
    """Make the change with an entry in the audit log. If the job has moved on, show how it is."""
    try:
        async with visit.caller.audited(action, job.id, because=because):
            changed = await change()
    except AlreadyRequeued as error:
        return await show(visit, job, Refused(str(error), error.new_id), 409)
    except WrongState as error:
        return await show(visit, await visit.caller.jobs.get(job.id), Refused(str(error)), 409)
    return visit.redirect(f"{JOBS}/{changed.id}", notice=f"{notice}.")


async def show(
    visit: Visit, job: Job, refused: Refused | None = None, status: int = 200
) -> Response:
    jobs = visit.caller.jobs
    attempts = await attempts_of(jobs, job)
    related = await related_to(jobs, job, RELATED_JOBS_SHOWN_MAX)
    why = None if job.state.ended else await jobs.why(job.id)
    return visit.render(
        "job.html",
        title=job.name,
        status=status,
        job=job,
        why=why,
        why_sentence=None if why is None else without_command(why.sentence),
        ending=why_it_ended(job),
        error_line=error_line(job.error_code, job.error_text),
        line_of=error_line,
        tone_of=_tone_of,
        fingerprint=fingerprint_of(job) if job.state in DEAD_STATES else None,
        timeline=draw(job, attempts, visit.now),
        related=related,
        links=_links(job),
        took_seconds=took_seconds(job),
        progress=_fraction(job),
        trace_id=_trace_id(job.trace),
        actions=_actions(job, visit.now),
        refused=refused,
        is_encrypted=is_encrypted,
        is_time=_is_time,
    )


def _tone_of(outcome: str) -> str:
    return _TONES.get(outcome, "bad")


def _links(job: Job) -> dict[str, str]:
    """The searches that find all related jobs."""
    links = {"children": search_url(parent_id=job.id)}
    if job.correlation_id is not None:
        tenant = None if job.tenant == DEFAULT_TENANT else job.tenant
        links["correlation"] = search_url(correlation_id=job.correlation_id, tenant=tenant)
    return links


def _actions(job: Job, now: datetime) -> Actions:
    waits = job.state is State.QUEUED
    return Actions(
        cancel=not job.state.ended,
        run_now=waits and job.run_at > now,
        requeue=job.state.ended,
    )


def _fraction(job: Job) -> float | None:
    """How much of the job is done, from 0 to 1, if its progress says so: {"done": 3, "total": 10},
    or a number from 0 to 1."""
    progress = job.progress
    if isinstance(progress, dict):
        done, total = _number(progress.get("done")), _number(progress.get("total"))
        return None if done is None or not total else min(max(done / total, 0.0), 1.0)
    share = _number(progress)
    return share if share is not None and 0 <= share <= 1 else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _trace_id(trace: str | None) -> str | None:
    """The trace's ID, from the `traceparent`: version-trace-span-flags."""
    parts = (trace or "").split("-")
    return parts[1] if len(parts) == 4 else None


def is_encrypted(value: object) -> bool:
    return isinstance(value, EncryptedValue)


def _is_time(value: object) -> bool:
    return isinstance(value, datetime)
