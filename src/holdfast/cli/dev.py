"""`holdfast dev`: the HTTP API with a worker, restarted when a source file changes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec

import click

from holdfast.cli.serve import HOST, NEEDED, PORT
from holdfast.cli.session import Command, say
from holdfast.cli.target import APP_ENVIRONMENT_NAME
from holdfast.cli.worker import concurrency_option, queues_option
from holdfast.runtime.seam import Seam

POLL_SECONDS = 0.5
LOOK_SECONDS = 0.05
STOP_SECONDS = 10.0
FILES_MAX = 20_000
PORTS_TRIED = 100
SKIPPED = {"node_modules", "site-packages", "__pycache__", "venv", "env", "build", "dist"}


@click.command(cls=Command)
@click.argument("app", metavar="MODULE:NAME", envvar=APP_ENVIRONMENT_NAME)
@concurrency_option
@queues_option
def dev(app: str, concurrency: int | None, queues: str | None) -> None:
    """Serve the HTTP API and run a worker; restart both when a file changes.

    For development only. Migrates the database first, watches the .py files in this directory, and
    gives running jobs 2 seconds at a restart. The API is at http://127.0.0.1:8000, or on the next
    free port. The port stays the same across restarts, and requests wait meanwhile.

    \b
    Example:
      holdfast dev app:hf
    """
    options = ["--log-format", "text"]
    if concurrency:
        options += ["--concurrency", str(concurrency)]
    if queues:
        options += ["--queues", queues]
    listening = _listen() if _can_serve() else None
    if listening is None:
        say(f"running the jobs of {app}; for the HTTP API, run: pip install 'holdfast[api]'")
        command = ["worker", app, *options]
    else:
        host, port = listening.getsockname()
        say(f"serving {app} at http://{host}:{port}")
        command = ["serve", app, "--worker", f"--fd={listening.fileno()}", *options]
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopping.set())
    while not stopping.is_set():
        before = modification_times(".")
        child = _start(app, command, listening, stopping)
        changed = _changed_file(before, child, stopping)
        _stop(child)
        if changed:
            say(f"{changed} changed; restarting")


def modification_times(folder: str) -> dict[str, int]:
    """Map the .py files below the folder, except hidden and vendored ones, to their times."""
    times: dict[str, int] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] != "." and name not in SKIPPED]
        for name in names:
            if name.endswith(".py") and len(times) < FILES_MAX:
                path = os.path.normpath(os.path.join(place, name))
                try:
                    times[path] = os.stat(path).st_mtime_ns
                except OSError:
                    continue  # an editor may be replacing the file
    return times


def _can_serve() -> bool:
    return all(find_spec(name) is not None for name in NEEDED)


def _listen() -> socket.socket:
    """Listen on the first free port. The socket outlives restarts, so no request is refused."""
    for port in range(PORT, PORT + PORTS_TRIED):
        with suppress(OSError):
            return socket.create_server((HOST, port))
    return socket.create_server((HOST, 0))


def _start(
    app: str,
    command: list[str],
    listening: socket.socket | None,
    stopping: threading.Event,
) -> subprocess.Popen[bytes] | None:
    """Migrate and start, each in a new process that imports the module again."""
    program = [sys.executable, "-m", "holdfast.cli.main"]
    environment = {"HOLDFAST_GRACE_SECONDS": "2", **os.environ}
    # Its own process group, so that Ctrl-C reaches the worker once, through this process.
    migrating = subprocess.Popen(
        [*program, "migrate", app], env=environment, stdout=subprocess.DEVNULL, process_group=0
    )
    while migrating.poll() is None and not stopping.wait(LOOK_SECONDS):
        pass
    _stop(migrating)
    if migrating.returncode:
        return None
    return subprocess.Popen(
        [*program, *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        process_group=0,
        pass_fds=() if listening is None else (listening.fileno(),),
    )


def _changed_file(
    before: dict[str, int], child: subprocess.Popen[bytes] | None, stopping: threading.Event
) -> str | None:
    """Wait for a change, even if the worker has exited; return None to stop."""
    reported = False
    clock = Seam().monotonic
    pause_seconds = POLL_SECONDS
    while not stopping.wait(pause_seconds):
        began = clock()
        now = modification_times(".")
        # A huge folder must not keep a core busy.
        pause_seconds = max(POLL_SECONDS, 10 * (clock() - began))
        if changed := sorted({path for path, _ in before.items() ^ now.items()}):
            return changed[0]
        if not reported and (child is None or child.poll() is not None):
            say("the process has exited; it will restart when a file changes")
            reported = True
    return None


def _stop(child: subprocess.Popen[bytes] | None) -> None:
    if child is None or child.poll() is not None:
        return
    child.terminate()
    for send in (child.terminate, child.kill):
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            send()  # a second SIGTERM makes the worker release its jobs at once
    child.wait()
