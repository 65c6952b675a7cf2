"""Who may open which page: one line for each page, stated here and not read from its code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from tests.support.access import World

VIEWER: Final = ("read",)
OPERATOR: Final = ("read", "enqueue", "operate")
ADMINISTRATOR: Final = ("read", "enqueue", "operate", "work", "admin")
LOADER: Final = ("enqueue",)  # a key for a program: it has no role
ROLES: Final = (LOADER, VIEWER, OPERATOR, ADMINISTRATOR)  # each may do what those before it may

Target = Callable[[World, str], Awaitable[object]]


class Row(NamedTuple):
    """`least` is the first of ROLES that may open the page, None if nobody needs to log in.

    With `across`, keys of one tenant may not. `target` makes what `{...}` in the path stands for,
    or `TARGET` in the query or a field; it belongs to a tenant if it is `owned`, and then another
    tenant gets 404. `statuses` are the answers to those who may.
    """

    least: tuple[str, ...] | None
    across: bool = False
    target: Target | None = None
    owned: bool = False
    query: str = ""
    fields: Mapping[str, str] = {}
    statuses: tuple[int, ...] = (200, 303)
    scope: str = ""


def of(make: Callable[..., Awaitable[Any]]) -> Target:
    """The ID of what a method of World makes."""

    async def target(world: World, tenant: str) -> object:
        made = await make(world, tenant)
        return getattr(made, "id", made)

    return target


async def name_of_a_job(_world: World, _tenant: str) -> str:
    return "add"


async def _new_queue(world: World, _tenant: str) -> str:
    return world.unique("queue")


def _change_group(*names: str) -> Row:
    fields = {"verb": "acknowledge", **dict.fromkeys(names, "TARGET")}
    return Row(OPERATOR, target=of(World.error_group), owned=True, fields=fields)


_CHANGE: Final = Row(OPERATOR, target=of(World.bulk_change), owned=True, statuses=(303, 409))
PAGES: Final[Mapping[str, Row]] = {
    "GET /": Row(LOADER),
    "GET /ui/login": Row(None),
    "POST /ui/login": Row(None, fields={"key": "wrong"}, statuses=(401, 429)),
    "POST /ui/logout": Row(LOADER),
    "GET /ui/live": Row(
        LOADER, target=of(World.queued), owned=True, query="?job=TARGET", statuses=(200,)
    ),
    "GET /ui/jobs": Row(VIEWER),
    "GET /ui/suggest": Row(VIEWER),
    "POST /ui/jobs/change": Row(
        OPERATOR, fields={"which": "all", "action": "cancel"}, statuses=(303,)
    ),
    "GET /ui/jobs/{job_id}": Row(VIEWER, target=of(World.queued), owned=True, statuses=(200,)),
    "POST /ui/jobs/{job_id}/cancel": Row(
        OPERATOR, target=of(World.queued), owned=True, statuses=(303,)
    ),
    "POST /ui/jobs/{job_id}/retry": Row(
        OPERATOR, target=of(World.queued), owned=True, statuses=(303,)
    ),
    "GET /ui/jobs/{job_id}/requeue": Row(
        OPERATOR, target=of(World.ended), owned=True, statuses=(200,)
    ),
    "POST /ui/jobs/{job_id}/requeue": Row(
        OPERATOR, target=of(World.ended), owned=True, statuses=(303,)
    ),
    "GET /ui/run": Row(LOADER, scope="enqueue"),
    "GET /ui/run/{name:name}": Row(LOADER, scope="enqueue", target=name_of_a_job),
    "POST /ui/run/{name:name}": Row(
        LOADER, scope="enqueue", target=name_of_a_job, fields={"value:/a": "1"}, statuses=(303,)
    ),
    "GET /ui/jobs/{job_id}/result": Row(VIEWER, target=of(World.ended), owned=True),
    "GET /ui/jobs/{job_id}/result/{number}": Row(
        VIEWER, target=of(World.ended), owned=True, statuses=(404,)
    ),
    "GET /ui/audit": Row(ADMINISTRATOR, across=True),
    "GET /ui/keys": Row(ADMINISTRATOR, across=True),
    "GET /ui/keys/new": Row(ADMINISTRATOR, across=True),
    "POST /ui/keys": Row(
        ADMINISTRATOR, across=True, fields={"name": "new", "scopes": "read"}, statuses=(201,)
    ),
    "POST /ui/keys/{key_id}/rotate": Row(
        ADMINISTRATOR, across=True, target=of(World.key_id), statuses=(201,)
    ),
    "POST /ui/keys/{key_id}/revoke": Row(ADMINISTRATOR, across=True, target=of(World.key_id)),
    "GET /ui/dead": Row(VIEWER),
    "POST /ui/dead/change": _change_group("fingerprint"),
    "GET /ui/dead/{fingerprint}": Row(VIEWER, target=of(World.error_group), owned=True),
    "POST /ui/dead/{fingerprint}/change": _change_group(),
    "POST /ui/dead/{fingerprint}/requeue": Row(
        OPERATOR, target=of(World.error_group), owned=True, fields={"rate": "50"}
    ),
    "GET /ui/bulk": Row(VIEWER),
    "GET /ui/bulk/{id}": Row(VIEWER, target=of(World.bulk_change), owned=True),
    "POST /ui/bulk/{id}/start": _CHANGE,
    "POST /ui/bulk/{id}/pause": _CHANGE,
    "POST /ui/bulk/{id}/resume": _CHANGE,
    "POST /ui/bulk/{id}/cancel": _CHANGE,
    "GET /ui/queues": Row(VIEWER, across=True),
    "GET /ui/queues/{queue:name}": Row(VIEWER, across=True, target=of(World.paused_queue)),
    "POST /ui/queues/{queue:name}/pause": Row(OPERATOR, across=True, target=_new_queue),
    "POST /ui/queues/{queue:name}/resume": Row(
        OPERATOR, across=True, target=of(World.paused_queue)
    ),
    "POST /ui/queues/{queue:name}/cap": Row(
        OPERATOR, across=True, target=_new_queue, fields={"running_max": "3"}
    ),
    "POST /ui/queues/{queue:name}/purge": Row(
        OPERATOR, across=True, target=_new_queue, fields={"name": "TARGET"}
    ),
    "GET /ui/breakers": Row(VIEWER, across=True),
    "POST /ui/breakers": Row(
        OPERATOR, across=True, target=_new_queue, fields={"key": "TARGET", "because": "a test"}
    ),
    "POST /ui/breakers/{key:name}/open": Row(OPERATOR, across=True, target=_new_queue),
    "POST /ui/breakers/{key:name}/close": Row(OPERATOR, across=True, target=of(World.open_breaker)),
    "POST /ui/breakers/{key:name}/reset": Row(OPERATOR, across=True, target=of(World.open_breaker)),
    "GET /ui/workers": Row(VIEWER, across=True),
    "GET /ui/{rest:path}": Row(LOADER, statuses=(404,)),
}
