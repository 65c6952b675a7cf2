"""A real RabbitMQ for the tests: one private node of the installed server.

It has its own ports, folder, node name and port mapper, belongs to the run that started it, and
ends with it, even when that run is killed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from holdfast.messengers import RabbitMQ
from tests.support.postgres import ServerFailed, end_with_parent, free_port
from tests.support.services import missing

ADDRESS = "HOLDFAST_TEST_AMQP_URL"  # of a running RabbitMQ
HOME = Path("/usr/lib/rabbitmq")
PASSWORD = "rabbits-password"
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.05
SETTINGS = """
listeners.tcp.local = 127.0.0.1:{port}
default_user = holdfast
default_pass = {password}
"""


def installed() -> bool:
    programs = [str(HOME / "bin" / "rabbitmq-server"), "epmd"]
    return all(shutil.which(program) for program in programs)


def require_rabbitmq() -> None:
    if not installed():
        missing("RabbitMQ is not installed")


def require_listening(url: str) -> None:
    """Tests would wait for long for a server that was named, but doesn't run."""
    split = urlsplit(url)
    with suppress(OSError), socket.create_connection((split.hostname, split.port or 5672), 5):
        return
    pytest.fail(f"nobody answers at {ADDRESS}: start that server, or unset it", pytrace=False)


class Node:
    """One node. It can be stopped, killed and started again."""

    def __init__(self) -> None:
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="hf-rabbitmq-", dir="/tmp"))
        self._owner = pwd.getpwnam("rabbitmq") if os.geteuid() == 0 else None
        self._environment = self._prepare()
        self._mapper: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.url_at(self.port)

    def url_at(self, port: int) -> str:
        """Its URL through another port, such as a proxy's."""
        return f"amqp://holdfast:{PASSWORD}@127.0.0.1:{port}/%2F"

    def begin(self) -> None:
        """Call this on the main thread: the node gets its signal when the parent thread ends."""
        if self._mapper is None:  # a node would start one that outlives it
            mapper_port = int(self._environment["ERL_EPMD_PORT"])
            self._mapper = self._spawn("epmd", "-port", str(mapper_port))
            self._await(self._mapper, mapper_port)
        self._process = self._spawn(str(HOME / "bin" / "rabbitmq-server"))

    def start(self) -> None:
        self.begin()
        self.await_ready()

    def await_ready(self) -> None:
        assert self._process is not None
        self._await(self._process, self.port)

    def stop(self) -> None:
        """Shut down, and close every connection properly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl on this node."""
        done = subprocess.run(
            [str(HOME / "bin" / "rabbitmqctl"), "--quiet", *arguments],
            capture_output=True,
            text=True,
            timeout=STOP_SECONDS_MAX,
            check=False,
            **self._surroundings(),
        )
        if done.returncode:
            raise ServerFailed(f"rabbitmqctl {arguments}: {done.stdout}{done.stderr}")
        return str(done.stdout)

    def remove(self) -> None:
        try:
            self.kill()
            if self._mapper is not None:
                self._mapper.kill()
                self._mapper.wait(STOP_SECONDS_MAX)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _prepare(self) -> dict[str, str]:
        folder = self._folder
        (folder / "rabbitmq.conf").write_text(SETTINGS.format(port=self.port, password=PASSWORD))
        (folder / "enabled_plugins").write_text("[].\n")
        if self._owner is not None:
            os.chown(folder, self._owner.pw_uid, self._owner.pw_gid)
        return {
            "HOME": str(folder),
            "PATH": f"{HOME / 'bin'}:{os.environ['PATH']}",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(free_port()),
            "RABBITMQ_NODENAME": f"tests{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            # Threads without work sleep instead of spinning: others need the processors.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        }

    def _surroundings(self) -> dict[str, Any]:
        owner = self._owner
        return {
            "cwd": self._folder,
            "env": {**os.environ, **self._environment},
            "user": None if owner is None else owner.pw_uid,
            "group": None if owner is None else owner.pw_gid,
            "extra_groups": None if owner is None else [],
        }

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        with self._log(command[0]).open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent if sys.platform == "linux" else None,
                **self._surroundings(),
            )

    def _log(self, program: str) -> Path:
        return self._folder / f"{Path(program).name}.log"

    def _await(self, process: subprocess.Popen[bytes], port: int) -> None:
        until = time.monotonic() + START_SECONDS_MAX
        while not accepts(port):
            if process.poll() is not None or time.monotonic() > until:
                written = self._log(process.args[0]).read_text(errors="replace")  # type: ignore[index,arg-type]
                raise ServerFailed(f"{process.args!r} did not start:\n{written[-3000:]}")
            time.sleep(LOOK_SECONDS)

    def _end(self, how: signal.Signals) -> None:
        """The session is the node's own: the shell that started the server is in it, too."""
        process, self._process = self._process, None
        if process is None:
            return
        for each in (how, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, each)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS_MAX)
                return


def accepts(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Names:
    """An exchange and a queue for one test, which share the server with others."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.exchange = self.queue = f"test-{uuid4().hex}"

    def messenger(self, url: str | None = None) -> RabbitMQ:
        """A messenger with these names, perhaps over another URL of the server."""
        return RabbitMQ(url or self.url, exchange=self.exchange, queue=self.queue)

    async def remove(self) -> None:
        from aio_pika import connect  # most runs need none of it

        connection = await connect(self.url)
        async with connection:
            channel = await connection.channel()
            await channel.queue_delete(self.queue)
            await channel.exchange_delete(self.exchange)
