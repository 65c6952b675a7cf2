"""Time limits that the server enforces, so that a client that hangs or is gone blocks no other.

A worker has the time of its lease to show that it is alive. Its open transactions must end before
that: their locks would keep its jobs from being reclaimed, and block others.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

COMMAND_SECONDS_MAX = 60.0  # for a statement, and for one use of a pooled connection
CONNECT_SECONDS_MAX = 10.0  # until the server accepts the login
IDLE_SECONDS_MIN, IDLE_SECONDS_MAX = 0.5, 2.0
COMMIT_SECONDS_MAX = 10.0
SILENT_SECONDS_MIN, SILENT_SECONDS_MAX = 3.0, 10.0
_PROBES = 3


class Limits:
    """`idle_seconds` limits how long a transaction of the engine waits for its next statement, and
    `commit_seconds` how long one of the application that has ended a job waits for its commit.
    `silent_seconds` is how long either end trusts a silent connection, and `connect_seconds` how
    long a new one may take to become usable."""

    def __init__(self, lease_seconds: float) -> None:
        third = max(lease_seconds / 3, IDLE_SECONDS_MIN)
        self.idle_seconds = min(third, IDLE_SECONDS_MAX)
        self.commit_seconds = min(third, COMMIT_SECONDS_MAX)
        self.silent_seconds = min(max(third, SILENT_SECONDS_MIN), SILENT_SECONDS_MAX)
        self.connect_seconds = min(max(lease_seconds, CONNECT_SECONDS_MAX), COMMAND_SECONDS_MAX)
        self._first_probe_seconds = int(self.silent_seconds / 2)
        self._probe_seconds = max(1, int(self.silent_seconds / 2 / _PROBES))

    @property
    def of_transactions(self) -> dict[str, int]:
        """The server's settings for the engine's own statements, in milliseconds."""
        return {
            "idle_in_transaction_session_timeout": _milliseconds(self.idle_seconds),
            "statement_timeout": _milliseconds(COMMAND_SECONDS_MAX),
        }

    @property
    def of_connections(self) -> dict[str, int]:
        """The server's settings for its end of a connection; a local socket ignores them."""
        return {
            "tcp_keepalives_idle": self._first_probe_seconds,
            "tcp_keepalives_interval": self._probe_seconds,
            "tcp_keepalives_count": _PROBES,
            "tcp_user_timeout": _milliseconds(self.silent_seconds),
        }

    def set_on(self, connection: Any) -> None:
        """Set the same on our end."""
        ours = connection._transport.get_extra_info("socket")
        if ours is None or ours.family not in (socket.AF_INET, socket.AF_INET6):
            return
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", self._first_probe_seconds),
            ("TCP_KEEPINTVL", self._probe_seconds),
            ("TCP_KEEPCNT", _PROBES),
            ("TCP_USER_TIMEOUT", _milliseconds(self.silent_seconds)),
        ):
            if option := getattr(socket, name, None):  # some systems lack it
                with suppress(OSError):  # or have only its name
                    ours.setsockopt(socket.IPPROTO_TCP, option, value)


def to_set(settings: dict[str, int], how: str = "SET") -> str:
    return "; ".join(f"{how} {name} = {value}" for name, value in settings.items())


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
