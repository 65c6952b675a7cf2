"""Sync twins of coroutine methods, for code without an event loop: `get_sync = blocking(get)`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from holdfast.transactions.drivers import in_sync_twin, run_now

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="HasSyncLoop")

_END: Any = object()


class RunSync(Protocol):
    """Run a coroutine on the sync loop of the app, and wait for it."""

    def __call__(self, work: Coroutine[Any, Any, R], /) -> R: ...


class HasSyncLoop(Protocol):
    @property
    def _run_sync(self) -> RunSync: ...


@overload
def blocking(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], R]: ...


@overload
def blocking(
    method: Callable[Concatenate[S, P], AsyncIterator[R]],
) -> Callable[Concatenate[S, P], Iterator[R]]: ...


def blocking(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make the sync twin of a method that is a coroutine, or that returns an async iterator.

    With `connection=...`, the work is done on that connection, in the caller's thread: see
    `recognize_callers`.
    """
    name = f"{method.__name__}_sync"
    is_coroutine = inspect.iscoroutinefunction(method)
    instead = f"{'await' if is_coroutine else 'async for ... in'} {method.__name__}(...)"

    def call(self: HasSyncLoop, /, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("connection") is not None:
            with in_sync_twin():
                return run_now(method(self, *args, **kwargs))
        refuse_on_loop(name, instead)
        return self._run_sync(method(self, *args, **kwargs))

    def iterate(self: HasSyncLoop, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        steps = method(self, *args, **kwargs)
        while True:
            refuse_on_loop(name, instead)
            step = self._run_sync(_next(steps))
            if step is _END:
                return
            yield step

    twin = wraps(method)(call if is_coroutine else iterate)
    twin.__name__ = name
    twin.__qualname__ = f"{method.__qualname__}_sync"
    twin.__doc__ = f"`{method.__name__}` for code without an event loop."
    return twin


async def _next(steps: AsyncIterator[Any]) -> Any:
    return await anext(steps, _END)


def wait_for(running: Future[R]) -> R:
    """Wait for work on another thread's loop. Ctrl-C cancels it."""
    try:
        return running.result()
    except BaseException:
        running.cancel()  # no effect on what has ended with an error of its own
        raise


@contextmanager
def entered_sync(run_sync: RunSync, block: AbstractAsyncContextManager[R]) -> Iterator[R]:
    """Enter an async block on the sync loop, and leave it there with the error of this one."""
    value = run_sync(_enter(block))
    try:
        yield value
    except BaseException as error:
        _leave_sync(run_sync, block, error)
        raise
    _leave_sync(run_sync, block, None)


async def _enter(block: AbstractAsyncContextManager[R]) -> R:
    return await block.__aenter__()


def _leave_sync(
    run_sync: RunSync, block: AbstractAsyncContextManager[Any], error: BaseException | None
) -> None:
    leaving: list[asyncio.Task[None]] = []

    async def leave() -> None:
        if not leaving:
            leaving.append(asyncio.create_task(_leave(block, error)))
        await asyncio.shield(leaving[0])

    try:
        run_sync(leave())
    except BaseException:
        # Ctrl-C must not cut a commit or a rollback in half, or hide whether it happened.
        with suppress(Exception):
            run_sync(leave())
        raise


async def _leave(block: AbstractAsyncContextManager[Any], error: BaseException | None) -> None:
    if error is None:
        await block.__aexit__(None, None, None)
    else:
        await block.__aexit__(type(error), error, error.__traceback__)


def refuse_on_loop(name: str, instead: str) -> None:
    """Raise if this thread runs an event loop, which a wait would block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{name} blocks the event loop; use: {instead}")
