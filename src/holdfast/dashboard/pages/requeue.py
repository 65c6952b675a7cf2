"""Requeue a job as it is, or with edited arguments: in the form of its handler, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from starlette.responses import Response

from holdfast.api.exact_json import BadJson, parse, pointer_to
from holdfast.dashboard.forms import Form, InvalidForm
from holdfast.dashboard.page import Pages, Visit
from holdfast.dashboard.pages.job import JOB, Refused, change_job, find_job, is_encrypted, show
from holdfast.domain.errors import AlreadyRequeued, BadArguments
from holdfast.domain.job import Job

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

JSON: Final = "arguments"  # the field that has all arguments as JSON


def pages(site: Site) -> Pages:
    pages = Pages()

    @pages.get(f"{JOB}/requeue", needs="operate")
    async def edit_job(visit: Visit) -> Response:
        job = await find_job(visit)
        return await _edit(visit, job, _form(visit, job), _editable(job.arguments))

    @pages.post(f"{JOB}/requeue", needs="operate")
    async def requeue_job(visit: Visit) -> Response:
        job, data = await find_job(visit), await visit.form()
        if JSON in data:
            return await _requeue_from_json(visit, job, data)
        if "do" in data:
            return await _requeue_from_form(visit, job, data)
        return await _requeue(visit, job, data, None)

    return pages


async def _requeue_from_json(visit: Visit, job: Job, data: Mapping[str, str]) -> Response:
    text = data[JSON]
    try:
        return await _requeue(visit, job, data, _arguments(text))
    except BadArguments as error:
        return await _edit(visit, job, None, text, error)


async def _requeue_from_form(visit: Visit, job: Job, data: Mapping[str, str]) -> Response:
    schema = _schema(visit, job)
    if schema is None:  # a newer server showed the form
        return await _edit(visit, job, None, _editable(job.arguments))
    form = Form.posted(schema, data)
    if data["do"] != "run":
        return await _edit(visit, job, form)
    try:
        return await _requeue(visit, job, data, form.arguments())
    except InvalidForm:
        return await _edit(visit, job, form, status=422)
    except BadArguments as error:
        form.refuse([(pointer_to(*error.path), str(error))])
        return await _edit(visit, job, form, status=422)


async def _requeue(
    visit: Visit, job: Job, data: Mapping[str, str], arguments: dict[str, Any] | None
) -> Response:
    async def requeue() -> Job:
        # A form sent twice makes one copy: it says which copy it knew of.
        known = await visit.caller.jobs.requeued_as(job.id)
        if known is not None and str(known) != data.get("known"):
            raise AlreadyRequeued(job.id, known)
        return await visit.caller.jobs.requeue(job.id, arguments=arguments, again=known is not None)

    return await change_job(visit, job, "job.requeue", requeue, "Requeued as this job")


async def _edit(
    visit: Visit,
    job: Job,
    form: Form | None,
    text: str = "",
    error: BadArguments | None = None,
    status: int = 200,
) -> Response:
    if not job.state.ended:
        refused = Refused(f"job {job.id} is {job.state}; only an ended job can be requeued")
        return await show(visit, job, refused, 409)
    known: UUID | None = await visit.caller.jobs.requeued_as(job.id)
    return visit.render(
        "requeue.html",
        title=f"Requeue {job.name}",
        status=status if error is None else 422,
        job=job,
        form=form,
        text=text,
        error=None if error is None else str(error),
        known=known,
        is_encrypted=is_encrypted,
    )


def _form(visit: Visit, job: Job) -> Form | None:
    """The form of the job's handler with its arguments, if this server knows both."""
    schema = _schema(visit, job)
    if schema is None or is_encrypted(job.arguments):
        return None
    return Form.of(schema, job.arguments)


def _schema(visit: Visit, job: Job) -> dict[str, Any] | None:
    function = visit.caller.hf._functions.get(job.name)
    return None if function is None else function._definition.schemas.arguments


def _arguments(text: str) -> dict[str, Any]:
    """Read the arguments exactly, or raise BadArguments with the place."""
    try:
        arguments = parse(text.encode())
    except UnicodeEncodeError:
        raise BadArguments("the text contains an unpaired surrogate") from None
    except BadJson as error:
        where = f" at {error.pointer}" if error.pointer else ""
        raise BadArguments(f"not valid JSON{where}: {error}") from None
    if not isinstance(arguments, dict):
        raise BadArguments('the arguments are one object, with a value for each: {"image": 17}')
    return arguments


def _editable(value: object) -> str:
    """JSON to edit. What can't be seen is escaped, so that it is seen and stays."""
    if is_encrypted(value):
        return ""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return "".join(
        each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text
    )
