"""Dead letters: what went wrong, who deals with it, and requeueing a group."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlencode

from starlette.responses import Response

from holdfast.api.cursors import make_cursor, read_cursor
from holdfast.api.limits import BULK_RATE_MAX, PAGE_JOBS_DEFAULT
from holdfast.dashboard.changes import BULK, create_change
from holdfast.dashboard.page import Pages, Visit
from holdfast.domain.errors import BadArguments, JobNotFound, WrongState
from holdfast.domain.groups import (
    ACKNOWLEDGE,
    REOPEN,
    RESOLVE,
    ErrorGroup,
    GroupFilter,
    GroupOrder,
    GroupState,
    GroupVerb,
)
from holdfast.domain.job import Filter, Job
from holdfast.domain.limits import BULK_RATE_MIN

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

DEAD: Final = "/ui/dead"
RATE: Final = 50
TONES: Final = {
    GroupState.NEW: "warn",
    GroupState.BACK: "bad",
    GroupState.ACKNOWLEDGED: "busy",
    GroupState.RESOLVED: "good",
}
TABS: Final = (
    (None, "All"),
    (GroupState.NEW, "New"),
    (GroupState.BACK, "Back"),
    (GroupState.ACKNOWLEDGED, "Acknowledged"),
    (GroupState.RESOLVED, "Resolved"),
)
VERBS: Final = {verb.name: verb for verb in (ACKNOWLEDGE, RESOLVE, REOPEN)}
DONE: Final = {"acknowledge": "acknowledged", "resolve": "resolved", "reopen": "new again"}
FILTERS: Final = ("text", "queue", "name")


class Refused(NamedTuple):
    """Why a form was refused, and the form as it was sent."""

    reason: str
    status: int
    form: dict[str, str]
    chosen: frozenset[str] = frozenset()


def pages(site: Site) -> Pages:
    pages = Pages()
    site.templates.globals["group_tone"] = TONES.get

    @pages.get(DEAD, needs="read")
    async def show_groups(visit: Visit) -> Response:
        return await _show_groups(visit)

    @pages.post(f"{DEAD}/change", needs="operate")
    async def change_groups(visit: Visit) -> Response:
        form = await visit.form()
        chosen = [value for name, value in visit.fields if name == "fingerprint"]
        verb = VERBS.get(form.get("verb", ""), ACKNOWLEDGE)
        try:
            if not chosen:
                raise BadArguments("select at least one group")
            await _change(visit, verb, chosen, form)
        except (BadArguments, WrongState) as error:
            refused = _refused(error, form, chosen)
        else:
            groups = "1 group is" if len(chosen) == 1 else f"{len(chosen)} groups are"
            return visit.redirect(_here(form), notice=f"{groups} {DONE[verb.name]}.")
        return await _show_groups(visit, refused)

    @pages.get(f"{DEAD}/{{fingerprint}}", needs="read")
    async def show_group(visit: Visit) -> Response:
        return await _show_group(visit)

    @pages.post(f"{DEAD}/{{fingerprint}}/change", needs="operate")
    async def change_group(visit: Visit) -> Response:
        form = await visit.form()
        verb = VERBS.get(form.get("verb", ""), ACKNOWLEDGE)
        try:
            await _change(visit, verb, [visit.path["fingerprint"]], form)
        except (BadArguments, WrongState) as error:
            return await _show_group(visit, _refused(error, form))
        return visit.redirect(_path(visit), notice=f"This group is {DONE[verb.name]}.")

    @pages.post(f"{DEAD}/{{fingerprint}}/requeue", needs="operate")
    async def requeue_group(visit: Visit) -> Response:
        form = await visit.form()
        await visit.caller.dead.group(visit.path["fingerprint"])
        try:
            change = await create_change(
                visit,
                "requeue",
                Filter(fingerprint=visit.path["fingerprint"]),
                jobs_per_second=_rate(form.get("rate", "")),
                because=form.get("because", "").strip() or None,
                again="again" in form,
            )
        except BadArguments as error:
            return await _show_group(visit, _refused(error, form))
        return visit.redirect(f"{BULK}/{change.id}")

    return pages


async def _show_groups(visit: Visit, refused: Refused | None = None) -> Response:
    is_counted = await visit.site.service.groups.look()
    dead = visit.caller.dead
    filter, order = _filter(visit.query), _order(visit.query)
    bound = (DEAD, visit.caller.tenant, filter, order)
    after = read_cursor(visit.query.get("cursor"), *bound)
    page = await dead.groups(filter, PAGE_JOBS_DEFAULT, after, order=order)
    counts = await dead.group_counts()
    tabs = [
        (
            label,
            _url(visit, state=state),
            filter.state is state,
            counts.groups[state] if state else sum(counts.groups.values()),
        )
        for state, label in TABS
    ]
    return visit.render(
        "dead.html",
        title="Dead letters",
        status=refused.status if refused else 200,
        refused=refused,
        groups=page.groups,
        tabs=tabs,
        filter=filter,
        order=order,
        is_filtered=any(getattr(filter, name) for name in FILTERS),
        here=_url(visit, state=filter.state),
        first_url=_url(visit, state=filter.state) if after else None,
        next_url=page.after
        and _url(visit, state=filter.state, cursor=make_cursor(page.after, *bound)),
        behind=None if is_counted else await dead.groups_behind_since(),
    )


async def _show_group(visit: Visit, refused: Refused | None = None) -> Response:
    await visit.site.service.groups.look()
    fingerprint, dead = visit.path["fingerprint"], visit.caller.dead
    group = await dead.group(fingerprint)
    bound = (_path(visit), visit.caller.tenant)
    after = read_cursor(visit.query.get("cursor"), *bound)
    page = await dead.group_jobs(fingerprint, PAGE_JOBS_DEFAULT, after)
    return visit.render(
        "group.html",
        title=group.name,
        status=refused.status if refused else 200,
        refused=refused,
        form=refused.form if refused else {},
        group=group,
        example=await _example(visit, group),
        jobs=page.jobs,
        rate=RATE,
        first_url=_path(visit) if after else None,
        next_url=page.after and f"{_path(visit)}?cursor={make_cursor(page.after, *bound)}",
    )


async def _example(visit: Visit, group: ErrorGroup) -> Job | None:
    with suppress(JobNotFound):  # it has left the history
        return await visit.caller.jobs.get(group.example_id)
    return None


async def _change(
    visit: Visit, verb: GroupVerb, fingerprints: Sequence[str], form: dict[str, str]
) -> None:
    """Change the groups and record it, or do neither."""
    caller = visit.caller
    note = form.get("note", "").strip() or None
    async with caller.hf.transaction() as connection:
        await caller.dead._groups.change(
            verb,
            fingerprints,
            by=caller.name,
            note=note,
            version=form.get("version", "").strip() or None,
            connection=connection,
        )
        for fingerprint in fingerprints:
            await caller.audit(
                f"error_group.{verb.name}",
                fingerprint,
                jobs=0,
                because=note,
                connection=connection,
            )


def _refused(error: Exception, form: dict[str, str], chosen: Sequence[str] = ()) -> Refused:
    status = 422 if isinstance(error, BadArguments) else 409
    return Refused(str(error), status, form, frozenset(chosen))


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        raise BadArguments("the rate must be a number of jobs per second") from None
    if not BULK_RATE_MIN <= rate <= BULK_RATE_MAX:
        raise BadArguments(f"the rate must be between {BULK_RATE_MIN:g} and {BULK_RATE_MAX:,}")
    return rate


def _filter(query: dict[str, str]) -> GroupFilter:
    known = {state.value: state for state in GroupState}
    texts = {name: query.get(name, "").strip() or None for name in FILTERS}
    return GroupFilter(state=known.get(query.get("state", "")), **texts)


def _order(query: dict[str, str]) -> GroupOrder:
    is_largest = query.get("order") == GroupOrder.LARGEST
    return GroupOrder.LARGEST if is_largest else GroupOrder.RECENT


def _url(visit: Visit, **changes: str | None) -> str:
    """This list, with other parameters; from its first page."""
    kept = {name: visit.query.get(name, "").strip() for name in (*FILTERS, "order")}
    pairs = [(name, value) for name, value in {**kept, **changes}.items() if value]
    return f"{DEAD}?{urlencode(pairs)}" if pairs else DEAD


def _here(form: dict[str, str]) -> str:
    """The list that the form was on. The redirect accepts only paths of ours."""
    here = form.get("here", DEAD)
    return here if here == DEAD or here.startswith(f"{DEAD}?") else DEAD


def _path(visit: Visit) -> str:
    return f"{DEAD}/{quote(visit.path['fingerprint'], safe='')}"
