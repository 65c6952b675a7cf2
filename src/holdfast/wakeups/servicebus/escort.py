"""Broker-led mode: a worker claims the job that a message names, and holds the message while it
runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from logging import WARNING
from typing import Any, Final

from holdfast.domain.limits import DEAD_LETTERS_WATCHED_MAX
from holdfast.observability import logs
from holdfast.runtime.seam import Seam
from holdfast.wakeups.protocol import Heard
from holdfast.wakeups.servicebus.broker import (
    ServiceBusBroker,
    opened,
    peek_first,
    until_first,
)
from holdfast.wakeups.servicebus.convoy import Convoy
from holdfast.wakeups.servicebus.letters import read
from holdfast.wakeups.servicebus.place import Place

DEAD_LETTERS_SECONDS: Final = 5.0
READ_SECONDS: Final = 0.02  # for which the client reads before it writes what is to be settled


class EscortBroker(ServiceBusBroker):
    """Receives no more messages than there are jobs that can start."""

    def __init__(self, place: Place, seam: Seam, convoy: Convoy) -> None:
        super().__init__(place, seam)
        self._convoy = convoy
        self._known: set[int] = set()  # dead letters

    @asynccontextmanager
    async def receiving(self, heard: Heard) -> AsyncIterator[Awaitable[None]]:
        client = self.client()
        receiver = client.get_queue_receiver(self._place.queue, socket_timeout=READ_SECONDS)
        dead = self.dead_letters(client)
        async with (
            opened(receiver, dead),
            until_first(self._convoy.receive(receiver, heard), self._watch(dead, heard)) as lost,
        ):
            yield lost

    async def _watch(self, dead: Any, heard: Heard) -> None:
        """Have a worker look at the job of each dead letter. Only the job's own attempts end it,
        and the letter stays for `holdfast messages`."""
        while True:
            found = await peek_first(dead, DEAD_LETTERS_WATCHED_MAX)
            for message in found:
                if message.sequence_number not in self._known:
                    _look_at(message, heard)
            self._known = {message.sequence_number for message in found}
            await asyncio.sleep(DEAD_LETTERS_SECONDS)


def _look_at(message: Any, heard: Heard) -> None:
    letter = read(message)
    logs.event(
        WARNING,
        "message_dead",
        f"{message.dead_letter_reason or 'no reason given'}; see: holdfast messages peek",
        job_id=None if letter is None else letter.job_id,
    )
    if letter is not None:
        heard(letter.wakeup)
