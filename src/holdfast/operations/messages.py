"""Look at the messages that a broker keeps, and send dead letters again, as their rows decide."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final
from uuid import UUID

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.job import Filter, Job
from holdfast.domain.limits import MESSAGES_LOOKED_AT_MAX
from holdfast.domain.messages import MessageStatus, Repair, Replayed, is_over, why_not_replayed
from holdfast.domain.states import State
from holdfast.domain.texts import check_range
from holdfast.operations.desk import Desk
from holdfast.operations.jobs import Jobs, pages
from holdfast.runtime.blocking import blocking
from holdfast.wakeups.protocol import Box, DeadLetters, Hint, Inspectable, Kept

PEEKED_DEFAULT: Final = 100


class Messages:
    """`hf.messages`: the messages of brokers that keep them, such as Azure Service Bus.

    A dead letter ends no job: its job's row alone says what is to be done.
    """

    def __init__(self, desk: Desk, jobs: Jobs) -> None:
        self._desk = desk
        self._jobs = jobs
        self._run_sync = desk.run_sync

    async def peek(
        self, *, dead: bool | None = None, limit: int = PEEKED_DEFAULT
    ) -> list[MessageStatus]:
        """Return the oldest dead letters and messages, or with `dead` only those or only these,
        with the state of their jobs. Changes nothing."""
        check_range("limit", limit, 1, MESSAGES_LOOKED_AT_MAX)
        boxes = [Box.DEAD] * (dead is not False) + [Box.QUEUE] * (dead is not True)
        found: list[MessageStatus] = []
        for messenger in self._inspectable():
            for box in boxes:
                letters = await messenger.peek(box, limit)
                found += [_status(messenger, each, await self._job(each)) for each in letters]
        return found

    async def replay(
        self,
        numbers: Collection[int] | None = None,
        *,
        limit: int = MESSAGES_LOOKED_AT_MAX,
        dry_run: bool = False,
    ) -> list[Replayed]:
        """Send dead letters again, those with these numbers or all, and remove them.

        Only those whose jobs wait are sent: the others are left, and returned with a reason.
        """
        check_range("limit", limit, 1, MESSAGES_LOOKED_AT_MAX)
        done = []
        for messenger in self._inspectable():
            async with _letters(messenger, limit, dry_run=dry_run) as letters:
                async for kept in letters:
                    if numbers is not None and kept.number not in numbers:
                        continue
                    job = await self._job(kept)
                    because = why_not_replayed(kept.hint and kept.hint.job_id, job)
                    if because is None and job is not None:
                        await letters.replace(kept, await self._again(kept, job))
                    done.append(
                        Replayed(
                            message=_status(messenger, kept, job),
                            sent=because is None,
                            because=because or "its job waits",
                        )
                    )
        return done

    async def repair(self, *, limit: int = MESSAGES_LOOKED_AT_MAX, dry_run: bool = False) -> Repair:
        """Remove dead letters whose jobs have ended or don't exist, and announce due jobs that no
        message on the queue names. Repeating it does nothing twice."""
        check_range("limit", limit, 1, MESSAGES_LOOKED_AT_MAX)
        removed: list[MessageStatus] = []
        announced: list[UUID] = []
        is_whole = True
        due, all_due = await self._due(limit)
        for messenger in self._inspectable():
            async with _letters(messenger, limit, dry_run=dry_run) as letters:
                async for kept in letters:
                    job = await self._job(kept)
                    if kept.hint is not None and is_over(job):
                        removed.append(_status(messenger, kept, job))
                        await letters.remove(kept)
            on_queue = await messenger.peek(Box.QUEUE, MESSAGES_LOOKED_AT_MAX)
            if len(on_queue) == MESSAGES_LOOKED_AT_MAX:
                is_whole = False  # the jobs may have messages that were not looked at
                continue
            named = {kept.hint.job_id for kept in on_queue if kept.hint is not None}
            missing = [job for job in due if job.id not in named]
            if missing and not dry_run:
                await messenger.send([Hint.of(job) for job in missing])
            announced += [job.id for job in missing]
        return Repair(
            removed=tuple(removed),
            announced=tuple(dict.fromkeys(announced)),
            is_whole=is_whole and all_due,
        )

    def _inspectable(self) -> list[Inspectable]:
        messengers = [*self._desk.messengers]
        found = [each for each in messengers if isinstance(each, Inspectable)]
        if not found:
            have = ", ".join(each.name for each in messengers) or "none"
            raise ConfigurationError(
                f"no messenger of this app keeps messages (it has: {have}); only Azure Service Bus"
                " does: RabbitMQ's are gone when they arrive"
            )
        return found

    async def _job(self, kept: Kept) -> Job | None:
        if kept.hint is None:
            return None
        return await (await self._desk.store()).get(kept.hint.job_id)

    async def _again(self, kept: Kept, job: Job) -> Hint:
        """The new message: what the old one said, due when the row is."""
        now = await self._now()
        hint = Hint.of(job, max(0.0, (job.run_at - now).total_seconds()))
        return hint._replace(body=kept.hint and kept.hint.body)

    async def _due(self, limit: int) -> tuple[list[Job], bool]:
        """Jobs that are due, and whether these are all."""
        now = await self._now()
        due: list[Job] = []
        more = None
        async for page in pages(self._jobs, Filter(states=(State.QUEUED,)), limit, None):
            more = page.after
            due += [job for job in page.jobs if job.run_at <= now]
        return due, more is None

    async def _now(self) -> datetime:
        return await (await self._desk.store()).now()

    peek_sync = blocking(peek)
    replay_sync = blocking(replay)
    repair_sync = blocking(repair)


class _Peeked:
    """Dead letters that stay what and where they are."""

    def __init__(self, letters: Sequence[Kept]) -> None:
        self._letters = letters

    async def __aiter__(self) -> AsyncIterator[Kept]:
        for letter in self._letters:
            yield letter

    async def remove(self, letter: Kept) -> None:
        """Nothing is removed."""

    async def replace(self, letter: Kept, hint: Hint) -> None:
        """Nothing is sent."""


@asynccontextmanager
async def _letters(
    messenger: Inspectable, limit: int, *, dry_run: bool
) -> AsyncIterator[DeadLetters]:
    if dry_run:
        yield _Peeked(await messenger.peek(Box.DEAD, limit))
        return
    async with messenger.dead_letters(limit) as letters:
        yield letters


def _status(messenger: Inspectable, kept: Kept, job: Job | None) -> MessageStatus:
    hint = kept.hint
    return MessageStatus(
        messenger=messenger.address,
        box=kept.box.value,
        number=kept.number,
        state=kept.state,
        job_id=None if hint is None else hint.job_id,
        job_state=None if job is None else job.state,
        job_attempts=None if job is None else job.attempts,
        job_run_at=None if job is None else job.run_at,
        attempt=None if hint is None else hint.attempt,
        deliveries=kept.deliveries,
        sent_at=kept.sent_at,
        due_at=kept.due_at,
        correlation_id=None if hint is None else hint.correlation_id,
        reason=kept.reason,
        description=kept.description,
    )
