"""The signals that tell a process to stop.

They are noticed on a thread of their own, whatever the event loop is busy with: Python writes the
number of each signal to a socket in the moment in which it arrives.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from holdfast.runtime.seam import Lane, Seam

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_before: dict[signal.Signals, Any] = {}  # what handled them before us
_forking = threading.local()


@asynccontextmanager
async def handling_signals(
    seam: Seam,
    handle: Callable[[signal.Signals], None],
    notice: Callable[[], None] = lambda: None,
) -> AsyncIterator[None]:
    """Call `notice` on another thread as soon as a signal arrives, and `handle` on this loop."""
    loop = asyncio.get_running_loop()

    def arrived(numbers: bytes) -> None:
        for number in numbers:
            if number in STOP_SIGNALS:
                notice()
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(handle, signal.Signals(number))

    reading, writing = socket.socketpair()
    writing.setblocking(False)
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number in STOP_SIGNALS:
        signal.signal(number, partial(_write_unless_written, writing))
        signal.siginterrupt(number, False)
    others = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    lane: Lane[socket.socket] = seam.lane("holdfast-signals", partial(_read, others, arrived))
    lane.put(reading)
    _before.update(before)
    try:
        yield
    finally:
        _before.clear()
        if _is_told(writing):
            signal.set_wakeup_fd(others, warn_on_full_buffer=False)
        for number, handler in before.items():
            if handler is not None:  # else not Python's, and nothing to go back to
                signal.signal(number, handler)
        writing.shutdown(socket.SHUT_RDWR)  # a copy of this process may have it open, too
        writing.close()
        lane.close()


def _read(others: int, arrived: Callable[[bytes], None], sockets: list[socket.socket]) -> None:
    """Pass all on to those who were told of signals before: the event loop, say."""
    (reading,) = sockets
    with reading:
        while numbers := reading.recv(64):
            arrived(numbers)
            if others != -1:
                with suppress(OSError):
                    os.write(others, numbers)


def _write_unless_written(writing: socket.socket, number: int, frame: object) -> None:
    """Python tells one socket only: since somebody has an event loop handle another signal, say,
    that is the loop's. Then ours is told here, as soon as the main thread comes to it."""
    if not _is_told(writing):
        with suppress(OSError):
            writing.send(bytes([number]))


def _is_told(ours: socket.socket) -> bool:
    """Is this the socket to which Python writes signals? To ask is to choose it, for a moment."""
    told = signal.set_wakeup_fd(ours.fileno(), warn_on_full_buffer=False)
    if told != ours.fileno():
        with suppress(OSError, ValueError):  # closed meanwhile
            signal.set_wakeup_fd(told)
        return False
    return True


def _block() -> None:
    # What is sent to a copy right after its birth waits until it hears for itself.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _hear_for_itself() -> None:
    """A copy of this process would tell its signals to the thread of its parent, by a socket that
    both have: ending a process that a handler started would end the worker."""
    if _before:
        signal.set_wakeup_fd(-1)
        for number, handler in _before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        _before.clear()
    _unblock()


os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_hear_for_itself)
