"""Dead letters that are received, so that some of them can be removed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from holdfast.wakeups.protocol import Box, Hint, Kept
from holdfast.wakeups.servicebus.broker import peek_first
from holdfast.wakeups.servicebus.letters import kept

RECEIVE_MAX: Final = 100
RECEIVE_SECONDS: Final = 2.0  # for letters that somebody else has locked

Send = Callable[[Sequence[Hint]], Awaitable[None]]


class Received:
    """Receives while it is iterated. What is not removed is given back at the end."""

    def __init__(self, receiver: Any, limit: int, send: Send) -> None:
        self._receiver = receiver
        self._limit = limit
        self._send = send
        self._messages: dict[int, Any] = {}

    async def __aiter__(self) -> AsyncIterator[Kept]:
        expected = len(await peek_first(self._receiver, self._limit))
        known: set[int] = set()
        while len(known) < expected:
            got = await self._receiver.receive_messages(
                max_message_count=min(RECEIVE_MAX, expected - len(known)),
                max_wait_time=RECEIVE_SECONDS,
            )
            fresh = []
            for message in got:
                letter = kept(message, Box.DEAD)
                self._messages[letter.number] = message
                if letter.number not in known:  # or its lock has expired, and it came again
                    fresh.append(letter)
            if not fresh:
                break
            for letter in fresh:
                known.add(letter.number)
                yield letter

    async def remove(self, letter: Kept) -> None:
        await self._receiver.complete_message(self._messages.pop(letter.number))

    async def replace(self, letter: Kept, hint: Hint) -> None:
        await self._send([hint])
        await self.remove(letter)

    async def give_back(self) -> None:
        """Dead letters can be abandoned as often as one likes."""
        for message in self._messages.values():
            with suppress(Exception):  # its lock has expired
                await self._receiver.abandon_message(message)
