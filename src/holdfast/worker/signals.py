"""The signals that tell a process to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_before: dict[signal.Signals, Any] = {}  # what handled them before us
_forking = threading.local()


@asynccontextmanager
async def handling_signals(handle: Callable[[signal.Signals], None]) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, handle, number)
    _before.update(before)
    try:
        yield
    finally:
        _before.clear()
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            if handler is not None:  # else not Python's, and nothing to go back to
                signal.signal(number, handler)


def _block() -> None:
    # What is sent to a copy right after its birth waits until it hears for itself.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _hear_for_itself() -> None:
    """A copy of this process would tell its signals to the loop of its parent, by a socket that
    both have: ending a process that a handler started would end the worker."""
    if _before:
        signal.set_wakeup_fd(-1)
        for number, handler in _before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        _before.clear()
    _unblock()


os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_hear_for_itself)
