"""What an app runs around its handlers: middleware, and hooks before and after them.

A worker composes one chain of middleware when it starts. The first one registered is the outermost.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from logging import WARNING
from typing import Any, Final, Literal, Protocol, TypeVar

from holdfast.context import Context
from holdfast.domain import texts
from holdfast.domain.errors import ConfigurationError, JobError, JobTimeout
from holdfast.domain.limits import HOOK_SECONDS_MAX
from holdfast.domain.outcomes import Crashed, Failed
from holdfast.observability import logs
from holdfast.worker.run import Run, Stop

Kind = Literal["middleware", "before_run", "after_run", "on_failure"]
Function = TypeVar("Function", bound=Callable[..., Any])

PARAMETERS: Final[dict[Kind, tuple[str, ...]]] = {
    "middleware": ("ctx", "call_next"),
    "before_run": ("ctx",),
    "after_run": ("ctx", "result"),
    "on_failure": ("ctx", "error"),
}


class CallNext(Protocol):
    """The second argument of a middleware function. It runs the next middleware, or the handler,
    and returns the result."""

    def __call__(self) -> Awaitable[Any]: ...


AsyncFunction = TypeVar("AsyncFunction", bound=Callable[[Context, CallNext], Awaitable[Any]])
Link = Callable[[Run, CallNext], Awaitable[Any]]


class Middleware:
    """The middleware and hooks of an app, in the order of registration."""

    def __init__(self) -> None:
        self._registered: list[tuple[Kind, Callable[..., Any]]] = []

    def add(self, kind: Kind, function: Function) -> Function:
        _check(kind, function)
        if (kind, function) in self._registered:
            raise ConfigurationError(f"the {kind} {_name(function)!r} is already registered")
        self._registered.append((kind, function))
        return function

    def inside(self, *outer: tuple[Kind, Callable[..., Any]]) -> Middleware:
        """The same, with these around it. For tests."""
        copy = Middleware()
        copy._registered = [*outer, *self._registered]
        return copy

    @property
    def functions(self) -> list[Callable[..., Any]]:
        return [function for _, function in self._registered]

    @property
    def names(self) -> list[str]:
        return [f"{kind} {_name(function)}" for kind, function in self._registered]

    def check_registered(self, names: Sequence[str]) -> None:
        """Refuse to run in a child process without what runs in its worker."""
        if missing := [name for name in names if name not in self.names]:
            raise ConfigurationError(
                f"the {missing[0]} is not registered when its module is imported; register it at"
                " module level"
            )

    def compose(self, *, log_errors: bool) -> Around | None:
        """What is registered by now, for one worker; None if that is nothing."""
        return Around(tuple(self._registered), log_errors) if self._registered else None


class Around:
    """Runs around every attempt of one worker.

    Hooks after the handler can't change what the attempt came to: they are told when that is
    decided, and get a limited time.
    """

    def __init__(
        self, registered: Sequence[tuple[Kind, Callable[..., Any]]], log_errors: bool
    ) -> None:
        self._chain: Link = _innermost
        for kind, function in reversed(registered):
            if kind == "middleware":
                self._chain = partial(_run_middleware, function, self._chain)
            elif kind == "before_run":
                self._chain = partial(_run_before, function, self._chain)
        self._after_run = [each for kind, each in registered if kind == "after_run"]
        self._on_failure = [each for kind, each in registered if kind == "on_failure"]
        self._log_errors = log_errors

    async def call(self, run: Run, call: CallNext) -> Any:
        """Run the middleware and, inside of it, the handler."""
        returned = False

        async def call_handler() -> Any:
            nonlocal returned
            if run.stop is not None:
                raise asyncio.CancelledError
            run.variables = contextvars.copy_context()
            try:
                value = await call()
            finally:
                run.variables = contextvars.copy_context()
            returned = True
            return value

        value = await self._chain(run, call_handler)
        if run.stop is not None and not returned:
            # A middleware caught the cancellation. The handler has to stop all the same.
            raise asyncio.CancelledError
        return value

    async def succeeded(self, run: Run, result: Any) -> None:
        if self._after_run:
            await self._tell_all("after_run", self._after_run, run, result)

    async def failed(self, run: Run, failed: Failed | Crashed, error: BaseException | None) -> None:
        """`error` is what the handler raised, if that is known here."""
        if self._on_failure:
            shown = _shown_error(run, failed, error)
            await self._tell_all("on_failure", self._on_failure, run, shown)

    async def _tell_all(
        self, kind: Kind, functions: Sequence[Callable[..., Any]], run: Run, value: Any
    ) -> None:
        """In a task of its own, for the handler's context variables: middleware has reset them."""

        async def tell() -> None:
            for function in functions:
                await self._tell(kind, function, run, value)

        await asyncio.get_running_loop().create_task(tell(), context=run.variables)

    async def _tell(self, kind: Kind, function: Callable[..., Any], run: Run, value: Any) -> None:
        try:
            async with asyncio.timeout(HOOK_SECONDS_MAX):
                await _awaited(function(run.context, value))
        except BaseException as error:
            # Even a SystemExit, and the cancellation by a worker that stops: the job has ended.
            logs.event(
                WARNING,
                "hook_failed",
                f"the {kind} hook {_name(function)} raised {texts.type_name(error)}",
                exception=error if self._log_errors and not run.encrypted else None,
                traceback=logs.formatted(error, withheld=True)
                if self._log_errors and run.encrypted
                else None,
                job_id=run.job.id,
                name=run.job.name,
            )


async def _innermost(run: Run, call_next: CallNext) -> Any:
    return await call_next()


async def _run_middleware(
    function: Callable[..., Awaitable[Any]], inner: Link, run: Run, call: CallNext
) -> Any:
    called = False

    def call_next() -> Awaitable[Any]:
        nonlocal called
        if called:
            raise RuntimeError(
                f"the middleware {_name(function)} called call_next twice; a handler runs once per"
                " attempt"
            )
        called = True
        return inner(run, call)

    return await function(run.context, call_next)


async def _run_before(function: Callable[..., Any], inner: Link, run: Run, call: CallNext) -> Any:
    await _awaited(function(run.context))
    return await inner(run, call)


async def _awaited(value: Any) -> None:
    if inspect.isawaitable(value):
        await value


def _shown_error(run: Run, failed: Failed | Crashed, error: BaseException | None) -> BaseException:
    """The handler's own error. A timeout shows as a cancellation where it strikes, and a process
    that died raised nothing."""
    timed_out = failed.code == JobTimeout.default_code
    if error is not None and not (timed_out and run.stop is Stop.TIMEOUT):
        return error
    shown = JobTimeout(failed.text) if timed_out else JobError(failed.text, code=failed.code)
    shown.__cause__ = error
    return shown


def _check(kind: Kind, function: Callable[..., Any]) -> None:
    parameters = ", ".join(PARAMETERS[kind])
    name = _name(function)
    if not callable(function):
        raise ConfigurationError(f"@hf.{kind} decorates a function, not {texts.shown(function)}")
    called = type(function).__call__ if hasattr(type(function), "__call__") else None  # noqa: B004
    if kind == "middleware" and not (
        inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
    ):
        raise ConfigurationError(
            f"the middleware {name} must be an async function: async def {name}({parameters})"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(f"the {kind} hook {name} must not yield; use @hf.middleware")
    try:
        inspect.signature(function).bind(*PARAMETERS[kind])
    except TypeError as error:
        raise ConfigurationError(f"the {kind} {name} must accept ({parameters}): {error}") from None


def _name(function: object) -> str:
    return str(getattr(function, "__name__", None) or texts.type_name(function))
