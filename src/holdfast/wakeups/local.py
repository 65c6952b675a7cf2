"""Wake-ups between processes that share an SQLite file, as datagrams on Unix sockets.

Each listener has a socket in a directory that belongs to the user and the database. A sender writes
to all of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import socket
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from logging import WARNING
from uuid import UUID

from holdfast.observability import logs
from holdfast.wakeups.protocol import Heard, Wakeup

_PATH_BYTES_MAX = 103  # of a Unix socket: with the final NUL, 104 on macOS and 108 on Linux
_DATAGRAM_BYTES_MAX = 4096
_DATAGRAMS_AT_ONCE_MAX = 1000
_BINDS_MAX = 100


class LocalSignals:
    """Sends and receives the wake-ups of one database."""

    def __init__(self, database: str, *, check_seconds: float = 10.0) -> None:
        real_path = os.path.realpath(database)
        digest = hashlib.sha256(os.fsencode(real_path)).hexdigest()[:16]
        self._home = os.path.join(tempfile.gettempdir(), f"holdfast-{_user()}")
        self.directory = os.path.join(self._home, digest)
        self._check_seconds = check_seconds
        self._socket: socket.socket | None = None

    def send(self, wakeups: Iterable[Wakeup]) -> None:
        """Send to all listeners. If that fails, they find the jobs by polling."""
        try:
            names = os.listdir(self.directory)  # first: without a listener there is none
            _check_private(self._home)
            _check_private(self.directory)
        except OSError:
            return
        messages = [_encode(wakeup) for wakeup in wakeups]
        for name in names:
            self._send_to(os.path.join(self.directory, name), messages)

    def listen(self, heard: Heard) -> LocalListener | None:
        """Receive wake-ups on the running loop; None where loops or sockets don't support it."""
        if not hasattr(socket, "AF_UNIX"):
            return None
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        path = os.path.join(self.directory, name)
        listener = LocalListener(self._home, path, heard, self._check_seconds)
        try:
            listener.start()
        except NotImplementedError:
            return None
        except OSError as error:
            logs.event(WARNING, "wakeups_unavailable", f"polling only: {error}")
            return None
        return listener

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send_to(self, path: str, messages: Iterable[bytes]) -> None:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        try:
            for message in messages:
                self._socket.sendto(message, path)
        except ConnectionRefusedError:
            _remove_stale(path)
        except OSError:
            return  # a listener whose buffer is full has enough wake-ups


class LocalListener:
    """A bound socket that the loop reads. If a clean-up of temporary directories removes it, it is
    bound again, followed by a look at everything."""

    def __init__(self, home: str, path: str, heard: Heard, check_seconds: float) -> None:
        self._home = home
        self._directory = os.path.dirname(path)
        self._path = path
        self._heard = heard
        self._check_seconds = check_seconds
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._next_check: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._bind()
        self._next_check = self._loop.call_later(self._check_seconds, self._check)

    async def close(self) -> None:
        if self._next_check is not None:
            self._next_check.cancel()
        self._unbind()
        _remove_unused(self._directory)

    def _bind(self) -> None:
        if len(os.fsencode(self._path)) > _PATH_BYTES_MAX:
            raise OSError(
                f"the path {self._path} is too long for a socket; set TMPDIR to a shorter one"
            )
        _make_private(self._home)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            bound.setblocking(False)
            self._bind_in_directory(bound)
            self._loop.add_reader(bound.fileno(), self._receive)
        except BaseException:
            bound.close()
            with suppress(OSError):
                os.unlink(self._path)
            _remove_unused(self._directory)
            raise
        self._socket = bound

    def _bind_in_directory(self, bound: socket.socket) -> None:
        for _ in range(_BINDS_MAX):
            # Another listener that closes may remove the directory before the socket is in it.
            with suppress(FileNotFoundError):
                _make_private(self._directory)
                bound.bind(self._path)
                return
        raise FileNotFoundError(f"{self._directory} is removed again and again")

    def _unbind(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
            with suppress(OSError):
                os.unlink(self._path)

    def _receive(self) -> None:
        wakeups: dict[Wakeup, None] = {}
        with suppress(OSError):
            for _ in range(_DATAGRAMS_AT_ONCE_MAX):
                assert self._socket is not None
                wakeups[_decode(self._socket.recv(_DATAGRAM_BYTES_MAX))] = None
        for wakeup in wakeups:
            self._heard(wakeup)

    def _check(self) -> None:
        try:
            os.utime(self._path)
        except OSError:
            self._unbind()
            try:
                self._bind()
                self._heard(Wakeup())
            except OSError as error:
                logs.event(WARNING, "wakeups_lost", f"polling until the socket is back: {error}")
        self._next_check = self._loop.call_later(self._check_seconds, self._check)


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _make_private(directory: str) -> None:
    """Make a directory for this user only, or check that it is one: others must not send."""
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    _check_private(directory)


def _check_private(directory: str) -> None:
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != _user() or found.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a directory that only this user can access")


def _remove_unused(directory: str) -> None:
    """Remove a directory in which nobody listens, with the sockets of processes that died."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        _check_private(directory)
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                _remove_stale(path)
            except OSError:
                continue
        os.rmdir(directory)


def _remove_stale(path: str) -> None:
    """Remove a socket whose process has died: no other will bind this name."""
    with suppress(OSError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)


def _encode(wakeup: Wakeup) -> bytes:
    if wakeup.canceled is not None:
        return f"c:{wakeup.canceled}".encode()
    if wakeup.queue is not None:
        return f"q:{wakeup.queue}".encode()
    return b"*"


def _decode(message: bytes) -> Wakeup:
    """Decode a message. An invalid one is a wake-up, too: an extra look does no harm."""
    kind, rest = message[:2], message[2:]
    try:
        if kind == b"q:":
            return Wakeup(queue=rest.decode())
        if kind == b"c:":
            return Wakeup(canceled=UUID(rest.decode()))
    except ValueError:
        pass
    return Wakeup()
