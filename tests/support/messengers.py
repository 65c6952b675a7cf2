"""A messenger without a broker: tests say how it is, and see what was posted."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.messengers import MessengerStatus
from holdfast.wakeups.protocol import Heard, Hint

UP = MessengerStatus(name="pigeon", address="pigeon://loft", live=True, since_seconds=60.0)
DOWN = MessengerStatus(
    name="pigeon", address="pigeon://loft", live=False, since_seconds=90.0, because="no wind"
)


class Pigeon:
    name = "pigeon"

    def __init__(self, status: MessengerStatus = UP) -> None:
        self.now = status
        self.posted: list[Hint] = []
        self.connected = False

    def connect(self) -> None:
        self.connected = True

    def post(self, hints: Sequence[Hint]) -> None:
        self.posted += hints

    async def listen(self, heard: Heard) -> Pigeon:
        return self

    def status(self) -> MessengerStatus:
        return self.now

    async def close(self) -> None: ...
