"""Signals that stop a process.

A separate thread notices them, whatever the event loop is busy with: Python writes the number of
each signal to a socket as soon as it arrives.
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

from holdfast.runtime.seam import BatchThread, Seam

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
    read = partial(_read, others, arrived)
    thread: BatchThread[socket.socket] = seam.thread("holdfast-signals", read)
    thread.put(reading)
    _before.update(before)
    try:
        yield
    finally:
        _before.clear()
        if _is_wakeup_socket(writing):
            signal.set_wakeup_fd(others, warn_on_full_buffer=False)
        for number, handler in before.items():
            if handler is not None:  # otherwise it was not set from Python
                signal.signal(number, handler)
        writing.shutdown(socket.SHUT_RDWR)  # a forked process may have it open, too
        writing.close()
        thread.close()


def _read(others: int, arrived: Callable[[bytes], None], sockets: list[socket.socket]) -> None:
    """Pass all signals on to the previous reader, for example the event loop."""
    (reading,) = sockets
    with reading:
        while numbers := reading.recv(64):
            arrived(numbers)
            if others != -1:
                with suppress(OSError):
                    os.write(others, numbers)


def _write_unless_written(writing: socket.socket, number: int, frame: object) -> None:
    """Python writes to one socket only. If another one replaced ours, for example because an event
    loop handles another signal, write to ours as soon as the main thread gets here."""
    if not _is_wakeup_socket(writing):
        with suppress(OSError):
            writing.send(bytes([number]))


def _is_wakeup_socket(ours: socket.socket) -> bool:
    """Does Python write signals to this socket? The only way to ask is to set it for a moment."""
    current = signal.set_wakeup_fd(ours.fileno(), warn_on_full_buffer=False)
    if current != ours.fileno():
        with suppress(OSError, ValueError):  # closed by now
            signal.set_wakeup_fd(current)
        return False
    return True


def _block() -> None:
    # A signal that is sent to a forked process at once waits until the process can handle it.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _reset_after_fork() -> None:
    """A forked process shares the socket: its signals would reach the thread of its parent, and
    ending a process that a handler started would end the worker."""
    if _before:
        signal.set_wakeup_fd(-1)
        for number, handler in _before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        _before.clear()
    _unblock()


os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_reset_after_fork)
