"""Drives one subject: asks its adapter, runs its workers, and sees what that costs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import holdfast
from bench.adapters.contract import HandledStatus, handled_seen, latencies_of, latencies_seen
from bench.machine import cpu_seconds, memory_bytes
from bench.place import Place, Written
from tests.support.postgres import end_with_parent

ROOT = Path(__file__).parent.parent
PATH = os.pathsep.join([str(ROOT), str(Path(holdfast.__file__).parent.parent)])
VERB_SECONDS_MAX = 900.0
STALL_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 40.0
LOOK_SECONDS = 0.02
IDLE_SECONDS = 0.5


class SubjectFailed(Exception):
    """An adapter ended badly, or jobs were not finished: there is no figure."""


@dataclass(frozen=True)
class Subject:
    """A job queue with its settings. The command leads up to the verb."""

    name: str
    service: str  # postgresql, sqlite, rabbitmq or redis
    command: tuple[str, ...]
    variant: str = "best"
    slow: bool = False
    """Less than a job a second: few are enough to see that."""


@dataclass(frozen=True)
class Drained:
    jobs: int
    seconds: float
    start_seconds: float
    memory_bytes: int
    worker_cpu_seconds: float
    server_cpu_seconds: float
    written: Written


class Driver(AbstractContextManager["Driver"]):
    """A subject with its own empty queue, until the end of the block."""

    def __init__(self, subject: Subject, place: Place, **said: object) -> None:
        self.subject = subject
        self.stall_seconds = STALL_SECONDS_MAX
        self._place = place
        self._folder = Path(tempfile.mkdtemp(prefix="handled-", dir=place.memory))
        self.url, self._drop = place.database(subject.service)
        self._said = {
            "folder": self._folder,
            "variant": subject.variant,
            "database_url": self.url,
            "rabbitmq_url": place.addresses.get("rabbitmq", ""),
            "redis_url": place.addresses.get("redis", ""),
            **said,
        }

    def __enter__(self) -> Driver:
        self.ask("prepare")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._drop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def ask(self, *verb: object) -> dict[str, Any]:
        return self.ask_other(*self.subject.command, *verb)

    def ask_other(self, *command: object, given: str = "") -> dict[str, Any]:
        """Run a program that is told where things are; return the last line it writes."""
        process = self._start(command, asked=True, log_errors=False)
        try:
            told, errors = process.communicate(given, timeout=VERB_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            told, errors = process.communicate()
        lines = told.splitlines()
        if process.returncode or not lines:
            verb = " ".join(map(str, command[len(self.subject.command) :]))
            raise SubjectFailed(f"{self.subject.name}: {verb} failed:\n{errors[-2000:]}")
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer

    def rate(self, *verb: object) -> float:
        """Enqueue; answer jobs a second."""
        answer = self.ask(*verb)
        return float(answer["jobs"]) / float(answer["seconds"])

    def drain(self, jobs: int, processes: int = 1, *, left: int = 0) -> Drained:
        """Start new workers, and wait until they have acknowledged everything but `left` jobs."""
        self._forget()
        written = self._place.written(self.url)
        server_cpu = self._place.server_cpu_seconds()
        with self._counting() as unfinished, self.working(processes) as workers:
            started_at = time.time()
            seen = self.until_handled(jobs)
            while (answer := unfinished())["unfinished"] > left:
                self._look_at(workers)
                if answer["at"] > seen.last_at + self.stall_seconds:
                    raise SubjectFailed(f"{self.subject.name}: {answer['unfinished']} unfinished")
            memory = sum(memory_bytes(worker.pid) for worker in workers)
            worker_cpu = sum(cpu_seconds(worker.pid) for worker in workers)
        if (again := handled_seen(self._folder).jobs) != jobs:
            raise SubjectFailed(f"{self.subject.name}: {again} handled of {jobs}")
        return Drained(
            jobs=jobs,
            seconds=answer["at"] - seen.first_at,
            start_seconds=seen.first_at - started_at,
            memory_bytes=memory,
            worker_cpu_seconds=worker_cpu,
            server_cpu_seconds=self._place.server_cpu_seconds() - server_cpu,
            written=self._place.written(self.url) - written,
        )

    def latencies(
        self, jobs: int, gap_seconds: float, idle_seconds: float = IDLE_SECONDS
    ) -> list[float]:
        """Seconds from just before the enqueue to the handler's start, of an idle worker."""
        self._forget()
        with self.working():
            self.ask("enqueue", 1)
            self.until_handled(1)
            time.sleep(idle_seconds)
            self.ask("latency", jobs, gap_seconds)
            self.until_handled(jobs + 2)  # with the one before, and the first that is not timed
            return latencies_seen(self._folder)

    def latencies_so_far(self, worker: subprocess.Popen[str]) -> list[float]:
        """Those of the jobs of one worker, in their order."""
        return latencies_of(self._folder, worker.pid)

    @contextmanager
    def working(self, processes: int = 1, **said: object) -> Iterator[list[subprocess.Popen[str]]]:
        work = (*self.subject.command, "work")
        workers = [self._start(work, quiet=True, said=said) for _ in range(processes)]
        try:
            yield workers
            self._look_at(workers)
        finally:
            for worker in workers:
                worker.send_signal(signal.SIGTERM)
            for worker in workers:
                _end(worker)

    @contextmanager
    def beside(
        self, *command: object, asked: bool = False, pass_fds: Sequence[int] = ()
    ) -> Iterator[subprocess.Popen[str]]:
        """Run another program until the end of the block."""
        process = self._start(command, quiet=not asked, asked=asked, pass_fds=pass_fds)
        try:
            yield process
            self._look_at([process])
        finally:
            process.terminate()
            _end(process)

    def until_handled(self, jobs: int) -> HandledStatus:
        """Wait until this many jobs were handled, as long as there is progress."""
        seen, progress_at = handled_seen(self._folder), time.monotonic()
        while seen.jobs < jobs:
            time.sleep(LOOK_SECONDS)
            before, seen = seen, handled_seen(self._folder)
            if seen.jobs > before.jobs:
                progress_at = time.monotonic()
            elif time.monotonic() > progress_at + self.stall_seconds:
                raise SubjectFailed(
                    f"{self.subject.name}: only {seen.jobs} of {jobs} handled\n{self._log()}"
                )
        return seen

    def handled(self) -> HandledStatus:
        return handled_seen(self._folder)

    def unfinished(self) -> int:
        return int(self.ask("unfinished")["unfinished"])

    def _forget(self) -> None:
        for path in self._folder.iterdir():
            path.unlink()

    @contextmanager
    def _counting(self) -> Iterator[Any]:
        """A process that is up already when the count is wanted: starting one takes too long."""
        process = self._start((*self.subject.command, "unfinished"), asked=True)
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        stdout.readline()

        def ask() -> dict[str, Any]:
            stdin.write("\n")
            stdin.flush()
            answer: dict[str, Any] = json.loads(stdout.readline())
            return answer

        try:
            yield ask
        finally:
            stdin.close()
            _end(process)

    def _look_at(self, workers: Sequence[subprocess.Popen[str]]) -> None:
        for worker in workers:
            if worker.poll() is not None:
                code = worker.returncode
                raise SubjectFailed(
                    f"{self.subject.name}: a worker ended with {code}\n{self._log()}"
                )

    def _log(self) -> str:
        path = self._folder / "worker.log"
        return path.read_text(encoding="utf-8", errors="replace")[-2000:] if path.exists() else ""

    def _start(
        self,
        command: Sequence[object],
        *,
        quiet: bool = False,
        asked: bool = False,
        log_errors: bool = True,
        pass_fds: Sequence[int] = (),
        said: Mapping[str, object] = MappingProxyType({}),
    ) -> subprocess.Popen[str]:
        surroundings = {**self._said, **said}.items()
        told = {f"BENCH_{name.upper()}": str(value) for name, value in surroundings}
        inherited = {name: value for name, value in os.environ.items() if "HOLDFAST_" not in name}
        with (self._folder / "worker.log").open("a", encoding="utf-8") as log:
            return subprocess.Popen(
                list(map(str, command)),
                cwd=ROOT,
                env={**inherited, **told, "PYTHONPATH": PATH},
                stdin=subprocess.PIPE if asked else subprocess.DEVNULL,
                stdout=log if quiet else subprocess.PIPE,
                stderr=log if log_errors else subprocess.PIPE,
                text=True,
                preexec_fn=end_with_parent,
                pass_fds=pass_fds,
            )


def _end(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
