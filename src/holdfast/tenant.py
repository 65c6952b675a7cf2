"""The jobs of one tenant: enqueue, find and change them, and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload
from uuid import UUID

from holdfast.domain.job import Job
from holdfast.domain.scope import scope
from holdfast.job_function import Call, JobFunction
from holdfast.operations.operations import Noun
from holdfast.operations.results import wait_for_result
from holdfast.runtime.blocking import blocking
from holdfast.transactions.sync import SyncConnection

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.operations.bulk import Bulk
    from holdfast.operations.dead import Dead
    from holdfast.operations.jobs import Jobs

P = ParamSpec("P")
R = TypeVar("R")


class Tenant:
    """`hf.for_tenant("acme")`: the jobs of one tenant, as if no other tenant existed.

    A job of another tenant raises JobNotFound, exactly like one that does not exist. This object
    costs nothing to create: create one for each request.
    """

    jobs: Noun[Jobs] = Noun()
    dead: Noun[Dead] = Noun()
    bulk: Noun[Bulk] = Noun()

    def __init__(self, app: Holdfast, name: str) -> None:
        self._app = app
        self.name = name
        self._operations = app._operations.of(name)
        self._run_sync = app._run_sync

    def __repr__(self) -> str:
        return f"<tenant {self.name}>"

    async def enqueue(
        self, job_function: JobFunction[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[R]:
        """Enqueue a job for this tenant: `await tenant.enqueue(resize, 17)`.

        In a handler, this tenant overrides that of the handler's job. To set other options, pass
        `resize.options(...)`; if they name another tenant, this raises BadArguments.
        """
        with scope(self.name):
            return await job_function._for_tenant(self.name).enqueue(*args, **kwargs)

    def enqueue_sync(
        self, job_function: JobFunction[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[R]:
        """`enqueue` for code without an event loop."""
        with scope(self.name):
            return job_function._for_tenant(self.name).enqueue_sync(*args, **kwargs)

    async def enqueue_many(self, calls: Sequence[Call], *, connection: Any = None) -> list[Job]:
        """Like `hf.enqueue_many`, for this tenant. Rejects calls that name another tenant."""
        with scope(self.name):
            return await self._app.enqueue_many(self._own(calls), connection=connection)

    def _own(self, calls: Sequence[Call]) -> list[Call]:
        given = {call.options for call in calls}  # usually the same for all
        own = {options: options.for_tenant(self.name) for options in given}
        return [call.with_options(own[call.options]) for call in calls]

    @asynccontextmanager
    async def transaction(self, *, read_only: bool = False) -> AsyncIterator[Any]:
        """Like `hf.transaction()`, for this tenant.

        With the role `api`, row-level security lets the block read and write only this tenant's
        rows.
        """
        async with AsyncExitStack() as stack:
            with scope(self.name):  # the database learns it when the transaction begins
                block = self._app.transaction(read_only=read_only)
                connection = await stack.enter_async_context(block)
            yield connection

    @contextmanager
    def transaction_sync(self, *, read_only: bool = False) -> Iterator[SyncConnection]:
        """`transaction` for code without an event loop."""
        with ExitStack() as stack:
            with scope(self.name):
                block = self._app.transaction_sync(read_only=read_only)
                connection = stack.enter_context(block)
            yield connection

    async def get(self, job_id: UUID) -> Job:
        """Return the job, or raise JobNotFound."""
        return await self.jobs.get(job_id)

    @overload
    async def result(self, job: Job[R], timeout_seconds: float | None = None) -> R: ...

    @overload
    async def result(self, job: UUID, timeout_seconds: float | None = None) -> Any: ...

    async def result(self, job: Job | UUID, timeout_seconds: float | None = None) -> Any:
        """Wait until the job ends and return its result, like `hf.result`."""
        return await wait_for_result(self._app._desk, self.get, job, timeout_seconds)

    async def cancel(
        self, job_id: UUID, *, by: str | None = None, because: str | None = None
    ) -> Job:
        """Cancel a waiting or running job, like `hf.jobs.cancel`."""
        return await self.jobs.cancel(job_id, by=by, because=because)

    enqueue_many_sync = blocking(enqueue_many)
    get_sync = blocking(get)
    result_sync = blocking(result)
    cancel_sync = blocking(cancel)
