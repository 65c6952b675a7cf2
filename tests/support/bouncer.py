"""A real PgBouncer for the tests, in transaction mode, before a PostgreSQL server.

It passes every database through, and gives successive transactions of a client to different
connections of the server, so that nothing which a session keeps is found again.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tests.support.postgres import (
    START_SECONDS_MAX,
    STOP_SECONDS_MAX,
    ServerFailed,
    end_with_parent,
    free_port,
    unprivileged,
)

READY = "process up"
SETTINGS = {
    "pool_mode": "transaction",
    "auth_type": "trust",
    "listen_addr": "127.0.0.1",
    "unix_socket_dir": "",
    "max_client_conn": "1000",
    "default_pool_size": "10",
    # Two at least, in turn: with one, a session's leftovers would pass for its own.
    "min_pool_size": "2",
    "server_round_robin": "1",
    "server_idle_timeout": "5",
    "server_login_retry": "0.2",
}


class Listening(Protocol):
    port: int


def bouncer_program() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


class Bouncer:
    """One PgBouncer, which belongs to the run that started it, and ends with it."""

    def __init__(
        self,
        program: str,
        server: Listening,
        *,
        users: Sequence[str] = ("postgres",),
        **settings: str,
    ) -> None:
        self.name = "bouncer"
        self.port = free_port()
        self._program = program
        self._settings = SETTINGS | settings | {"listen_port": str(self.port)}
        self._server_port = server.port
        self._users = users
        self._owner = unprivileged()
        self._directory = Path(tempfile.mkdtemp(prefix="hf-bouncer-", dir="/tmp"))
        self._log: deque[str] = deque(maxlen=200)
        self._up = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> list[str]:
        """The last lines that it wrote."""
        return list(self._log)

    def start(self) -> None:
        self._up.clear()
        self._log.clear()
        self._process = self._spawn(self._write_configuration())
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        self._up.wait(START_SECONDS_MAX)
        if not any(READY in line for line in self._log):
            raise ServerFailed("PgBouncer did not start:\n" + "\n".join(self._log))

    def restart(self) -> None:
        """End every connection through it, as an update of the pooler does."""
        self._stop()
        self.start()

    def _stop(self) -> None:
        if self._process is not None and self._reader is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(STOP_SECONDS_MAX)
            self._reader.join(STOP_SECONDS_MAX)

    def remove(self) -> None:
        try:
            self._stop()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _write_configuration(self) -> Path:
        users = self._directory / "users.txt"
        users.write_text("".join(f'"{user}" ""\n' for user in self._users))
        path = self._directory / "pgbouncer.ini"
        settings = self._settings | {"auth_file": str(users)}
        lines = [f"{name} = {value}" for name, value in settings.items()]
        target = f"* = host=127.0.0.1 port={self._server_port}"
        path.write_text("\n".join(["[databases]", target, "[pgbouncer]", *lines, ""]))
        self._directory.chmod(0o755)
        return path

    def _spawn(self, configuration: Path) -> subprocess.Popen[str]:
        owner = self._owner
        return subprocess.Popen(
            [self._program, str(configuration)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=self._directory,
            user=None if owner is None else owner.pw_uid,
            group=None if owner is None else owner.pw_gid,
            extra_groups=None if owner is None else [],
            start_new_session=True,
            preexec_fn=end_with_parent if sys.platform == "linux" else None,
        )

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._log.append(line.rstrip())
                if READY in line:
                    self._up.set()
        self._up.set()
