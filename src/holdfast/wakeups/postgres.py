"""Wake-ups by LISTEN and NOTIFY, on a separate connection.

The payload is `q:<queue>`, `j:<job id>:<queue>` or `c:<job id>`. A connection can break silently,
and a pooler in transaction mode accepts LISTEN but delivers nothing. So the listener tests itself
first, then checks its connection regularly, and reconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from logging import INFO, WARNING
from random import Random
from typing import Any
from uuid import UUID

from holdfast.observability import logs
from holdfast.runtime.backoff import is_set_within
from holdfast.wakeups.protocol import Heard, Wakeup

CHANNEL = "holdfast"
SELF_TEST_SECONDS_MAX = 5.0
CHECK_SECONDS = 10.0
BACKOFF_SECONDS = 0.2
BACKOFF_SECONDS_MAX = 10.0
CLOSE_SECONDS_MAX = 2.0

Connect = Callable[[], Awaitable[Any]]
Notify = Callable[[str], Awaitable[None]]


async def start_listening(
    heard: Heard,
    *,
    connect: Connect,
    notify: Notify,
    random: Random,
    address: str,
    pooled: bool = False,
    check_seconds: float = CHECK_SECONDS,
) -> PostgresListener | None:
    """Listen, and test it with a notification of our own; None if that does not arrive."""
    listener = PostgresListener(heard, connect, random, address, pooled, check_seconds)
    try:
        await listener.start()
        # From another connection: a pooler delivers what the same connection sends.
        proven = await listener.hears_itself(notify)
    except BaseException:
        await listener.close()
        raise
    if proven:
        return listener
    await listener.close()
    log_unavailable(address)
    return None


def log_unavailable(address: str) -> None:
    logs.event(
        WARNING,
        "listen_unavailable",
        "PostgreSQL does not deliver notifications (a pooler in transaction mode?); new jobs are"
        " found only by polling",
        database=address,
    )


def parse(payload: str) -> Wakeup | None:
    """Read a payload. None if it is no wake-up; `Wakeup()` if it is unknown."""
    kind, _, rest = payload.partition(":")
    match kind:
        case "j":
            job_id, _, queue = rest.partition(":")
            with suppress(ValueError):
                return Wakeup(queue=queue, job_id=UUID(job_id))
        case "q":
            return Wakeup(queue=rest)
        case "c":
            with suppress(ValueError):
                return Wakeup(canceled=UUID(rest))
        case "t":
            return None
    return Wakeup()


class PostgresListener:
    def __init__(
        self,
        heard: Heard,
        connect: Connect,
        random: Random,
        address: str,
        pooled: bool,
        check_seconds: float,
    ) -> None:
        self._heard = heard
        self._connect = connect
        self._random = random
        self._address = address
        self._pooled = pooled
        self._check_seconds = check_seconds
        self._connection: Any = None
        self._lost = asyncio.Event()
        self._token = f"t:{random.getrandbits(64):016x}"
        self._tested = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        connection = await self._connect()
        try:
            await self._listen_on(connection)
        except Exception as error:
            # It was reachable a moment ago: reconnect.
            self._log_failure(error)
            self._lose()
        self._keeper = asyncio.create_task(self._keep(), name="holdfast-listener")

    async def hears_itself(self, notify: Notify) -> bool:
        """Send a notification and wait for it. True also if the connection is lost, which says
        nothing about notifications."""
        await notify(self._token)
        return await is_set_within(self._tested, SELF_TEST_SECONDS_MAX)

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                await connection.close(timeout=CLOSE_SECONDS_MAX)

    async def _listen_on(self, connection: Any) -> None:
        self._lost.clear()
        self._connection = connection
        connection.add_termination_listener(self._on_termination)
        # A pooler sends a whole transaction to one server.
        async with connection.transaction() if self._pooled else nullcontext():
            await connection.add_listener(CHANNEL, self._on_notification)

    async def _keep(self) -> None:
        while True:
            await self._until_lost()
            logs.event(WARNING, "listen_lost", database=self._address)
            await self._listen_again()
            logs.event(INFO, "listen_restored", database=self._address)
            self._heard(Wakeup())  # nobody knows what it missed

    async def _until_lost(self) -> None:
        while not await is_set_within(self._lost, self._check_seconds):
            if not await self._answers():
                return

    async def _answers(self) -> bool:
        """A network that drops packets closes no connection: only a query shows it."""
        try:
            await self._connection.execute("SELECT 1", timeout=self._check_seconds / 2)
        except Exception:
            return False
        return True

    async def _listen_again(self) -> None:
        backoff_seconds = BACKOFF_SECONDS
        while True:
            if self._connection is not None:
                self._connection.terminate()  # it may not answer any more
                self._connection = None
            try:
                return await self._listen_on(await self._connect())
            except Exception as error:
                self._log_failure(error)
            await asyncio.sleep(backoff_seconds * (0.5 + self._random.random()))
            backoff_seconds = min(2 * backoff_seconds, BACKOFF_SECONDS_MAX)

    def _log_failure(self, error: Exception) -> None:
        logs.event(WARNING, "listen_failed", str(error), database=self._address)

    def _on_termination(self, connection: Any) -> None:
        if connection is self._connection:
            self._lose()

    def _lose(self) -> None:
        self._lost.set()
        self._tested.set()

    def _on_notification(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        if payload == self._token:
            self._tested.set()
        elif wakeup := parse(payload):
            self._heard(wakeup)
