"""/ui/systems/<slug>/run: start work of a system by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from holdfast.api.problems import Problem
from holdfast.dashboard import systems
from holdfast.dashboard.forms import Form, InvalidForm
from holdfast.dashboard.page import Pages, Visit
from holdfast.dashboard.pages.systems import path_of
from holdfast.dashboard.systems import FormRefused, RunsForms, SystemPages

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site


def pages(site: Site) -> Pages:
    pages = Pages()
    for system in site.systems:
        if isinstance(system, RunsForms):
            _add_run(pages, system, system)
    return pages


def _add_run(pages: Pages, system: SystemPages, runner: RunsForms) -> None:
    path = f"{path_of(system)}/run"

    @pages.get(path, needs="enqueue")
    async def show_form(visit: Visit) -> Response:
        chosen = _choose(runner, visit.query.get("form"))
        return _render(visit, chosen, Form.blank(chosen.schema))

    @pages.post(path, needs="enqueue")
    async def run(visit: Visit) -> Response:
        data = await visit.form()
        chosen = _choose(runner, visit.query.get("form"))
        form = Form.posted(chosen.schema, data)
        if data.get("do", "run") != "run":
            return _render(visit, chosen, form)
        try:
            item_id = await runner.run(visit.caller, chosen, form.arguments())
        except FormRefused as refused:
            form.refuse(refused.errors)
            return _render(visit, chosen, form, 422)
        except InvalidForm:
            return _render(visit, chosen, form, 422)
        return visit.redirect(f"{path_of(system)}/{item_id}")

    def _render(visit: Visit, chosen: systems.Form, form: Form, status: int = 200) -> Response:
        return visit.render(
            "systems_run.html",
            title=chosen.title,
            status=status,
            system=system,
            path=path_of(system),
            forms=runner.forms(),
            chosen=chosen,
            form=form,
        )


def _choose(runner: RunsForms, name: str | None) -> systems.Form:
    known = runner.forms()
    found = [each for each in known if name in (None, each.name)]
    if not found:
        raise Problem("not-found", "there is no such form")
    return found[0]
