"""What every adapter is: one job queue behind eight verbs, run as a process in its own environment.

    python -m bench.adapters.NAME_adapter VERB

The verbs: settings, prepare, enqueue N, bulk N, latency N GAP, stream N GAP, unfinished, work. The
four that enqueue take --payload BYTES, --queues K, --queue FIRST and --delay SECONDS; peers heed
the payload only. `stream` sends --batch JOBS at a time, in bulk, and measures their latencies.
Answers are JSON objects, one a line, on the standard output. Only the standard library is imported
here: each environment has another queue in it and nothing else.

An adapter subclasses `Adapter`, makes its job's handler call `handled(sent_at)`, and ends with
`if __name__ == "__main__": main(TheAdapter())`. The driver runs it in the project's folder and says
by environment variables where things are: see `Surroundings`.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

BULK_JOBS = 1000
COUNT = struct.Struct("<qdd")  # handled, and the times of the first and of the last
LATENCY = struct.Struct("<d")


class Sent(NamedTuple):
    """What one job carries. Its latency is measured if `sent_at` is not 0."""

    sent_at: float
    padding: str
    queue: int = 0
    delay_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the driver passes, each in the environment variable BENCH_ + its name in capitals."""

    folder: Path
    """Where what was handled is counted."""
    variant: str
    """`best`: the settings that the documentation recommends for speed; `default`: as they come."""
    database_url: str
    """An empty PostgreSQL database of the adapter's own, or sqlite:///PATH."""
    rabbitmq_url: str
    redis_url: str
    concurrency: int
    """Jobs at a time; 0 for what the adapter takes for its best."""
    handler: str
    """`nothing`, `wait`, `burn-thread` or `burn-process`; peers have `nothing` only."""
    wakeups: str
    """`notify`, `poll` or the URL of a messenger; peers are left as they are."""
    queues: str
    """What a worker serves, as on its command line; empty for all. Peers serve all."""

    @classmethod
    def read(cls) -> Surroundings:
        found = {
            name.removeprefix("BENCH_").lower(): value
            for name, value in os.environ.items()
            if name.startswith("BENCH_")
        }
        return cls(
            folder=Path(found.get("folder", ".")),
            variant=found.get("variant", "best"),
            database_url=found.get("database_url", ""),
            rabbitmq_url=found.get("rabbitmq_url", ""),
            redis_url=found.get("redis_url", ""),
            concurrency=int(found.get("concurrency", "0")),
            handler=found.get("handler", "nothing"),
            wakeups=found.get("wakeups", "notify"),
            queues=found.get("queues", ""),
        )


class Adapter:
    """One job queue. Each verb may be a coroutine; all of a process's run on one event loop."""

    def __init__(self) -> None:
        self.around = Surroundings.read()
        self.loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None

    def settings(self) -> dict[str, str]:
        """`settings`: the chosen settings; `documented`: where they are recommended; `versions`."""
        raise NotImplementedError

    def prepare(self) -> Any:
        """Leave an empty queue behind: tables made, leftovers gone."""
        raise NotImplementedError

    def enqueue(self, jobs: Iterable[Sent]) -> Any:
        """Enqueue one by one, each acknowledged before the next is taken. Connect first: the time
        runs from the first job that is taken to the end of the iterator."""
        raise NotImplementedError

    def bulk(self, batches: Iterable[list[Sent]]) -> Any:
        """Enqueue whole batches, each acknowledged before the next is taken."""
        raise NotImplementedError

    def work(self) -> Any:
        """Run one worker process until SIGTERM."""
        raise NotImplementedError

    def unfinished(self) -> Any:
        """Count unacknowledged jobs: waiting, running, or done but not acknowledged."""
        raise NotImplementedError


class Clock:
    """Times what happens between an iterator's first item and its end."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def over(self, items: Iterable[Any]) -> Iterator[Any]:
        began = time.perf_counter()
        yield from items
        self.seconds = time.perf_counter() - began


class Tally:
    """What this process has handled, in files that the driver reads while it runs."""

    def __init__(self, folder: Path) -> None:
        self.pid = os.getpid()
        folder.mkdir(parents=True, exist_ok=True)
        counts = os.open(folder / f"{self.pid}.count", os.O_RDWR | os.O_CREAT)
        os.ftruncate(counts, COUNT.size)
        self._memory = mmap.mmap(counts, COUNT.size)
        os.close(counts)
        # A queue that forks for every job may come to the same process id again.
        self._handled, self._first_at, _ = COUNT.unpack(self._memory[:])
        self._latencies = os.open(
            folder / f"{self.pid}.latencies", os.O_WRONLY | os.O_CREAT | os.O_APPEND
        )

    def add(self, now: float, sent_at: float) -> None:
        self._handled += 1
        self._first_at = self._first_at or now
        COUNT.pack_into(self._memory, 0, self._handled, self._first_at, now)
        if sent_at:
            os.write(self._latencies, LATENCY.pack(now - sent_at))


_tally: Tally | None = None
_lock = threading.Lock()


def handled(sent_at: float) -> None:
    """The body of every job: count it, and note how long it was on its way."""
    global _tally
    now = time.time()
    with _lock:
        if _tally is None or _tally.pid != os.getpid():
            _tally = Tally(Surroundings.read().folder)
        _tally.add(now, sent_at)


class HandledStatus(NamedTuple):
    """What the processes of a folder have handled so far."""

    jobs: int
    first_at: float
    last_at: float


def handled_seen(folder: Path) -> HandledStatus:
    found = [
        COUNT.unpack(content)
        for content in (path.read_bytes() for path in folder.glob("*.count"))
        if len(content) == COUNT.size
    ]
    found = [each for each in found if each[0]]
    if not found:
        return HandledStatus(0, 0.0, 0.0)
    jobs, first_at, last_at = zip(*found, strict=True)
    return HandledStatus(sum(jobs), min(first_at), max(last_at))


def latencies_of(folder: Path, pid: int) -> list[float]:
    """Those of one process, in seconds, in the order of its jobs."""
    path = folder / f"{pid}.latencies"
    content = path.read_bytes() if path.exists() else b""
    return [seconds for (seconds,) in LATENCY.iter_unpack(content)]


def latencies_seen(folder: Path) -> list[float]:
    """In seconds, from the shortest to the longest."""
    return sorted(
        seconds
        for path in folder.glob("*.latencies")
        for (seconds,) in LATENCY.iter_unpack(path.read_bytes())
    )


def main(adapter: Adapter) -> None:
    options = _parser().parse_args()
    with asyncio.Runner(loop_factory=adapter.loop_factory) as runner:

        def call(answer: Any) -> Any:
            return runner.run(answer) if inspect.iscoroutine(answer) else answer

        if options.verb in ("prepare", "work"):
            call(getattr(adapter, options.verb)())
            _tell({})
        elif options.verb == "settings":
            _tell({"variant": adapter.around.variant, **adapter.settings()})
        elif options.verb == "unfinished":
            # Asked once by a closed input, and again for every line that comes.
            _tell({"unfinished": call(adapter.unfinished()), "at": time.time()})
            for _ in sys.stdin:
                _tell({"unfinished": call(adapter.unfinished()), "at": time.time()})
        else:
            clock = Clock()
            in_bulk = options.verb in ("bulk", "stream")
            verb = adapter.bulk if in_bulk else adapter.enqueue
            call(verb(clock.over(_jobs(options))))
            _tell({"jobs": options.jobs, "seconds": clock.seconds})


def _jobs(options: argparse.Namespace) -> Iterator[Any]:
    def sent(number: int, at: float) -> Sent:
        return Sent(at, padding, options.queue + number % options.queues, options.delay)

    padding = "x" * options.payload
    if options.verb == "bulk":
        for first in range(0, options.jobs, BULK_JOBS):
            numbers = range(first, min(first + BULK_JOBS, options.jobs))
            yield [sent(number, 0.0) for number in numbers]
    elif options.verb == "stream":
        began = time.monotonic()
        for turn, first in enumerate(range(0, options.jobs, options.batch)):
            time.sleep(max(0.0, began + turn * options.gap - time.monotonic()))
            yield [sent(first + number, time.time()) for number in range(options.batch)]
    elif options.verb == "enqueue":
        yield from (sent(number, 0.0) for number in range(options.jobs))
    else:
        yield sent(0, 0.0)  # the first prepares what the others find prepared
        for number in range(options.jobs):
            time.sleep(options.gap)
            yield sent(number, time.time())
        time.sleep(options.gap)  # a process that ends would be in the way of the last


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="One job queue behind the verbs of the bench.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in ("settings", "prepare", "work", "unfinished"):
        verbs.add_parser(name)
    for name in ("enqueue", "bulk", "latency", "stream"):
        verb = verbs.add_parser(name)
        verb.add_argument("jobs", type=int)
        if name in ("latency", "stream"):
            verb.add_argument("gap", type=float, help="seconds between two jobs, or batches")
        if name == "stream":
            verb.add_argument("--batch", type=int, default=100, help="jobs at a time")
        verb.add_argument("--payload", type=int, default=0, help="bytes of padding")
        verb.add_argument("--queues", type=int, default=1, help="spread over so many")
        verb.add_argument("--queue", type=int, default=0, help="the number of the first one")
        verb.add_argument("--delay", type=float, default=0.0, help="seconds until they are due")
    return parser


def _tell(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)
