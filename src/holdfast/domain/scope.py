"""Whose rows the running task may see: those of one tenant, or all.

A store whose database has row-level security passes it the scope when a transaction begins. This is
a second wall: every operation also names its tenant itself.

Tasks inherit the scope of the code that creates them. Create tasks that serve many tenants inside
`all_tenants()`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="OfTenant")

_tenant: ContextVar[str | None] = ContextVar("holdfast_scope", default=None)


def scoped_tenant() -> str | None:
    """The tenant whose rows the running task may see; None means all tenants."""
    return _tenant.get()


@contextmanager
def scope(tenant: str | None) -> Iterator[None]:
    """See only this tenant's rows in the block; None leaves the scope as it is."""
    if tenant is None:
        yield
        return
    before = _tenant.set(tenant)
    try:
        yield
    finally:
        _tenant.reset(before)


def narrow(tenant: str | None) -> None:
    """See only this tenant's rows until the enclosing block of `scope` or `all_tenants` ends; None
    leaves the scope as it is."""
    if tenant is not None:
        _tenant.set(tenant)


@contextmanager
def all_tenants() -> Iterator[None]:
    """See all rows in the block, for tasks that serve many tenants at once."""
    before = _tenant.set(None)
    try:
        yield
    finally:
        _tenant.reset(before)


class OfTenant(Protocol):
    _tenant: str | None


def scoped(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Run a method in the scope of its object's tenant, if it has one."""

    @wraps(method)
    async def within(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with scope(self._tenant):
            return await method(self, *args, **kwargs)

    return within
