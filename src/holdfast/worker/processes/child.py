"""A child process: runs handlers, or functions, for the worker that started it, one at a time.

The main thread runs them and the handlers' resources, a side thread the connection to the worker.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import replace
from typing import Any, Final

from holdfast.domain import texts
from holdfast.domain.limits import CHILD_MESSAGE_BYTES_MAX
from holdfast.observability import logs
from holdfast.worker import resources
from holdfast.worker.log_filter import LogFilter
from holdfast.worker.processes import calls
from holdfast.worker.processes.handlers import Handlers
from holdfast.worker.processes.link import Link
from holdfast.worker.processes.messages import AppBoot, Boot, Call, NotReady, Ready
from holdfast.worker.processes.origin import load

_TITLE: Final = "holdfast-child"


def main() -> None:
    link_descriptor, lifeline = map(int, sys.argv[1:])
    _become_child(lifeline)
    with closing(Link(link_descriptor)) as link:
        sys.path[:] = link.boot.path
        if link.boot.app is not None:
            _serve_app(link, link.boot.app)
            return
        _configure_logs(link.boot)
        link.send(Ready())
        _serve(link, None)


def _serve_app(link: Link, boot: AppBoot) -> None:
    try:
        app = load(boot.origin)
        _configure_logs(link.boot)
        app._middleware.check_registered(boot.middleware)
    except BaseException as error:
        link.send(_not_ready("the app could not be imported", error))
        return
    definitions, functions = app._for_child(boot.url)
    bytes_max = min(app.settings.result_bytes_max, CHILD_MESSAGE_BYTES_MAX // 2)
    link.results = replace(app.settings.results, bytes_max=bytes_max)
    around = app._middleware.compose(log_errors=boot.log_errors)
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        handlers = Handlers(definitions, around, link.results, loop, log_errors=boot.log_errors)
        _serve_with_resources(link, handlers, functions, runner)
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


def _configure_logs(boot: Boot) -> None:
    if boot.log_format is not None:
        logs.configure(boot.log_format, boot.log_level, LogFilter())


def _not_ready(reason: str, error: BaseException) -> NotReady:
    return NotReady(reason, type(error).__name__, texts.error_text(error))


def _serve_with_resources(
    link: Link,
    handlers: Handlers,
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
    _serve(link, handlers)
    runner.run(stack.aclose())


def _serve(link: Link, handlers: Handlers | None) -> None:
    while (work := link.work.get()) is not None:
        if isinstance(work, Call):
            link.send(calls.perform(work))
        elif handlers is not None:
            run, perform = work
            link.send(handlers.perform(run, perform.memory_bytes_max))
