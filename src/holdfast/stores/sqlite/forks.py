"""Forks, and the connections that a child must not inherit.

SQLite tracks a process's locks on a file in memory. A fork copies that memory, but not the locks:
the child would wait forever for a lock that nobody releases, or write without one. So disconnect
before a fork. During a transaction that is impossible; then the child must not use the file.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from weakref import WeakSet

from holdfast.domain.errors import ConfigurationError
from holdfast.runtime.seam import Seam

FORK_WAIT_SECONDS_MAX = 5.0  # for open transactions


class Usage:
    """The use of a connection. Hold `lock` while working with it: forks wait for that.

    A fork calls `disconnect` with the lock held; it returns whether the connection is closed.
    """

    def __init__(self, path: str, disconnect: Callable[[], bool]) -> None:
        self.path = os.path.realpath(path)
        self.lock = threading.Lock()
        self.disconnect = disconnect
        with _forking.registry:
            _forking.usages.add(self)


class _Forking:
    """What is held during a fork."""

    def __init__(self) -> None:
        self.registry = threading.Lock()
        self.usages: WeakSet[Usage] = WeakSet()
        self.refused: set[str] = set()  # files that this process, a child, can't use
        self._stopped: list[Usage] = []
        self._connected: list[Usage] = []  # a child keeps these: closing them would harm the parent

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


_forking = _Forking()
os.register_at_fork(
    before=_forking.before,
    after_in_parent=_forking.after_in_parent,
    after_in_child=_forking.after_in_child,
)


def check_not_refused(path: str) -> None:
    if _forking.refused and os.path.realpath(path) in _forking.refused:
        raise ConfigurationError(
            f"this process can't use {path}: it was forked during a transaction on it, which SQLite"
            " does not support; fork outside hf.transaction() and ctx.completing(), or start the"
            " process with multiprocessing's spawn method"
        )
