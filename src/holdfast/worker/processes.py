"""Worker processes, as the process that starts them sees them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from holdfast.seam import Process, Seam
from holdfast.worker.origin import find_origin


class Birth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker process is told by the one that starts it: who that is, which token to have in
    its id, its title, and what to import besides the app's module, on which path."""

    parent: int
    token: str
    title: str
    suspects_only: bool = False
    modules: tuple[str, ...] = ()
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """How worker processes for an app are started: `holdfast worker` with this app and options."""

    app: str
    options: Sequence[str] = ()
    modules: tuple[str, ...] = ()
    path: tuple[str, ...] = ()

    def with_options(self, *options: str) -> Launch:
        return replace(self, options=[*self.options, *options])

    async def start(self, seam: Seam, title: str, *, suspects_only: bool = False) -> WorkerProcess:
        birth = Birth(
            parent=os.getpid(),
            token=seam.token(),
            title=title,
            suspects_only=suspects_only,
            modules=self.modules,
            path=self.path,
        )
        program = [sys.executable, "-m", "holdfast.cli.main", "worker", self.app]
        told = ["--birth", msgspec.json.encode(birth).decode()]
        process = await seam.start_process([*program, *self.options, *told])
        return WorkerProcess(process, seam.identity(process.pid, birth.token))


def find_launch(app: object, functions: Iterable[object]) -> Launch | None:
    """How another process can import this app; None if it can't, or if that could run a script
    which starts a worker when it is imported."""
    origin = find_origin(app, functions)
    if origin is None or origin.script is not None:
        return None
    name = f"{origin.module}:{origin.name}"
    return Launch(name, modules=origin.modules, path=tuple(sys.path))


class WorkerProcess:
    """A `holdfast worker` that this process has started."""

    def __init__(self, process: Process, worker_id: str) -> None:
        self._process = process
        self._killed_late = False
        self.worker_id = worker_id

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        return await self._process.wait()

    def tell_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    def kill_late(self) -> None:
        """Kill it, because it did not stop in time."""
        if self._process.returncode is None:
            self._killed_late = True
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)

    def reason(self, code: int) -> str:
        """Say how it ended, as the rest of a sentence."""
        return "did not stop in time and was killed" if self._killed_late else ending(code)


def ending(code: int) -> str:
    """Say how a process ended with this code, as the rest of a sentence."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def stopped_well(code: int) -> bool:
    """Was it told to stop, and did so? One that was only just starting knows no better answer to
    SIGTERM than to end by it; it holds nothing then."""
    return code in (0, -signal.SIGTERM)
