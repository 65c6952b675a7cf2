"""Watch the runs of a sandbox: keep what handlers raise, and let workers die on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

from holdfast.context import Context
from holdfast.domain.errors import LeaseLost
from holdfast.domain.job import Job, Lease, Settlement
from holdfast.domain.limits import RECLAIM_BATCH_MAX
from holdfast.domain.states import State
from holdfast.job_function import Definition
from holdfast.worker.middleware import CallNext, Middleware


class Runs:
    """`errors` are what attempts last failed with, by job. `expire` lets a lease expire at once."""

    def __init__(
        self, definitions: Mapping[str, Definition], expire: Callable[[Lease], Awaitable[None]]
    ) -> None:
        self.errors: dict[UUID, BaseException] = {}
        self._definitions = definitions
        self._expire = expire
        self._crashes: Counter[str] = Counter()

    def crash(self, name: str, times: int) -> None:
        self._crashes[name] += times

    def around(self, middleware: Middleware) -> Middleware:
        return middleware.inside(("middleware", self._run), ("on_failure", self._failed))

    async def _run(self, ctx: Context, call_next: CallNext) -> Any:
        name = self._definitions[ctx.name].name
        if self._crashes[name]:
            self._crashes[name] -= 1
            await self._run_and_crash(ctx, call_next)
        return await call_next()

    async def _run_and_crash(self, ctx: Context, call_next: CallNext) -> None:
        """Run the handler, but record nothing: its lease expires, and its job is reclaimed."""
        store: Any = ctx._around.store
        ctx._around = replace(ctx._around, store=_Doomed(store))
        with suppress(Exception, _Crash):
            await call_next()
        job: Job | None = await store.get(ctx.job_id)
        while job is not None and (job.state, job.fence) == (State.RUNNING, ctx.fence):
            await self._expire(ctx._job.lease)
            await store.reclaim(RECLAIM_BATCH_MAX)
            job = await store.get(ctx.job_id)
        raise LeaseLost(ctx.job_id, ctx.fence)

    def _failed(self, ctx: Context, error: BaseException) -> None:
        self.errors[ctx.job_id] = error


class _Crash(BaseException):
    """The end of a process. No handler catches it."""


class _Doomed:
    """The store of a handler whose process ends before the handler's own transaction commits."""

    def __init__(self, store: Any) -> None:
        self.connection = store.connection
        self.writing = store.writing
        self.standing = store.standing
        self.progress = store.progress

    def enrol(self, *_: Any) -> _Doomed:
        return self

    async def settle(self, settlement: Settlement) -> bool:
        raise _Crash
