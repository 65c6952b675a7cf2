"""/ui/run: run a job by hand, with a form made from the JSON Schema of its arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from starlette.responses import Response

from holdfast.api.bodies import convert
from holdfast.api.exact_json import BadJson, parse
from holdfast.api.new_jobs import NewJob, enqueue
from holdfast.api.problems import At, Problem, problem_of
from holdfast.api.routes.names import JobName, all_names, described
from holdfast.dashboard.forms import Form, InvalidForm
from holdfast.dashboard.forms.hints import FILTERS
from holdfast.dashboard.page import Pages, Visit
from holdfast.domain.errors import HoldfastError
from holdfast.domain.spelling import did_you_mean
from holdfast.enqueuer import Enqueued

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

ARGUMENTS: Final = "/arguments"
SUBMISSION: Final = "submission"  # of the form: sent twice, it makes one job
_NUMBERS: Final = ("priority", "max_attempts", "delay_seconds", "expires_in_seconds")
_TEXTS: Final = ("queue", "tenant", "correlation_id")
_KEY: Final = "idempotency_key"
OPTIONS: Final = (*_TEXTS, *_NUMBERS, "tags", _KEY)
_BETWEEN_TAGS: Final = re.compile(r"[,\s]+")


def pages(site: Site) -> Pages:
    pages = Pages()
    hf, intake = site.service.hf, site.service.intake
    site.templates.filters.update(FILTERS)

    @pages.get("/ui/run", needs="enqueue")
    async def list_names(visit: Visit) -> Response:
        return visit.render("run.html", title="Run a job", names=all_names(hf))

    @pages.get("/ui/run/{name:name}", needs="enqueue")
    async def show_form(visit: Visit) -> Response:
        job = _find(visit)
        return _render(visit, job, Form.blank(job.arguments), {SUBMISSION: str(uuid4())}, {})

    @pages.post("/ui/run/{name:name}", needs="enqueue")
    async def run(visit: Visit) -> Response:
        job, data = _find(visit), await visit.form()
        form = Form.posted(job.arguments, data)
        if data.get("do", "run") != "run":
            return _render(visit, job, form, data, {})
        try:
            found = await _run(visit, job, form, data)
        except InvalidForm:
            return _render(visit, job, form, data, {}, 422)
        except Problem as problem:
            with suppress(InvalidForm):
                form.arguments()
            return _render_again(visit, job, form, data, problem)
        except HoldfastError as error:
            return _render_again(visit, job, form, data, problem_of(error))
        notice = "The job is enqueued." if found.is_new else "This form was sent before."
        return visit.redirect(f"/ui/jobs/{found.job.id}", notice=notice)

    async def _run(visit: Visit, job: JobName, form: Form, data: Mapping[str, str]) -> Enqueued:
        options = _read({name: text for name in OPTIONS if (text := data.get(name, "").strip())})
        key = options.pop(_KEY, None) or f"form {_submission(data)}"
        new = convert({"name": job.name, "arguments": form.arguments(), **options}, NewJob)
        return await enqueue(visit.caller, visit.request, new, key, intake.record)

    def _find(visit: Visit) -> JobName:
        name = visit.path["name"]
        function = hf._functions.get(name)
        if function is None:
            raise Problem("not-found", f"no job is named {name!r}{did_you_mean(name, hf.names)}")
        return described(function)

    return pages


def _read(options: Mapping[str, str]) -> dict[str, Any]:
    """The options as JSON values. A number keeps its digits, or is refused."""
    read: dict[str, Any] = dict(options)
    wrong: list[At] = []
    for name in _NUMBERS:
        if name in read:
            try:
                read[name] = parse(read[name].encode())
            except BadJson as error:
                wrong.append(At(str(error), pointer=f"/{name}"))
            else:
                if type(read[name]) not in (int, float):
                    wrong.append(At("enter a number", pointer=f"/{name}"))
    if wrong:
        raise Problem("bad-request", wrong[0].detail, wrong)
    if "tags" in read:
        read["tags"] = [each for each in _BETWEEN_TAGS.split(read["tags"]) if each]
    return read


def _submission(data: Mapping[str, str]) -> UUID:
    try:
        return UUID(data.get(SUBMISSION, ""))
    except ValueError:
        return uuid4()


def _render_again(
    visit: Visit, job: JobName, form: Form, data: Mapping[str, str], problem: Problem
) -> Response:
    """The form as it was filled in, with the errors at their fields."""
    data, errors = dict(data), {}
    if problem.code == "idempotency-conflict" and not data.get(_KEY, "").strip():
        data[SUBMISSION] = str(uuid4())
        form.errors.append(
            f"this form was sent before and made job {problem.job_id}; run it again to make another"
        )
        return _render(visit, job, form, data, {}, 409)
    for at in problem.errors or [At(problem.detail)]:
        place = at.pointer or ""
        if place.startswith(ARGUMENTS):
            form.refuse([(place.removeprefix(ARGUMENTS), at.detail)])
        elif place[1:] in OPTIONS:
            errors[place[1:]] = at.detail
        else:
            form.errors.append(at.detail)
    return _render(visit, job, form, data, errors, problem.kind.status)


def _render(
    visit: Visit,
    job: JobName,
    form: Form,
    data: Mapping[str, str],
    errors: Mapping[str, str],
    status: int = 200,
) -> Response:
    return visit.render(
        "run_job.html",
        title=job.name,
        status=status,
        job=job,
        form=form,
        options={name: data.get(name, "") for name in OPTIONS},
        submission=data.get(SUBMISSION, ""),
        option_errors={name: errors.get(name) for name in OPTIONS},
    )
