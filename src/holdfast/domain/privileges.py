"""What each database role may do: decisions that packages keep in `privileges.toml`.

    [tables.webhook_attempts]
    tenant = "coalesce(tenant, 'default')"     # the row's tenant, for row-level security; or
    # shared = "Workers serve all tenants."    # why its rows belong to no tenant
    api = "select"
    delivery = "select, update(status, ended_at)"
    rows.delivery = "queue = 'webhooks.delivery'"    # the role sees only these rows

    [views.dead_letters]
    api = "select"

    [functions.requeue_dead_letter]            # all functions of that name
    execute = ["operator", "api"]              # "all": every role; "caller": see below
    definer = true                             # runs as the owner, with a pinned search_path

Without a decision, nobody gets any privilege. No role may delete or truncate. `maintain` is the
right to vacuum a table, which only PostgreSQL 17 and newer can grant. A caller is an application's
own role that enqueues in its own transactions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from holdfast.domain.errors import ConfigurationError

ROLES: Final = ("api", "worker", "orchestrator", "delivery", "operator", "readonly")
ALL: Final = "all"
CALLER: Final = "caller"
PRIVILEGES: Final = ("select", "insert", "update", "maintain")
OF_TABLES_ONLY: Final = ("maintain",)  # not of columns, nor of views

_GRANT = re.compile(r"\s*+([a-z]++)(?:\(([a-z0-9_, ]++)\))?+\s*+(?:,|\Z)")
_NAME = re.compile(r"[a-z_][a-z0-9_]*")


class Grant(msgspec.Struct, frozen=True):
    """A privilege of one role on one object, or on one of its columns."""

    kind: str  # table, view or function
    object: str
    role: str
    privilege: str
    column: str | None = None


class Table(msgspec.Struct, frozen=True):
    """`tenant` is an SQL expression for a row's tenant; `shared` says why there is none."""

    name: str
    tenant: str | None
    shared: str | None
    rows: Mapping[str, str]


class Function(msgspec.Struct, frozen=True):
    name: str
    definer: bool


class Decisions(msgspec.Struct, frozen=True):
    """The decisions of one or more packages."""

    tables: Sequence[Table] = ()
    views: Sequence[str] = ()
    functions: Sequence[Function] = ()
    grants: Sequence[Grant] = ()


def merged(decisions: Iterable[Decisions]) -> Decisions:
    each = list(decisions)
    return Decisions(
        tables=[table for one in each for table in one.tables],
        views=[view for one in each for view in one.views],
        functions=[function for one in each for function in one.functions],
        grants=[grant for one in each for grant in one.grants],
    )


def read_decisions(text: str, source: str) -> Decisions:
    """Read a `privileges.toml`; errors name its `source`."""
    import tomllib  # which workers don't need

    try:
        content = tomllib.loads(text)
        _only(content, ("tables", "views", "functions"))
        tables = [_table(name, each) for name, each in content.get("tables", {}).items()]
        views = content.get("views", {})
        functions = content.get("functions", {})
        return Decisions(
            tables,
            list(views),
            [Function(name, each.get("definer", False)) for name, each in functions.items()],
            [
                *_grants("table", content.get("tables", {}), ("tenant", "shared", "rows")),
                *_grants("view", views, ()),
                *(each for name in functions for each in _executions(name, functions[name])),
            ],
        )
    except ValueError as error:
        raise ConfigurationError(f"{source}: {error}") from error


def _table(name: str, content: Mapping[str, Any]) -> Table:
    tenant, shared = content.get("tenant"), content.get("shared")
    if (tenant is None) == (shared is None):
        raise ValueError(f"table {name} needs either tenant or shared")
    rows = content.get("rows", {})
    _only(rows, ROLES)
    return Table(name, tenant, shared, rows)


def _grants(
    kind: str, objects: Mapping[str, Mapping[str, str]], other_keys: Sequence[str]
) -> Iterator[Grant]:
    for name, content in objects.items():
        _only(content, (*ROLES, *other_keys))
        for role in ROLES:
            text, place = content.get(role, ""), 0
            while place < len(text):
                match = _GRANT.match(text, place)
                if match is None or not _may_have(kind, *match.groups()):
                    raise ValueError(
                        f"{kind} {name}: {role} can't have {text[place:].strip()!r}; use"
                        f" {', '.join(PRIVILEGES)}, or columns as in update(status, ended_at)"
                    )
                for column in _NAME.findall(match[2]) if match[2] else (None,):
                    yield Grant(kind, name, role, match[1].upper(), column)
                place = match.end()


def _may_have(kind: str, privilege: str, columns: str | None) -> bool:
    if privilege in OF_TABLES_ONLY and (columns is not None or kind != "table"):
        return False
    return privilege in PRIVILEGES


def _executions(name: str, content: Mapping[str, Any]) -> Iterator[Grant]:
    _only(content, ("execute", "definer"))
    listed = content.get("execute", [])
    _only(dict.fromkeys(listed), (*ROLES, ALL, CALLER))
    everyone = ROLES if ALL in listed else ()
    for role in dict.fromkeys((*everyone, *listed)):
        if role != ALL:
            yield Grant("function", name, role, "EXECUTE")


def _only(content: Mapping[str, Any], known: Sequence[str]) -> None:
    if unknown := sorted(set(content) - set(known)):
        raise ValueError(f"unexpected {unknown[0]!r}; use one of {', '.join(known)}")
