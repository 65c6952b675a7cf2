"""Messages that get lost, arrive twice, late or in another order, and messages of strangers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum
from random import Random
from uuid import UUID

from holdfast.domain.job import Claimed, Lease, Settlement
from holdfast.domain.messengers import MessengerStatus
from holdfast.wakeups.protocol import Escort, Heard, Hint, Listener, Look, Messenger, Wakeup

DELAY_SECONDS_MAX = 0.5


class Fault(StrEnum):
    LOSE = "lose"  # all of them
    DROP = "drop"  # some of them
    DOUBLE = "double"
    REORDER = "reorder"
    DELAY = "delay"
    STRANGE = "strange"  # add messages about jobs and queues that nobody knows


class Faults:
    """What happens to messages on their way. The same seed gives the same faults."""

    def __init__(self, *kinds: Fault, seed: int = 1) -> None:
        self._kinds = kinds
        self._random = Random(seed)

    def through(self, heard: Heard) -> Heard:
        """Pass wake-ups on, on the running event loop, as the faults allow."""
        loop = asyncio.get_running_loop()
        withheld: list[Wakeup] = []

        def hear(wakeup: Wakeup) -> None:
            for each in self._altered(wakeup, withheld):
                if Fault.DELAY in self._kinds:
                    loop.call_later(self._random.random() * DELAY_SECONDS_MAX, heard, each)
                else:
                    heard(each)

        return hear if self._kinds else heard

    def sent(self, hints: Sequence[Hint]) -> list[Hint]:
        """What is sent of these hints."""
        kept = [hint for hint in hints if not self._loses()]
        if Fault.DOUBLE in self._kinds:
            kept += kept
        if Fault.REORDER in self._kinds:
            self._random.shuffle(kept)
        return kept

    def _altered(self, wakeup: Wakeup, withheld: list[Wakeup]) -> Iterator[Wakeup]:
        if self._loses():
            return
        if Fault.STRANGE in self._kinds:
            yield Wakeup(queue="nobody's", job_id=UUID(int=self._random.getrandbits(128)))
            yield Wakeup(canceled=UUID(int=self._random.getrandbits(128)))
            yield Wakeup(job_id=UUID(int=self._random.getrandbits(128)))
        if Fault.REORDER in self._kinds and not withheld:
            withheld.append(wakeup)  # until the next one has passed it
            return
        yield wakeup
        if Fault.DOUBLE in self._kinds:
            yield wakeup
        while withheld:
            yield withheld.pop()

    def _loses(self) -> bool:
        if Fault.LOSE in self._kinds:
            return True
        return Fault.DROP in self._kinds and self._random.random() < 0.5


class FaultyMessenger:
    """A messenger between whose ends things go wrong."""

    def __init__(self, messenger: Messenger, faults: Faults) -> None:
        self._messenger = messenger
        self._faults = faults

    @property
    def name(self) -> str:
        return self._messenger.name

    def connect(self) -> None:
        self._messenger.connect()

    def post(self, hints: Sequence[Hint]) -> None:
        if sent := self._faults.sent(hints):
            self._messenger.post(sent)

    async def listen(self, heard: Heard) -> Listener:
        return await self._messenger.listen(self._faults.through(heard))

    def status(self) -> MessengerStatus:
        return self._messenger.status()

    async def close(self) -> None:
        await self._messenger.close()


class FaultyEscort(FaultyMessenger):
    """The same for a messenger whose messages accompany their jobs."""

    def __init__(self, messenger: Messenger, escort: Escort, faults: Faults) -> None:
        super().__init__(messenger, faults)
        self._escort = escort

    def attach(self, worker_id: str, look: Look, room: Callable[[], int]) -> None:
        self._escort.attach(worker_id, look, room)

    def detach(self, worker_id: str) -> None:
        self._escort.detach(worker_id)

    def started(self, job: Claimed) -> None:
        self._escort.started(job)

    def renewed(self, leases: Collection[Lease]) -> None:
        self._escort.renewed(leases)

    def settled(self, job: Claimed, settlement: Settlement) -> None:
        self._escort.settled(job, settlement)

    def lost(self, job: Claimed) -> None:
        self._escort.lost(job)


def faulty(messenger: Messenger, faults: Faults) -> Messenger:
    if isinstance(messenger, Escort):
        return FaultyEscort(messenger, messenger, faults)
    return FaultyMessenger(messenger, faults)
