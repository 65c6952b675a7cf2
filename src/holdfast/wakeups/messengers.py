"""The messengers of one app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from logging import WARNING

from holdfast.domain.job import NewJob, Receipt
from holdfast.domain.messengers import MessengerStatus
from holdfast.domain.texts import shown, type_name
from holdfast.observability import logs
from holdfast.wakeups.protocol import Escort, Heard, Hint, Listener, Messenger
from holdfast.wakeups.status import name_of, status_of


class Messengers:
    def __init__(self, each: Sequence[Messenger]) -> None:
        self._each = tuple(each)

    def __bool__(self) -> bool:
        return bool(self._each)

    def __iter__(self) -> Iterator[Messenger]:
        return iter(self._each)

    @property
    def escorts(self) -> list[Escort]:
        return [each for each in self._each if isinstance(each, Escort)]

    def connect(self) -> None:
        for each in self._each:
            with _reported(each):
                each.connect()

    def post(self, hints: Sequence[Hint]) -> None:
        if hints:
            for each in self._each:
                with _reported(each):
                    each.post(hints)

    def after_commit(self, add: Callable[[Callable[[], None]], None] | None) -> Messengers:
        """The same for a transaction, whose block calls what it is given by `add` after its commit.
        Without `add`, nobody would see the commit, so nothing is sent."""
        return Messengers(()) if add is None else _AfterCommit(self, add)

    async def listen(self, heard: Heard) -> list[Listener]:
        listeners = []
        for each in self._each:
            with _reported(each):
                listeners.append(await each.listen(heard))
        return listeners

    def statuses(self) -> tuple[MessengerStatus, ...]:
        return tuple(map(status_of, self._each))

    @property
    def down(self) -> int:
        return sum(each.is_down for each in self.statuses())

    async def close(self) -> None:
        await asyncio.gather(*map(self._close, self._each))

    async def _close(self, messenger: Messenger) -> None:
        with _reported(messenger):
            await messenger.close()


class _AfterCommit(Messengers):
    def __init__(self, messengers: Messengers, add: Callable[[Callable[[], None]], None]) -> None:
        super().__init__([*messengers])
        self._add = add

    def post(self, hints: Sequence[Hint]) -> None:
        self._add(partial(super().post, hints))


@contextmanager
def _reported(messenger: Messenger) -> Iterator[None]:
    """A messenger must not raise. If one does, the job that it should have told of is committed
    all the same, so nobody else may suffer."""
    try:
        yield
    except Exception as error:
        logs.event(
            WARNING,
            "messenger_failed",
            f"{type_name(error)}: {shown(error, str)}; polling finds new jobs",
            messenger=name_of(messenger),
        )


def hints_of(jobs: Sequence[NewJob], receipts: Sequence[Receipt], now: datetime) -> list[Hint]:
    """The jobs that were recorded: not those of an idempotency key that was known already."""
    return [
        Hint(
            receipt.id,
            job.queue,
            _delay_seconds(job, now),
            job.tenant,
            job.priority,
            job.correlation_id,
        )
        for job, receipt in zip(jobs, receipts, strict=True)
        if receipt.created
    ]


def _delay_seconds(job: NewJob, now: datetime) -> float:
    if job.run_at is None:
        return job.delay_seconds
    return max(0.0, (job.run_at - now).total_seconds())
