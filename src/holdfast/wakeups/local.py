"""Wake-ups between the processes that share one SQLite file, by datagrams on Unix sockets.

Each listener has a socket in a directory that belongs to the user and the database; a sender
writes to all that are there.
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

_PATH_BYTES_MAX = 103  # of a Unix socket: 104 with the closing NUL on macOS, 108 on Linux
_DATAGRAM_BYTES_MAX = 4096
_DATAGRAMS_AT_ONCE_MAX = 1000


class LocalSignals:
    """Send and hear the wake-ups of one database."""

    def __init__(self, database: str, *, check_seconds: float = 10.0) -> None:
        real_path = os.path.realpath(database)
        digest = hashlib.sha256(os.fsencode(real_path)).hexdigest()[:16]
        self._home = os.path.join(tempfile.gettempdir(), f"holdfast-{_user()}")
        self.directory = os.path.join(self._home, digest)
        self._check_seconds = check_seconds
        self._socket: socket.socket | None = None

    def send(self, wakeups: Iterable[Wakeup]) -> None:
        """Tell all listeners; whatever goes wrong costs them only the time until they poll."""
        try:
            _check_private(self._home)
            _check_private(self.directory)
            names = os.listdir(self.directory)
        except OSError:
            return
        messages = [_encode(wakeup) for wakeup in wakeups]
        for name in names:
            self._send_to(os.path.join(self.directory, name), messages)

    def listen(self, heard: Heard) -> LocalListener | None:
        """Hear wake-ups on the running loop; None where loops or sockets can't do that."""
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
            # Its process has died: nobody else will ever bind this name again.
            with suppress(OSError):
                if stat.S_ISSOCK(os.lstat(path).st_mode):
                    os.unlink(path)
        except OSError:
            # A listener whose buffer is full has wake-ups enough.
            return


class LocalListener:
    """A bound socket, watched by the loop. What tidies temporary directories may remove it: then
    it is bound anew, and everything is looked at once."""

    def __init__(self, home: str, path: str, heard: Heard, check_seconds: float) -> None:
        self._home = home
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

    def _bind(self) -> None:
        if len(os.fsencode(self._path)) > _PATH_BYTES_MAX:
            raise OSError(f"the path {self._path} is too long for a socket; set TMPDIR")
        _make_private(self._home)
        _make_private(os.path.dirname(self._path))
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            bound.setblocking(False)
            bound.bind(self._path)
            self._loop.add_reader(bound.fileno(), self._receive)
        except BaseException:
            bound.close()
            with suppress(OSError):
                os.unlink(self._path)
            raise
        self._socket = bound

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
                logs.event(WARNING, "wakeups_lost", f"polling until it is back: {error}")
        self._next_check = self._loop.call_later(self._check_seconds, self._check)


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _make_private(directory: str) -> None:
    """Make a directory for this user alone, or see that it is one: others must not send."""
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    _check_private(directory)


def _check_private(directory: str) -> None:
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != _user() or found.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a directory of this user alone")


def _encode(wakeup: Wakeup) -> bytes:
    if wakeup.canceled is not None:
        return f"c:{wakeup.canceled}".encode()
    if wakeup.queue is not None:
        return f"q:{wakeup.queue}".encode()
    return b"*"


def _decode(message: bytes) -> Wakeup:
    """Take what can't be read for a wake-up as well: looking once too often harms nobody."""
    kind, rest = message[:2], message[2:]
    try:
        if kind == b"q:":
            return Wakeup(queue=rest.decode())
        if kind == b"c:":
            return Wakeup(canceled=UUID(rest.decode()))
    except ValueError:
        pass
    return Wakeup()
