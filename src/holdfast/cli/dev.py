"""`holdfast dev`: a worker that restarts when a source file changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from types import FrameType

import click

from holdfast.cli.session import Command, say
from holdfast.runtime.seam import Seam

POLL_SECONDS = 0.5
LOOK_SECONDS = 0.05
STOP_SECONDS = 10.0
FILES_MAX = 20_000
SKIPPED = {"node_modules", "site-packages", "__pycache__", "venv", "env", "build", "dist"}


@click.command(cls=Command)
@click.argument("app", metavar="MODULE:NAME")
@click.option(
    "--concurrency", type=click.IntRange(min=1), help="Maximum number of jobs to run at once."
)
@click.option(
    "--queues", metavar="A,B:10", help="Serve only these queues, B with at most 10 jobs at once."
)
def dev(app: str, concurrency: int | None, queues: str | None) -> None:
    """Migrate, run a worker, and restart it when a .py file in this directory changes.

    For development only: a restart gives running jobs 2 seconds, then releases them.

    \b
    Example:
      holdfast dev app:hf
    """
    options = ["--log-format", "text"]
    if concurrency:
        options += ["--concurrency", str(concurrency)]
    if queues:
        options += ["--queues", queues]
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _setter(stopping))
    while not stopping.is_set():
        before = modification_times(".")
        child = _start(app, options, stopping)
        changed = _changed_file(before, child, stopping)
        _stop(child)
        if changed:
            say(f"{changed} changed; restarting")


def modification_times(folder: str) -> dict[str, int]:
    """When each .py file below the folder changed last, without hidden and vendored ones."""
    times: dict[str, int] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] != "." and name not in SKIPPED]
        for name in names:
            if name.endswith(".py") and len(times) < FILES_MAX:
                path = os.path.normpath(os.path.join(place, name))
                try:
                    times[path] = os.stat(path).st_mtime_ns
                except OSError:
                    continue  # An editor that replaces the file has it away for a moment.
    return times


def _setter(event: threading.Event) -> Callable[[int, FrameType | None], None]:
    def set_event(_number: int, _frame: FrameType | None) -> None:
        event.set()

    return set_event


def _start(
    app: str, options: list[str], stopping: threading.Event
) -> subprocess.Popen[bytes] | None:
    """Migrate and start a worker, each in a new process that imports the module afresh."""
    command = [sys.executable, "-m", "holdfast.cli.main"]
    environment = {"HOLDFAST_GRACE_SECONDS": "2", **os.environ}
    # Its own process group: Ctrl-C reaches the worker through us, and once.
    migrating = subprocess.Popen(
        [*command, "migrate", app], env=environment, stdout=subprocess.DEVNULL, process_group=0
    )
    while migrating.poll() is None and not stopping.wait(LOOK_SECONDS):
        pass
    _stop(migrating)
    if migrating.returncode:
        return None
    return subprocess.Popen(
        [*command, "worker", app, *options],
        env=environment,
        stdin=subprocess.DEVNULL,
        process_group=0,
    )


def _changed_file(
    before: dict[str, int], child: subprocess.Popen[bytes] | None, stopping: threading.Event
) -> str | None:
    """Wait for a change, or for the end; a worker that ended by itself waits for a change, too."""
    told = False
    clock = Seam().monotonic
    pause_seconds = POLL_SECONDS
    while not stopping.wait(pause_seconds):
        began = clock()
        now = modification_times(".")
        # A huge folder must not keep a core busy.
        pause_seconds = max(POLL_SECONDS, 10 * (clock() - began))
        if changed := sorted({path for path, _ in before.items() ^ now.items()}):
            return changed[0]
        if not told and (child is None or child.poll() is not None):
            say("the worker has exited; it restarts when a file changes")
            told = True
    return None


def _stop(child: subprocess.Popen[bytes] | None) -> None:
    if child is None or child.poll() is not None:
        return
    child.terminate()
    for last_word in (child.terminate, child.kill):
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            # The second signal hurries: what still runs is handed back.
            last_word()
    child.wait()
