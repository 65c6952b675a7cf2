"""A child process: runs handlers for the worker that started it, one at a time.

The main thread runs the handlers and their resources, a side thread the connection to the worker.
"""

from __future__ import annotations

import asyncio
import contextvars
import fcntl
import inspect
import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import replace
from typing import Any, Final

from holdfast.context import current_context
from holdfast.domain import codec, texts
from holdfast.domain.limits import CHILD_MESSAGE_BYTES_MAX
from holdfast.domain.outcomes import Failed, Outcome, Succeeded
from holdfast.job_function import Definition
from holdfast.observability import logs, tracing
from holdfast.worker import resources
from holdfast.worker.classify import classify
from holdfast.worker.processes import memory
from holdfast.worker.processes.link import Link
from holdfast.worker.processes.messages import Boot, Ended, NotReady, Ready
from holdfast.worker.processes.origin import load_app
from holdfast.worker.run import Run

_TITLE: Final = "holdfast-child"


def main() -> None:
    link_descriptor, lifeline = map(int, sys.argv[1:])
    _become_child(lifeline)
    with closing(Link(link_descriptor)) as link:
        try:
            app = _load(link.boot)
        except BaseException as error:
            link.send(_not_ready("the app could not be imported", error))
            return
        definitions, functions = app._for_child(link.boot.url)
        bytes_max = min(app.settings.result_bytes_max, CHILD_MESSAGE_BYTES_MAX // 2)
        link.results = replace(app.settings.results, bytes_max=bytes_max)
        with asyncio.Runner() as runner:
            _serve_with_resources(link, definitions, functions, runner)
        app.close_sync()


def _become_child(lifeline: int) -> None:
    """Tie this process to the worker: the worker handles signals for both, and we die with it."""
    _IgnoredSignals().install()
    if sys.platform == "linux":
        # When the worker is gone, the kernel kills us and what the handlers started, even if a
        # handler never lets another thread run.
        os.set_inheritable(lifeline, False)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
        with suppress(OSError), open("/proc/self/comm", "w") as title:
            title.write(_TITLE)


class _IgnoredSignals:
    """Handles signals that are meant for the worker by doing nothing. SIG_IGN would be inherited by
    processes that handlers start. Forked processes, like those of `multiprocessing`, get the
    previous handlers back."""

    _NUMBERS: Final = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._thread = threading.local()

    def install(self) -> None:
        for number in self._NUMBERS:
            self._before[number] = signal.signal(number, self._ignore)
        os.register_at_fork(
            before=self._block, after_in_parent=self._unblock, after_in_child=self._restore
        )

    def _ignore(self, number: int, frame: object) -> None:
        pass

    def _block(self) -> None:
        # A signal that is sent to a forked process at once waits until its handlers are back.
        self._thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._NUMBERS)

    def _unblock(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._thread.mask)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._ignore:
                signal.signal(number, handler)
        self._unblock()


def _load(boot: Boot) -> Any:
    sys.path[:] = boot.path
    app = load_app(boot.origin)
    if boot.log_format is not None:
        logs.configure(boot.log_format, boot.log_level)
    return app


def _not_ready(reason: str, error: BaseException) -> NotReady:
    return NotReady(reason, type(error).__name__, texts.error_text(error))


def _serve_with_resources(
    link: Link,
    definitions: Mapping[str, Definition],
    functions: Mapping[str, resources.ResourceFunction],
    runner: asyncio.Runner,
) -> None:
    stack = AsyncExitStack()

    async def enter() -> dict[str, Any]:
        return await stack.enter_async_context(resources.opened(functions))

    try:
        link.resources = runner.run(enter())
    except BaseException as error:
        link.send(_not_ready("a resource could not be opened", error))
        return
    link.send(Ready())
    _serve(link, definitions)
    runner.run(stack.aclose())


def _serve(link: Link, definitions: Mapping[str, Definition]) -> None:
    while (work := link.work.get()) is not None:
        run, perform = work
        definition = definitions.get(run.job.name)
        outcome: Outcome | None
        if definition is None:
            text = "is not defined when its module is imported; define it at module level"
            outcome = Failed("CHILD_FAILED", f"the job {run.job.name} {text}")
        else:
            outcome = _perform(run, definition, perform.memory_bytes_max, link.results)
        link.send(Ended.of(outcome, memory.used_bytes()))


def _perform(
    run: Run, definition: Definition, memory_bytes_max: int | None, results: codec.Results
) -> Outcome | None:
    try:
        values = definition.signature.load(run.job.arguments)
        with memory.limited(memory_bytes_max):
            value = contextvars.copy_context().run(_call, definition, run, values)
        if run.context._noticed_stop:
            raise asyncio.CancelledError
        result = results.encode(run.context._result_or(value))
    except BaseException as error:
        return classify(definition, run, error)
    return None if run.is_lost else Succeeded(result)


def _call(definition: Definition, run: Run, values: dict[str, Any]) -> Any:
    context = run.context
    current_context.set(context)
    tracing.continue_trace(run.job.trace)
    arguments = (context,) if definition.signature.takes_context else ()
    value = definition.function(*arguments, **values)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError("an async function can't run in a child process; remove executor=")
    return value
