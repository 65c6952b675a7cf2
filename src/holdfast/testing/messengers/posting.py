"""What every messenger promises by itself, without a database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

from holdfast.domain.limits import HINTS_AT_ONCE_MAX
from holdfast.testing.messengers.waking import NEVER_SECONDS, PATIENCE_SECONDS, WakeupConformance
from holdfast.testing.messengers.wiring import Wiring
from holdfast.wakeups.protocol import Hint, Messenger, Wakeup

POST_SECONDS_MAX = 0.5
PAUSE_SECONDS = 0.05


class Ear:
    """Collects wake-ups."""

    def __init__(self) -> None:
        self.jobs: list[UUID] = []
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()

    def __call__(self, wakeup: Wakeup) -> None:
        assert asyncio.get_running_loop() is self._loop, "heard on another event loop"
        if wakeup.job_id is not None:
            self.jobs.append(wakeup.job_id)
        self._more.set()

    async def hears_of(self, messenger: Messenger) -> None:
        """Post hints until one is heard: nobody knows when a listener is connected."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.jobs:
                messenger.post([_hint()])
                await asyncio.sleep(PAUSE_SECONDS)

    async def hears(self, job_id: UUID) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while job_id not in self.jobs:
                self._more.clear()
                await self._more.wait()


def _hint(delay_seconds: float = 0.0) -> Hint:
    return Hint(uuid4(), "default", delay_seconds)


class MessengerConformance(WakeupConformance):
    """For messengers. A `wiring` with several of them tests them together."""

    async def test_what_is_posted_is_heard(self, wiring: Wiring) -> None:
        async with self._both(wiring) as (sender, _, ear):
            hint = _hint()
            sender.post([hint])
            await ear.hears(hint.job_id)

    async def test_a_thread_without_an_event_loop_can_post(self, wiring: Wiring) -> None:
        async with self._both(wiring) as (sender, _, ear):
            hint = _hint()
            await asyncio.to_thread(sender.post, [hint])
            await ear.hears(hint.job_id)

    async def test_a_hint_for_later_is_not_heard_now(self, wiring: Wiring) -> None:
        async with self._both(wiring) as (sender, _, ear):
            late, now = _hint(NEVER_SECONDS), _hint()
            sender.post([late])
            sender.post([now])
            await ear.hears(now.job_id)
            assert late.job_id not in ear.jobs

    async def test_a_closed_messenger_can_be_used_again(self, wiring: Wiring) -> None:
        async with self._both(wiring) as (sender, _, ear):
            await sender.close()
            await sender.close()
            hint = _hint()
            sender.post([hint])
            await ear.hears(hint.job_id)

    async def test_a_close_sends_what_is_left(self, wiring: Wiring) -> None:
        async with self._both(wiring) as (sender, _, ear):
            hints = [_hint() for _ in range(HINTS_AT_ONCE_MAX)]
            sender.post(hints)
            await sender.close()
            for hint in hints:
                await ear.hears(hint.job_id)

    async def test_a_closed_listener_hears_nothing(self, wiring: Wiring) -> None:
        async with self._both(wiring) as (sender, listening, ear):
            before = Ear()
            listener = await listening.listen(before)
            await listener.close()
            known = len(before.jobs)
            hint = _hint()
            sender.post([hint])
            await ear.hears(hint.job_id)
            assert len(before.jobs) == known

    async def test_a_post_neither_waits_nor_raises_whatever_happens(self, wiring: Wiring) -> None:
        loop = asyncio.get_running_loop()
        async with self._both(wiring) as (sender, _, ear):
            started = loop.time()
            sender.post([_hint() for _ in range(50 * HINTS_AT_ONCE_MAX)])
            for _ in range(50):
                sender.post([_hint()])
            assert loop.time() - started < POST_SECONDS_MAX
            if wiring.cut is not None:
                await wiring.cut()
                started = loop.time()
                sender.post([_hint()])
                assert loop.time() - started < POST_SECONDS_MAX
            ear.jobs.clear()
            await ear.hears_of(sender)

    async def test_its_status_counts_messages(self, wiring: Wiring) -> None:
        async with self._both(wiring) as (sender, listening, ear):
            assert ear.jobs
            sent, heard = sender.status(), listening.status()
            assert sent.name == heard.name == sender.name
            assert sent.live, sent.because
            assert heard.live, heard.because
            assert sent.sent > 0
            assert heard.heard > 0
            assert sent.sent_seconds is not None
            assert heard.heard_seconds is not None

    @asynccontextmanager
    async def _both(self, wiring: Wiring) -> AsyncIterator[tuple[Messenger, Messenger, Ear]]:
        """A messenger that sends, one that listens, and an ear that hears."""
        sender, listening = wiring.make_messengers()[0], wiring.make_messengers()[0]
        ear = Ear()
        listener = await listening.listen(ear)
        try:
            await ear.hears_of(sender)
            yield sender, listening, ear
        finally:
            await listener.close()
            await listening.close()
            await sender.close()
