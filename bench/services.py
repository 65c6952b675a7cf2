"""RabbitMQ, Redis and the local Service Bus for the bench, on free ports.

The first two have temporary folders. They come from the distribution; scripts/install-packages
installs missing ones, as root.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from bench.environments import ROOT, Unavailable
from tests.support.postgres import end_with_parent, free_port

START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.1
RABBITMQ_HOME = Path("/usr/lib/rabbitmq")
# Only HTTP shows unacknowledged messages, updated as often as the queue reports them.
RABBITMQ_SETTINGS = """
listeners.tcp.local = 127.0.0.1:{port}
prometheus.tcp.ip = 127.0.0.1
prometheus.tcp.port = {metrics_port}
collect_statistics_interval = 200
"""
# As its documentation suggests for data that should survive: at most a second is lost.
REDIS_SETTINGS = ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "")


@contextmanager
def redis() -> Iterator[str]:
    """A Redis that keeps a log; the address of its first database."""
    program = _found("redis-server", "redis-server")
    port = free_port()
    with _folder("redis") as (folder, _):
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
        with _running([*command, *REDIS_SETTINGS], folder, None, {}, lambda: _accepts(port)):
            yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def rabbitmq() -> Iterator[str]:
    """A RabbitMQ with one virtual host; its metrics are at the port above its own."""
    program = _found(str(RABBITMQ_HOME / "bin" / "rabbitmq-server"), "rabbitmq-server")
    port = _free_neighbors()
    with _folder("rabbitmq", "rabbitmq") as (folder, owner):
        said = _rabbitmq_environment(folder, port)
        with (
            _port_mapper(folder, owner, said),
            _running([program], folder, owner, said, lambda: _accepts(port + 1)),
        ):
            yield f"amqp://guest:guest@127.0.0.1:{port}/%2F"


@contextmanager
def servicebus() -> Iterator[str]:
    """The local Service Bus in this process, with one queue."""
    from holdfast.servicebus_local import LocalServiceBus, QueueOptions
    from holdfast.servicebus_local.server import KEY

    with LocalServiceBus(queues={"jobs": QueueOptions()}) as bus:
        yield f"servicebus://{KEY.name}:{KEY.key}@{bus.host}:{bus.port}/jobs?emulator=true"


def _rabbitmq_environment(folder: Path, port: int) -> dict[str, str]:
    (folder / "rabbitmq.conf").write_text(
        RABBITMQ_SETTINGS.format(port=port, metrics_port=port + 1)
    )
    (folder / "enabled_plugins").write_text("[rabbitmq_prometheus].\n")
    return {
        "HOME": str(folder),
        "PATH": f"{RABBITMQ_HOME / 'bin'}:{os.environ['PATH']}",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(free_port()),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }


@contextmanager
def _port_mapper(
    folder: Path, owner: pwd.struct_passwd | None, said: Mapping[str, str]
) -> Iterator[None]:
    """Erlang's port mapper. A node would start one that outlives it."""
    port = int(said["ERL_EPMD_PORT"])
    program = _found("epmd", "erlang-base")
    with _running([program, "-port", str(port)], folder, owner, said, lambda: _accepts(port)):
        yield


@contextmanager
def _running(
    command: list[str],
    folder: Path,
    owner: pwd.struct_passwd | None,
    said: Mapping[str, str],
    ready: Callable[[], bool],
) -> Iterator[None]:
    """Run a server in the foreground, in its own session, until the end of the block."""
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, **said},
            user=None if owner is None else owner.pw_uid,
            group=None if owner is None else owner.pw_gid,
            extra_groups=None if owner is None else [],
            start_new_session=True,
            preexec_fn=end_with_parent if sys.platform == "linux" else None,
        )
    try:
        _await(process, ready, log)
        yield
    finally:
        _end(process)


def _await(process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path) -> None:
    until = time.monotonic() + START_SECONDS_MAX
    while not ready():
        if process.poll() is not None or time.monotonic() > until:
            said = log.read_text(errors="replace")[-1000:]
            raise Unavailable(f"{Path(log.stem)} did not start: {said}")
        time.sleep(LOOK_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The session is the server's own: a shell that started the real server is in it, too."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS_MAX)
            return


@contextmanager
def _folder(name: str, user: str = "") -> Iterator[tuple[Path, pwd.struct_passwd | None]]:
    """A temporary folder, and whom it belongs to if that is not who runs this."""
    with tempfile.TemporaryDirectory(prefix=f"hf-{name}-", dir="/tmp") as made:
        folder = Path(made)
        owner = pwd.getpwnam(user) if user and os.geteuid() == 0 else None
        if owner is not None:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        yield folder, owner


def _found(program: str, package: str) -> str:
    path = f"{os.environ['PATH']}:/usr/sbin"
    if found := shutil.which(program, path=path):
        return found
    subprocess.run([ROOT / "scripts" / "install-packages", package], check=False)
    if found := shutil.which(program, path=path):
        return found
    raise Unavailable(f"{package} is not installed; to measure it: apt-get install {package}")


def _accepts(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_neighbors() -> int:
    """A free port below another free port."""
    while True:
        port = free_port()
        with closing(socket.socket()) as probe, suppress(OSError, OverflowError):
            probe.bind(("127.0.0.1", port + 1))
            return port
