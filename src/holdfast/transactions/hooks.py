"""Functions that run after the commit of a block: `hf.after_commit(connection, function)`."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from logging import WARNING
from typing import Any, NamedTuple

from holdfast.domain.errors import BadArguments, WrongState
from holdfast.domain.limits import AFTER_COMMIT_SECONDS_MAX
from holdfast.domain.texts import type_name
from holdfast.observability import logs
from holdfast.transactions.drivers import finish, itself


class Hooks:
    """The functions of one block, in order."""

    def __init__(self) -> None:
        self.is_committed = False
        self._hooks: list[_Hook] = []

    @property
    def is_empty(self) -> bool:
        return not self._hooks

    def add(self, function: Callable[[], Any], *, log_errors: bool = False) -> None:
        self._hooks.append(_Hook(function, log_errors))

    def add_wake(self, wake: Callable[[], None]) -> None:
        """Add a wake-up, which must not wait for what the application does."""
        self._hooks.insert(0, _Hook(wake, False))

    @contextmanager
    def of(self, connection: Any) -> Iterator[None]:
        """Collect the functions for this connection, inside its transaction."""
        key = id(itself(connection))
        _open[key] = self
        try:
            yield
        finally:
            del _open[key]

    async def run(self) -> None:
        for hook in self._hooks:
            if (started := hook.start()) is not None:
                await hook.finish(started)

    def run_sync(self, run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """Call the functions in this thread, and `run` the rest of async ones on their loop. Ctrl-C
        ends one of them, and is raised after the others."""
        interrupt: KeyboardInterrupt | None = None
        for hook in self._hooks:
            try:
                if (started := hook.start(raise_interrupt=_on_main_thread())) is not None:
                    run(hook.finish(started))
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt


# By the identity of the connection, while its block is open.
_open: dict[int, Hooks] = {}
_unfinished: set[asyncio.Task[None]] = set()  # only these references keep them alive


def hooks_of(connection: Any) -> Hooks | None:
    """The functions of the open block that this connection belongs to, if there is one."""
    return _open.get(id(itself(connection)))


def wake_after(connection: Any) -> Callable[[Callable[[], None]], None] | None:
    """What takes a wake-up to send after the commit, if Holdfast sees this connection's commit."""
    hooks = hooks_of(connection)
    return None if hooks is None else hooks.add_wake


def after_commit(connection: Any, function: Callable[[], Any], *, log_errors: bool) -> None:
    if not callable(function):
        raise BadArguments(
            "after_commit calls a function after the commit: pass the function, not its result"
            f" (this is of type {type_name(function)})"
        )
    hooks = hooks_of(connection)
    if hooks is None:
        raise WrongState(
            "this connection has no open block whose commit Holdfast could see; call after_commit"
            " inside hf.transaction(), ctx.completing() or ctx.failing(), with the connection of"
            " that block, or call the function yourself after your commit"
        )
    hooks.add(function, log_errors=log_errors)


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@asynccontextmanager
async def hooked() -> AsyncIterator[Hooks]:
    """Run the functions at the end, if the block marked them as committed. The connection should
    be back by then, because they may need one."""
    hooks = Hooks()
    canceled: asyncio.CancelledError | None = None
    try:
        yield hooks
    except asyncio.CancelledError as error:
        if not hooks.is_committed:
            raise
        canceled = error
    if not hooks.is_empty:
        # In a separate task: a handler that is canceled here must not cut them short.
        await finish(asyncio.create_task(hooks.run()))
    if canceled is not None:
        raise canceled


class _Hook(NamedTuple):
    """What it raises is logged: the commit stands, and nobody else may suffer."""

    function: Callable[[], Any]
    log_errors: bool

    def start(self, *, raise_interrupt: bool = False) -> Awaitable[Any] | None:
        try:
            started = self.function()
        except BaseException as error:  # even SystemExit, which would end the worker
            self._log(error)
            if raise_interrupt and isinstance(error, KeyboardInterrupt):
                raise
            return None
        return started if inspect.isawaitable(started) else None

    async def finish(self, started: Awaitable[Any]) -> None:
        """Wait in a bounded time, even for a function that does not stop when it is canceled."""
        task = asyncio.ensure_future(self._guard(started))
        _unfinished.add(task)
        task.add_done_callback(_unfinished.discard)
        done, _ = await asyncio.wait({task}, timeout=AFTER_COMMIT_SECONDS_MAX)
        if not done:
            task.cancel()
            self._log(TimeoutError(f"took longer than {AFTER_COMMIT_SECONDS_MAX:g} s"))
        elif task.cancelled():
            self._log(asyncio.CancelledError())

    async def _guard(self, started: Awaitable[Any]) -> None:
        try:
            await started
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._log(error)

    def _log(self, error: BaseException) -> None:
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        logs.event(
            WARNING,
            "after_commit_failed",
            f"{name} failed after the commit, which stands",
            exception=error if self.log_errors else None,
            error_code=type_name(error),
        )
