"""The frame of a demonstration: its steps with their times, its files, its processes."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from holdfast import ConfigurationError
from holdfast_systems.demos.guard import Guard
from holdfast_systems.demos.processes import Running, Service, start_service, start_worker


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@dataclass
class Step:
    """One row of the table."""

    what: str
    outcome: str = ""
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def says(self, outcome: str) -> None:
        self.outcome = outcome

    def expects(self, holds: bool, what: str) -> None:
        """Note a failure if it does not hold; the demonstration goes on."""
        if not holds:
            self.failures.append(f"not so: {what}")

    def failed(self, error: Exception) -> None:
        self.failures.append(_shown(error))


@dataclass(frozen=True)
class Made:
    path: Path
    what: str


class Stage:
    """Where one demonstration runs. `out` is for what people look at, `folder` goes with it."""

    def __init__(self, system: str, out: Path, folder: Path, database: str | None) -> None:
        self.system = system
        self.out = out
        self.folder = folder
        self.url = database or f"sqlite:///{folder / 'jobs.db'}"
        self.steps: list[Step] = []
        self.files: list[Made] = []
        self.on_step: Callable[[Step], None] = lambda _step: None
        self._running: list[Running] = []
        self._guard = Guard(folder)

    @property
    def succeeded(self) -> bool:
        return bool(self.steps) and not any(step.failures for step in self.steps)

    @contextmanager
    def step(self, what: str) -> Iterator[Step]:
        step = Step(what)
        self.steps.append(step)
        self.on_step(step)
        started = time.monotonic()
        try:
            yield step
        except Exception as error:
            step.failed(error)
            raise
        finally:
            step.seconds = time.monotonic() - started

    def failed(self, error: Exception) -> None:
        """Note an error; one that no step has met gets a row of its own."""
        if not any(_shown(error) in step.failures for step in self.steps):
            self.steps.append(Step("go on" if self.steps else "begin"))
            self.steps[-1].failed(error)

    def made(self, path: Path, what: str) -> None:
        self.files.append(Made(path, what))

    async def start(
        self,
        name: str,
        module: str,
        *,
        env: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> Service:
        """Start a server on a free port; it is stopped at the end."""
        service = await start_service(name, module, self.folder, env or {}, arguments)
        self._note(service)
        await service.read_address()
        return service

    async def worker(
        self,
        target: str,
        *,
        name: str = "worker",
        env: Mapping[str, str] | None = None,
        concurrency: int = 10,
    ) -> Running:
        """Start a real `holdfast worker` on this stage's database; it is stopped at the end."""
        all_env = {"HOLDFAST_DATABASE_URL": self.url, **(env or {})}
        options = [f"--concurrency={concurrency}"]
        running = await start_worker(name, target, self.folder, all_env, options)
        self._note(running)
        return running

    def _note(self, running: Running) -> None:
        self._running.append(running)
        self._guard.watch(running.pid)

    async def clear(self) -> None:
        """Stop all processes, and remove the folder."""
        try:
            for running in reversed(self._running):
                await running.stop()
        finally:
            self.drop()

    def drop(self) -> None:
        """Do so at once, as when nobody waits any longer."""
        for running in self._running:
            running.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._guard.close()


@asynccontextmanager
async def open_stage(system: str, out: Path, database: str | None = None) -> AsyncIterator[Stage]:
    """Set up a stage, and stop at the end whatever runs on it."""
    stage = _make_stage(system, out, database)
    # A second Ctrl-C ends the event loop here and now.
    atexit.register(stage.drop)
    try:
        yield stage
    finally:
        await stage.clear()
        atexit.unregister(stage.drop)


def _make_stage(system: str, out: Path, database: str | None) -> Stage:
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise ConfigurationError(f"no files can be written to {out}: {error.strerror}") from error
    folder = Path(tempfile.mkdtemp(prefix=f"holdfast-{system}-"))
    return Stage(system, out.resolve(), folder, database)
