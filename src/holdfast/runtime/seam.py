"""The one seam between the engine and the machine: clocks, randomness, threads, connections.

`Seam` is the real machine. `holdfast.testing.simulation` has one that runs the whole engine on a
seeded loop with virtual time, where a process can be killed at any await.
"""

from __future__ import annotations

import asyncio
import os
import queue
import random
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet, finalize

START_SECONDS_MAX = 10.0  # of a thread

T = TypeVar("T")
Item = TypeVar("Item", contravariant=True)

# A copy of this process that a handler makes with os.fork has all that is open here. Whoever opens
# what must not be shared holds this lock meanwhile, and copies are made before or after.
no_forks = threading.Lock()
os.register_at_fork(
    before=no_forks.acquire,
    after_in_parent=no_forks.release,
    after_in_child=no_forks.release,
)


class HasFileno(Protocol):
    def fileno(self) -> int: ...


def give_up(files: Iterable[HasFileno]) -> None:
    """Let go of them in a copy of this process, where their numbers stay taken."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in files:
        with suppress(OSError, ValueError):  # closed already
            os.dup2(nothing, file.fileno(), inheritable=False)
    os.close(nothing)


_randoms: WeakSet[random.Random] = WeakSet()
_sockets: WeakKeyDictionary[Any, HasFileno] = WeakKeyDictionary()  # of connections to servers


def _part_from_parent() -> None:
    """In a copy of this process, repeat nothing of its parent's and disturb none of its sessions.

    A copy that collects a connection would say goodbye to the server in its parent's name, and take
    the socket off the list that the kernel watches for both.
    """
    give_up(socket for owner, socket in list(_sockets.items()) if not owner.is_closed())
    for source in _randoms:
        source.seed()


os.register_at_fork(after_in_child=_part_from_parent)


class Lane(Protocol[Item]):
    """A thread of its own that works off what is put into it, all that waits at a time."""

    def put(self, item: Item) -> None: ...

    def close(self, *, wait: bool = True) -> None:
        """Work off what was put, then end; returns when it has ended, if it is to be waited for."""


class SideLoop(Protocol):
    """An event loop on a thread of its own."""

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]: ...

    def close(self, *, wait: bool = True) -> None: ...


class Threads(Protocol):
    """A bounded number of threads for calls that block."""

    def submit(self, call: Callable[[], T]) -> Future[T]: ...

    def close(self) -> None:
        """Take no more calls; does not wait for those that are under way."""


class Process(Protocol):
    """A child process that runs, or has ended with a code: minus the signal that killed it."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...

    def send_signal(self, signal: int) -> None: ...


class Seam:
    """The real machine."""

    starts_processes = True  # where not, handlers of executor="process" run in threads

    def __init__(self) -> None:
        self.random = random.Random()
        _randoms.add(self.random)

    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic: Callable[[], float] = staticmethod(time.monotonic)

    def identity(self, process_id: int | None = None, token: str | None = None) -> str:
        """Name this boot of this process: two deploys of one name are two workers.

        Whoever starts a worker process gives it the token, and so knows its name.
        """
        return f"{self.host()}:{process_id or self.process_id()}:{token or self.token()}"

    def host(self) -> str:
        return socket.gethostname()[:80]

    def process_id(self) -> int:
        return os.getpid()

    def token(self) -> str:
        return f"{self.random.getrandbits(32):08x}"

    def signals_are_free(self) -> bool:
        """May a worker handle SIGTERM, or does somebody else (a web server, say) do so?"""
        on_main_thread = threading.current_thread() is threading.main_thread()
        return on_main_thread and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    async def start_process(
        self, command: Sequence[str], *, pass_fds: Sequence[int] = ()
    ) -> Process:
        """Start a process in a session of its own: Ctrl-C reaches it through us, and once."""
        thread = self.threads("holdfast-process", 1)
        try:
            starting = thread.submit(partial(_start_process, command, pass_fds))
        except RuntimeError as error:
            raise BlockingIOError(str(error)) from error  # no room for another thread
        try:
            process = await asyncio.wrap_future(starting)
            return _ThreadProcess(process, thread)
        except asyncio.CancelledError:
            starting.add_done_callback(_kill_late)
            raise
        finally:
            thread.close()

    def exit(self, code: int) -> None:
        """End the process here and now, whatever its other threads do."""
        os._exit(code)

    def when_collected(self, owner: object, clean_up: Callable[[], None]) -> Callable[[], object]:
        """Clean up once nothing refers to the owner, unless the process ends before, which ends its
        threads and connections anyway. Call what is answered to leave that undone."""
        finalizer = finalize(owner, clean_up)
        finalizer.atexit = False
        return finalizer.detach

    def lane(self, name: str, work: Callable[[list[T]], None]) -> Lane[T]:
        return _ThreadLane(name, work)

    def side_loop(self, name: str) -> SideLoop:
        return _ThreadLoop(name)

    def threads(self, name: str, count: int) -> Threads:
        return _Pool(name, count)

    async def connect_postgres(self, url: str, **options: Any) -> Any:
        # Imported here, because the driver is an extra: an installation on SQLite has none.
        from asyncpg import connect

        connection = await connect(url, **options)
        _sockets[connection] = connection._transport.get_extra_info("socket")
        return connection

    def connect_sqlite(self, path: str) -> sqlite3.Connection:
        # Only the lane's thread uses the connection, but it is opened and closed by others.
        return sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=256
        )


def _start_process(command: Sequence[str], pass_fds: Sequence[int]) -> subprocess.Popen[bytes]:
    # It waits for the end of a pipe, which a copy of this process would keep open.
    with no_forks:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=pass_fds
        )


def _kill_late(starting: Future[subprocess.Popen[bytes]]) -> None:
    """End a process that has started after all, when nobody waited for it any longer."""
    if not starting.cancelled() and starting.exception() is None:
        starting.result().kill()
        starting.result().wait()


class _ThreadProcess:
    """A process for whose end a thread waits."""

    def __init__(self, process: subprocess.Popen[bytes], thread: Threads) -> None:
        self._process = process
        self._ended: Future[int] = Future()
        self._ended.set_running_or_notify_cancel()  # whoever waits no longer can't cancel it
        thread.submit(lambda: self._ended.set_result(process.wait()))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        return await asyncio.wrap_future(self._ended)

    def send_signal(self, signal: int) -> None:
        self._process.send_signal(signal)


class _Started(threading.Event):
    def __init__(self, seconds_max: float) -> None:
        super().__init__()
        self._seconds_max = seconds_max

    def wait(self, timeout: float | None = None) -> bool:
        if not super().wait(self._seconds_max if timeout is None else timeout):
            raise RuntimeError("can't start new thread: it never began to run")
        return True


class ServiceThread(threading.Thread):
    """A daemon that starts, or raises RuntimeError. The standard library's thread waits forever for
    one that finds no memory for its first step, and the event loop with it."""

    def __init__(
        self, name: str, run: Callable[[], None], *, start_seconds_max: float = START_SECONDS_MAX
    ) -> None:
        super().__init__(name=name, target=run, daemon=True)
        self._started = _Started(start_seconds_max)


class _ThreadLane(Generic[T]):
    def __init__(self, name: str, work: Callable[[list[T]], None]) -> None:
        self._work = work
        self._items: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._thread = ServiceThread(name, self._run)
        self._thread.start()

    def put(self, item: T) -> None:
        self._items.put(item)

    def close(self, *, wait: bool = True) -> None:
        self._items.put(None)
        if wait:
            self._thread.join()

    def _run(self) -> None:
        closing = False
        while not closing:
            items = [self._items.get()]
            while not self._items.empty():
                items.append(self._items.get())
            closing = None in items
            if work := [item for item in items if item is not None]:
                self._work(work)


class _ThreadLoop:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = ServiceThread(name, partial(_run_loop, self._loop))
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, *, wait: bool = True) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        if wait:
            self._thread.join()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.run_until_complete(asyncio.sleep(0))  # connections that were ended last are let go
    loop.close()


class _Pool:
    """Daemon threads, made as they are needed: unlike those of the standard library's pool, one
    that hangs in a handler can't keep the process from ending."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            self._busy += 1
            if self._busy > len(self._threads) < self._count:
                name = f"{self._name}-{len(self._threads)}"
                thread = ServiceThread(name, self._run)
                try:
                    thread.start()
                except RuntimeError:  # no room for another thread
                    self._busy -= 1
                    raise
                self._threads.append(thread)
        self._calls.put(lambda: _complete(future, call))
        return future

    def close(self) -> None:
        for _ in self._threads:
            self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            with self._lock:
                self._busy -= 1


def _complete(future: Future[T], call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
