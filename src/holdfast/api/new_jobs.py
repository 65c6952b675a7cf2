"""Turn the body of a request into jobs to enqueue. Errors point to what is wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request

from holdfast.api.callers import Caller
from holdfast.api.exact_json import pointer_to
from holdfast.api.examples import EXAMPLES
from holdfast.api.fields import Attempts, IdempotencyKey, Name, Priority, Seconds, Tags
from holdfast.api.limits import BATCH_JOBS_MAX
from holdfast.api.problems import At, Problem
from holdfast.app import Holdfast
from holdfast.domain.errors import BadArguments, HoldfastError, PayloadTooLarge
from holdfast.domain.job import Job
from holdfast.domain.spelling import did_you_mean
from holdfast.enqueuer import Enqueued, Record
from holdfast.job_function import Call, JobFunction, Options

_ERRORS_SHOWN_MAX: Final = 20
_OPTIONS: Final = tuple(name for name in Options.__slots__ if name != "tenant")
_NEVER_CHANGED: Final = ("queue", "priority", "max_attempts", "correlation_id", "id")


class NewJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job to enqueue. Omitted options default to those of its declaration."""

    name: Name
    arguments: dict[str, Any] = {}
    queue: Name | None = None
    priority: Priority | None = None
    max_attempts: Attempts | None = None
    delay_seconds: Seconds | None = None
    run_at: Annotated[datetime, Meta(tz=True)] | None = None
    expires_in_seconds: Seconds | None = None
    tenant: Name | None = None  # for keys that see all tenants
    correlation_id: Name | None = None
    tags: Tags | None = None
    id: UUID | None = None  # for keys that see all tenants


class NewJobOfBatch(NewJob, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job to enqueue with others. If an earlier job has its idempotency key, it is not enqueued
    again."""

    idempotency_key: IdempotencyKey | None = None


class NewJobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to enqueue, all or none."""

    jobs: Annotated[list[NewJobOfBatch], Meta(min_length=1, max_length=BATCH_JOBS_MAX)]


EXAMPLES[NewJob] = {
    "name": "resize",
    "arguments": {"image": 17},
    "delay_seconds": 60,
    "tags": ["a"],
}
EXAMPLES[NewJobs] = {
    "jobs": [
        {"name": "resize", "arguments": {"image": 17}},
        {"name": "resize", "arguments": {"image": 18}, "idempotency_key": "image-18"},
    ]
}


def make_call(
    caller: Caller, request: Request, new: NewJob, pointer: str = "", key: str | None = None
) -> Call:
    """Check a job. `pointer` is its place in the body; `key` is its idempotency key."""
    function = find(caller.hf, new.name, pointer)
    if new.id is not None and caller.tenant is not None:
        # Otherwise it could find out which ids other tenants have.
        text = "a key of one tenant can't choose the id of a job; send an idempotency key instead"
        raise Problem("not-allowed", text, [At(text, pointer=f"{pointer}/id")])
    given = {name: value for name in _OPTIONS if (value := getattr(new, name, None)) is not None}
    given.setdefault("correlation_id", request.state.correlation_id)
    if key is not None:
        given["idempotency_key"] = key
    try:
        tenant = caller.tenant_name_for(new.tenant)
        options = replace(function._defaults, tenant=tenant, **given)
    except HoldfastError as error:
        given["tenant"] = new.tenant
        raise _bad_option(error, given, pointer) from None
    try:
        return function._call(options, (), new.arguments)
    except BadArguments as error:
        raise bad_arguments(error, f"{pointer}/arguments") from None


async def enqueue(
    caller: Caller, request: Request, new: NewJob, key: str | None, record: Record
) -> Enqueued:
    """Enqueue a job, or find the one that the key made. It is durable once this returns."""
    call = make_call(caller, request, new, key=key)
    (enqueued,) = await caller.hf._enqueue([call], record=record)
    if not enqueued.is_new:
        check_same(new, enqueued.job)
    return enqueued


def make_calls(caller: Caller, request: Request, batch: NewJobs) -> list[Call]:
    """Check all jobs. If some are invalid, the problem describes the first and points to each."""
    calls: list[Call] = []
    problems: list[Problem] = []
    for index, new in enumerate(batch.jobs):
        try:
            calls.append(make_call(caller, request, new, f"/jobs/{index}"))
        except Problem as problem:
            problems.append(problem)
            if len(problems) == _ERRORS_SHOWN_MAX:
                break
    if problems:
        first = problems[0]
        raise Problem(first.code, first.detail, [at for each in problems for at in each.errors])
    return calls


def check_same(new: NewJob, job: Job) -> None:
    """Raise a Problem if the request states an option that differs from the job that has its key.

    `delay_seconds` and `run_at` can't be compared: retries, snoozes and breakers change when a job
    is due. The engine has compared the name and the arguments.
    """
    same = {
        name: value == getattr(job, name)
        for name in _NEVER_CHANGED
        if (value := getattr(new, name)) is not None
    }
    if new.tags is not None:
        same["tags"] = tuple(new.tags) == job.tags
    if new.expires_in_seconds is not None:
        # Stores round to microseconds in the same way.
        expires_in = timedelta(microseconds=round(new.expires_in_seconds * 1_000_000))
        same["expires_in_seconds"] = job.expires_at == job.created_at + expires_in
    different = [name for name, is_same in same.items() if not is_same]
    if different:
        raise Problem(
            "idempotency-conflict",
            f"the Idempotency-Key belongs to job {job.id}, which was enqueued with a different"
            f" {different[0]}; nothing was enqueued",
            [At(f"the job has a different {name}", pointer=f"/{name}") for name in different],
            job_id=job.id,
        )


def bad_arguments(error: BadArguments, pointer: str) -> Problem:
    """The problem, with a pointer to the bad value. `pointer` is that of the arguments."""
    text = str(error)
    code = "too-large" if isinstance(error, PayloadTooLarge) else "bad-arguments"
    return Problem(code, text, [At(text, pointer=pointer + pointer_to(*error.path))])


def find(hf: Holdfast, name: str, pointer: str = "") -> JobFunction[..., Any]:
    function = hf._functions.get(name)
    if function is None:
        text = f"no job is named {name!r}{did_you_mean(name, hf.names)}"
        raise Problem("unknown-name", text, [At(text, pointer=f"{pointer}/name")])
    return function


def _bad_option(error: HoldfastError, given: dict[str, Any], pointer: str) -> Problem:
    """Try the options one by one to find the bad one. There may be none: two may conflict."""
    text = str(error)
    for name, value in given.items():
        try:
            Options(**{name: value})
        except HoldfastError:
            return Problem("bad-request", text, [At(text, pointer=f"{pointer}/{name}")])
    return Problem("bad-request", text, [At(text, pointer=pointer)])
