"""What every demo has: steps with their times, files, processes."""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from holdfast import ConfigurationError, Retry
from holdfast_systems.demos.guard import Guard
from holdfast_systems.demos.processes import Api, Running, Service, spawn

T = TypeVar("T")
R = TypeVar("R", bound=Running)

Settings = Mapping[str, str]
Prepare = Callable[["Stage"], Awaitable[Settings]]

# Short delays, for a demo that takes seconds.
WEBHOOK_RETRY = Retry.schedule([0.3, 0.6])
LOOK_SECONDS = 0.05
WAIT_SECONDS_MAX = 30.0


async def until(look: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    """Poll until the result satisfies `holds`: the work happens in other processes."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not holds(found := await look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {WAIT_SECONDS_MAX:g} s, the state is still {found}")
        await asyncio.sleep(LOOK_SECONDS)
    return found


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
        """Record a failure if the condition is false; the demo continues."""
        if not holds:
            self.failures.append(f"expected: {what}")


@dataclass(frozen=True)
class Made:
    path: Path
    what: str


class Stage:
    """Where one demo runs. `out` is for the files it produces; `folder` is temporary.

    `shared` is the stage of a service that several demos use.
    """

    api: Api  # once there is one

    def __init__(
        self,
        system: str,
        out: Path,
        folder: Path,
        database: str | None,
        shared: Stage | None = None,
    ) -> None:
        self.system = system
        self.out = out
        self.folder = folder
        self.url: str = shared.url if shared else database or f"sqlite:///{folder / 'jobs.db'}"
        self.shared = shared
        self.settings: Settings = {}  # of the service
        self.services: dict[str, Service] = {}
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
            step.failures.append(_shown(error))
            raise
        finally:
            step.seconds = time.monotonic() - started

    def failed(self, error: Exception) -> None:
        """Record an error; one that was raised outside of the steps gets its own row."""
        if not any(_shown(error) in step.failures for step in self.steps):
            what = "continue" if self.steps else "start"
            self.steps.append(Step(what, failures=[_shown(error)]))

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
        """Start a server on a free port. It is stopped when the demo ends."""
        service = await self._spawn(Service, name, [module, *arguments], env or {}, PIPE)
        await service.read_address()
        self.services[name] = service
        return service

    async def serve(self, target: str, prepare: Prepare) -> None:
        """Start the HTTP API with a worker, and before that what `prepare` starts. With a shared
        stage, all of that runs already."""
        if self.shared is None:
            await self.start_api(target, await prepare(self))
        else:
            self.api, self.settings = self.shared.api, self.shared.settings
            self.services |= self.shared.services

    async def start_api(self, target: str, settings: Settings, port: int = 0) -> None:
        self.settings = {"HOLDFAST_DATABASE_URL": self.url, **settings}
        if not self.url.startswith("sqlite:"):  # which the first use migrates
            command = ["holdfast.cli.main", "migrate", target]
            migrating = await self._spawn(Running, "migrate", command, self.settings, DEVNULL)
            await migrating.ended()
        options = ["--worker", f"--port={port}", "--log-format=json"]
        command = ["holdfast.cli.main", "serve", target, *options]
        self.api = await self._spawn(Api, "api", command, self.settings, DEVNULL)
        await self.api.read_address()

    async def worker(
        self,
        target: str,
        *,
        name: str = "worker",
        env: Mapping[str, str] | None = None,
        concurrency: int = 10,
    ) -> Running:
        """Start a real `holdfast worker`. It is stopped when the demo ends."""
        options = ["--log-format=json", f"--concurrency={concurrency}"]
        command = ["holdfast.cli.main", "worker", target, *options]
        all_env = {"HOLDFAST_DATABASE_URL": self.url, **(env or {})}
        return await self._spawn(Running, name, command, all_env, DEVNULL)

    async def _spawn(
        self, kind: type[R], name: str, command: Sequence[str], env: Mapping[str, str], output: int
    ) -> R:
        log = self.folder / f"{name}.log"
        running = kind(name, await spawn(command, env, log, output), log)
        self._running.append(running)
        self._guard.watch(running.pid)
        return running

    async def close(self) -> None:
        """Stop all processes and remove the temporary folder."""
        try:
            for running in reversed(self._running):
                await running.stop()
        finally:
            self.drop()

    def drop(self) -> None:
        """Kill all processes and remove the temporary folder."""
        for running in self._running:
            running.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._guard.close()


@asynccontextmanager
async def open_stage(
    system: str, out: Path, database: str | None = None, shared: Stage | None = None
) -> AsyncIterator[Stage]:
    """Set up a stage; at the end, stop everything that it started."""
    stage = _make_stage(system, out, database, shared)
    # A second Ctrl-C ends the event loop before `close` is done.
    atexit.register(stage.drop)
    try:
        yield stage
    finally:
        await stage.close()
        atexit.unregister(stage.drop)


def _make_stage(system: str, out: Path, database: str | None, shared: Stage | None) -> Stage:
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise ConfigurationError(f"can't write files to {out}: {error.strerror}") from error
    folder = Path(tempfile.mkdtemp(prefix=f"holdfast-{system}-"))
    return Stage(system, out.resolve(), folder, database, shared)


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
