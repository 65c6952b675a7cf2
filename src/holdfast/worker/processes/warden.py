"""The warden: kills a worker process in which no thread runs.

A handler that never releases the interpreter lock, such as a catastrophic regular expression, stops
every thread of its process, including those that could notice. So each worker has a warden, a
separate process: `python -I -S warden.pyc`. The worker writes a beat into a page of memory that
both share. The warden takes hardly more memory than an interpreter that does nothing, because it
imports little: `signal` and `contextlib` would add 1 MB.
"""

from __future__ import annotations

import mmap
import os
import select
import struct
import sys
import time

TYPE_CHECKING = False  # importing typing would be as bad

if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # without the enums

EVENT = "frozen"  # with the fields worker_id and process_id
PAGE_BYTES = 8192
TEXT_BYTES_MAX = 2000
LOOK_SECONDS = 0.5
LATE_SECONDS = 2.0  # if a look is this late, the machine was suspended, and the worker with it
QUIET_SECONDS = 1.5  # a shorter time without a beat is normal
ABORT_SECONDS = 2.0
LOG_SECONDS_MAX = 1.0
# The byte of the -shm file that SQLite locks to write, and the last one beside it.
WRITE_LOCK, LAST_LOCK = 120, 127

_BEAT = struct.Struct("=Q")
_TEXT = struct.Struct(f"=I{TEXT_BYTES_MAX}s")


class Page:
    """Shared memory: the worker's beat, its jobs, and the jobs that it claimed last."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, PAGE_BYTES)
        self._leased_at = _BEAT.size
        self._claimed_at = self._leased_at + _TEXT.size

    def beat(self, number: int, leased: str) -> None:
        self._write(self._leased_at, leased)
        _BEAT.pack_into(self._memory, 0, number)

    def claimed(self, jobs: str) -> None:
        self._write(self._claimed_at, jobs)

    def read_beat(self) -> int:
        number: int = _BEAT.unpack_from(self._memory)[0]
        return number

    def read_jobs(self) -> str:
        leased, claimed = self._read(self._leased_at), self._read(self._claimed_at)
        return f"jobs at the last beat: {leased or 'none'}; claimed last: {claimed or 'none'}"

    def close(self) -> None:
        self._memory.close()

    def _write(self, place: int, text: str) -> None:
        content = text.encode("utf-8", "replace")[:TEXT_BYTES_MAX]
        _TEXT.pack_into(self._memory, place, len(content), content)

    def _read(self, place: int) -> str:
        length, content = _TEXT.unpack_from(self._memory, place)
        text: str = content[:length].decode("utf-8", "replace")
        return text


class Warden:
    def __init__(
        self, page: Page, worker: int, frozen_seconds: float, locked_seconds: float
    ) -> None:
        self._page = page
        self._worker = worker
        self._frozen_seconds = frozen_seconds
        self._locked_seconds = locked_seconds

    def watch(self) -> str | None:
        """Watch until the worker has to be killed, and return why; None if it is gone."""
        beat = -1
        looked_at = beat_at = still_since = time.monotonic()
        locked_since: float | None = None
        while self.is_there():
            time.sleep(LOOK_SECONDS)
            now = time.monotonic()
            late, looked_at = now - looked_at > LATE_SECONDS, now
            if late or self._page.read_beat() != beat:
                beat, beat_at, still_since = self._page.read_beat(), now, now
            if now - beat_at < QUIET_SECONDS:
                locked_since = None
                continue
            if _is_stopped(self._worker):
                still_since = now  # whoever stopped it may continue it
            locked_since = (locked_since or now) if _writes(self._worker) else None
            if now - still_since >= self._frozen_seconds:
                return f"has been frozen for {now - still_since:.1f} s"
            if locked_since is not None and now - locked_since >= self._locked_seconds:
                return "is frozen and keeps an SQLite database locked"
        return None

    def end(self) -> None:
        """Make it dump the traceback of all its threads and exit; kill it if it does not."""
        for number, seconds in ((signal.SIGABRT, ABORT_SECONDS), (signal.SIGKILL, 0.0)):
            if self.is_there():
                os.kill(self._worker, number)
            until = time.monotonic() + seconds
            while self.is_there() and time.monotonic() < until:
                time.sleep(LOOK_SECONDS / 10)

    def is_there(self) -> bool:
        return os.getppid() == self._worker


def _is_stopped(process: int) -> bool:
    """Is it stopped by a signal, or by a debugger?"""
    return _read(f"/proc/{process}/stat").rpartition(") ")[2][:1] in ("T", "t")


def _writes(process: int) -> bool:
    """Does it have the write lock of an SQLite database?"""
    for line in _read("/proc/locks").splitlines():
        words = line.split()
        if words[1:2] == ["POSIX"] and words[3:5] == ["WRITE", str(process)]:
            first, last = words[6], words[7]
            if first == str(WRITE_LOCK) and last.isdigit() and int(last) <= LAST_LOCK:
                return True
    return False


def _read(path: str) -> str:
    """The content of this file, or nothing on systems without it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _show_title() -> None:
    """Set the name that `top` and `ps` show, where the system supports it."""
    try:
        with open("/proc/self/comm", "w", encoding="utf-8") as title:
            title.write("holdfast warden")
    except OSError:
        pass


def write_log(log_format: str, worker_id: str, worker: int, message: str) -> None:
    """Write a line to the worker's log, but wait only briefly: its reader may be frozen, too."""
    import json

    when = time.strftime("%Y-%m-%dT%H:%M:%S.000+00:00", time.gmtime())
    fields = {"time": when, "level": "error", "event": EVENT, "message": message}
    if log_format == "json":
        line = json.dumps({**fields, "worker_id": worker_id, "process_id": worker})
    else:
        flat = "".join(letter if letter.isprintable() else " " for letter in message)
        fields_text = f"worker_id={worker_id} process_id={worker}"
        line = f"{time.strftime('%H:%M:%S')}.000 ERROR   {EVENT} {flat} {fields_text}"
    watch = select.poll()
    watch.register(2, select.POLLOUT)
    try:
        if watch.poll(LOG_SECONDS_MAX * 1000):
            os.write(2, line.encode("utf-8", "replace") + b"\n")
    except OSError:
        pass  # killing the worker matters more


def main() -> None:
    # It exits when its worker is gone: a signal to all of them must end the worker first.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    descriptor, worker, worker_id, frozen_seconds, locked_seconds, log_format = sys.argv[1:]
    page = Page(int(descriptor))
    warden = Warden(page, int(worker), float(frozen_seconds), float(locked_seconds))
    _show_title()
    why = warden.watch()
    if why is not None:
        message = f"the process {why}; killing it with a traceback of its threads"
        write_log(log_format, worker_id, int(worker), f"{message}; {page.read_jobs()}")
        warden.end()


if __name__ == "__main__":
    main()
