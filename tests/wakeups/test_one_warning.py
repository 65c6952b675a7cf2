"""An outage of a broker is one warning, however late each of its connections notices it."""

from __future__ import annotations

import pytest

from holdfast.messengers import RabbitMQ
from tests.support.running import seen_events
from tests.support.seams import HandSeam

LOST, BACK = "messenger_lost", "messenger_restored"


class Connections:
    """Of one messenger: to send and to listen, on a clock that the test moves."""

    def __init__(self) -> None:
        self._seam = HandSeam()
        messenger = RabbitMQ("amqp://127.0.0.1:1/", seam=self._seam)
        self._by_verb = {"send": messenger._sent, "listen": messenger._heard}

    def change(self, verb: str, *, up: bool) -> None:
        self._seam.seconds += 1.0
        direction = self._by_verb[verb]
        direction.begin()
        if up:
            direction.up()
        else:
            direction.down(ConnectionResetError())


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ("send- listen- send+ listen+", [LOST, BACK]),
        ("send+ listen+ listen- send- listen+ send+", [LOST, BACK]),
        ("send+ listen+ listen- listen+ send- send+", [LOST, BACK]),
        ("send+ listen+ listen- listen+ listen- listen+", [LOST, BACK, LOST, BACK]),
        ("send+ listen+ listen- listen+ send- send+ send- send+", [LOST, BACK, LOST, BACK]),
    ],
    ids=["away at first", "both at once", "one notices late", "twice", "late, and then again"],
)
async def test_an_outage_is_told_once(changes: str, told: list[str]) -> None:
    connections = Connections()
    async with seen_events() as seen:
        for each in changes.split():
            connections.change(each[:-1], up=each[-1] == "+")
    assert [event.name for event in seen.events if event.name in (LOST, BACK)] == told
