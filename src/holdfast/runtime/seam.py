"""The one seam between the engine and the machine: clocks, randomness, threads, connections.

`Seam` is the real machine. The one in `holdfast.testing.simulation` runs the whole engine on a
seeded loop with virtual time, where a process can be killed at any await.
"""

from __future__ import annotations

import asyncio
import os
import queue
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet, finalize

if TYPE_CHECKING:
    from sqlite3 import Connection

START_SECONDS_MAX = 10.0  # of a thread
LEFT_TASKS_ROUNDS = 3
LEFT_TASKS_SECONDS = 1.0  # for each round

T = TypeVar("T")
Item = TypeVar("Item", contravariant=True)

# A process that a handler forks inherits everything that is open here. Hold this lock while you
# open what must not be inherited.
no_forks = threading.Lock()
os.register_at_fork(
    before=no_forks.acquire,
    after_in_parent=no_forks.release,
    after_in_child=no_forks.release,
)


class HasFileno(Protocol):
    def fileno(self) -> int: ...


def detach(files: Iterable[HasFileno]) -> None:
    """Close these files in a forked process, but keep their numbers taken."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in files:
        with suppress(OSError, ValueError):  # already closed
            os.dup2(nothing, file.fileno(), inheritable=False)
    os.close(nothing)


_randoms: WeakSet[random.Random] = WeakSet()
_sockets: WeakKeyDictionary[Any, HasFileno] = WeakKeyDictionary()  # of connections to servers


def _reset_after_fork() -> None:
    """Make a forked process draw other random numbers, and detach it from its parent's sessions.

    When it collected a connection, it would end the session in its parent's name, and remove the
    socket from the list that the kernel watches for both.
    """
    detach(socket for owner, socket in list(_sockets.items()) if not owner.is_closed())
    for source in _randoms:
        source.seed()


os.register_at_fork(after_in_child=_reset_after_fork)


class BatchThread(Protocol[Item]):
    """A thread that processes the items put into it, all that wait at a time."""

    def put(self, item: Item) -> None: ...

    def close(self, *, wait: bool = True) -> None:
        """Process the remaining items, then end."""


class SideLoop(Protocol):
    """An event loop on a separate thread."""

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]: ...

    def close(self, *, wait: bool = True) -> None: ...


class Threads(Protocol):
    """A bounded number of threads for calls that block."""

    def submit(self, call: Callable[[], T]) -> Future[T]: ...

    def close(self) -> None:
        """Take no more calls. Does not wait for calls in progress."""


class Process(Protocol):
    """A child process. Its exit code is negative if a signal killed it."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...

    def send_signal(self, signal: int) -> None: ...


class Seam:
    """The real machine."""

    starts_processes = True  # if not, handlers with executor="process" run in threads

    def __init__(self) -> None:
        self.random = random.Random()
        _randoms.add(self.random)

    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic: Callable[[], float] = staticmethod(time.monotonic)

    def identity(self, process_id: int | None = None, token: str | None = None) -> str:
        """The id of a worker, unique for each start of a process. The parent of a worker process
        passes the token, and so knows the id."""
        return f"{self.host()}:{process_id or self.process_id()}:{token or self.token()}"

    def host(self) -> str:
        return socket.gethostname()[:80]

    def process_id(self) -> int:
        return os.getpid()

    def token(self) -> str:
        return f"{self.random.getrandbits(32):08x}"

    def signals_are_free(self) -> bool:
        """May a worker handle SIGTERM, or does other code, such as a web server, do so?"""
        on_main_thread = threading.current_thread() is threading.main_thread()
        return on_main_thread and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    async def start_process(
        self,
        command: Sequence[str],
        *,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a process in a new session, so that Ctrl-C reaches it only through us. Without
        `environment`, it inherits ours."""
        thread = self.threads("holdfast-process", 1)
        try:
            starting = thread.submit(partial(_start_process, command, pass_fds, environment))
        except RuntimeError as error:
            raise BlockingIOError(str(error)) from error  # no memory for another thread
        try:
            process = await asyncio.wrap_future(starting)
            return _ThreadProcess(process, thread)
        except asyncio.CancelledError:
            starting.add_done_callback(_kill_late)
            raise
        finally:
            thread.close()

    def exit(self, code: int) -> None:
        """Exit the process immediately, whatever its other threads do."""
        os._exit(code)

    def when_collected(self, owner: object, clean_up: Callable[[], None]) -> Callable[[], object]:
        """Clean up when Python collects the owner, but not when the process exits, which ends its
        threads and connections anyway. Call the returned function to cancel the clean-up."""
        finalizer = finalize(owner, clean_up)
        finalizer.atexit = False
        return finalizer.detach

    def thread(self, name: str, work: Callable[[list[T]], None]) -> BatchThread[T]:
        return _BatchThread(name, work)

    def side_loop(self, name: str) -> SideLoop:
        return _ThreadLoop(name)

    def threads(self, name: str, count: int) -> Threads:
        return _Pool(name, count)

    async def connect_postgres(self, url: str, **options: Any) -> Any:
        # Imported here, because the driver is an optional extra.
        from asyncpg import connect

        connection = await connect(url, **options)
        _sockets[connection] = connection._transport.get_extra_info("socket")
        return connection

    def connect_sqlite(self, path: str) -> Connection:
        # Imported here, because a process on PostgreSQL does without it, and 1 MB.
        import sqlite3

        # One thread uses the connection, but others open and close it.
        return sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=256
        )


def _start_process(
    command: Sequence[str], pass_fds: Sequence[int], environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    # Popen waits for the end of a pipe, which a forked process would keep open.
    with no_forks:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=pass_fds,
            env=environment,
        )


def _kill_late(starting: Future[subprocess.Popen[bytes]]) -> None:
    """Kill a process that started after its caller was canceled."""
    if not starting.cancelled() and starting.exception() is None:
        starting.result().kill()
        starting.result().wait()


class _ThreadProcess:
    """A process whose end a thread waits for."""

    def __init__(self, process: subprocess.Popen[bytes], thread: Threads) -> None:
        self._process = process
        self._ended: Future[int] = Future()
        self._ended.set_running_or_notify_cancel()  # so that no waiter can cancel it
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
    """A daemon thread that starts, or raises RuntimeError. The standard library would wait forever
    for a thread that has no memory for its first step, and block the event loop."""

    def __init__(
        self, name: str, run: Callable[[], None], *, start_seconds_max: float = START_SECONDS_MAX
    ) -> None:
        super().__init__(name=name, target=run, daemon=True)
        self._started = _Started(start_seconds_max)


class _BatchThread(Generic[T]):
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
    loop.run_until_complete(_end_tasks())
    loop.close()


async def _end_tasks() -> None:
    """Cancel what client libraries leave behind when a connection breaks or is closed: a task, or
    one that another starts as it ends. Their last steps also finish closing the connections."""
    for _ in range(LEFT_TASKS_ROUNDS):
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=LEFT_TASKS_SECONDS)


class _Pool:
    """Daemon threads, started on demand. Unlike in the standard library's pool, one that hangs in a
    handler can't keep the process from exiting."""

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
                except RuntimeError:  # no memory for another thread
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
