"""Copies of this process (os.fork), and the connections that they must not inherit.

SQLite remembers in the process's memory which locks the process has on a file. A copy inherits what
is remembered, but not the locks: it would wait forever for a lock that nobody releases, or write
without one. So nobody is connected while a copy is made. A transaction that is open meanwhile can't
be closed for that: then the copy is told that it can't use the file.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from weakref import WeakSet

from holdfast.domain.errors import ConfigurationError
from holdfast.runtime.seam import Seam

FORK_WAIT_SECONDS_MAX = 5.0  # for transactions that are under way


class Usage:
    """The use of a connection: whoever works with it holds `lock`, and copies wait until then.

    `disconnect` is called with the lock held, and answers whether there is no connection any more.
    """

    def __init__(self, path: str, disconnect: Callable[[], bool]) -> None:
        self.path = os.path.realpath(path)
        self.lock = threading.Lock()
        self.disconnect = disconnect
        with _copying.registry:
            _copying.usages.add(self)


class _Copying:
    """What is held while this process is copied."""

    def __init__(self) -> None:
        self.registry = threading.Lock()
        self.usages: WeakSet[Usage] = WeakSet()
        self.refused: set[str] = set()  # in this process, which is a copy
        self._stopped: list[Usage] = []
        self._connected: list[Usage] = []  # never collected in a copy, which must not close them

    def before(self) -> None:
        self.registry.acquire()
        until = Seam.monotonic() + FORK_WAIT_SECONDS_MAX
        for usage in list(self.usages):
            stopped = usage.lock.acquire(timeout=max(until - Seam.monotonic(), 0.0))
            if stopped:
                self._stopped.append(usage)
            if not (stopped and usage.disconnect()):
                self._connected.append(usage)

    def after_in_parent(self) -> None:
        self._connected.clear()
        self._release()

    def after_in_child(self) -> None:
        self.refused.update(usage.path for usage in self._connected)
        self._release()

    def _release(self) -> None:
        while self._stopped:
            self._stopped.pop().lock.release()
        self.registry.release()


_copying = _Copying()
os.register_at_fork(
    before=_copying.before,
    after_in_parent=_copying.after_in_parent,
    after_in_child=_copying.after_in_child,
)


def check_not_refused(path: str) -> None:
    if _copying.refused and os.path.realpath(path) in _copying.refused:
        raise ConfigurationError(
            f"{path} can't be used in this process: it was forked during a transaction on it,"
            " which SQLite does not support; fork outside hf.transaction() and ctx.completing(), or"
            " start the process with multiprocessing's spawn method"
        )
