"""The messages that a process holds, each while its job runs here.

The row of a job decides what becomes of its message, never the other way round:

| the row says | the message |
|---|---|
| due | wakes the worker, and is held once the job starts here |
| runs here | is held: its lock is renewed with the lease |
| runs elsewhere, or has ended | is completed |
| due later | is completed, and sent again for that time |
| nothing: there is no such job | is a dead letter |

A held message is completed when its job's attempt is settled; a job that is queued again gets a new
message, due when the row is. A message is never abandoned: the broker would deliver it at once, and
count that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from logging import INFO
from typing import Any, Final, NamedTuple
from uuid import UUID

from holdfast.domain.errors import StoreError
from holdfast.domain.job import Claimed, Job, Lease, Settlement
from holdfast.domain.limits import MESSAGE_PUT_OFF_MAX, MESSAGES_RECEIVED_MAX
from holdfast.domain.secrets import masked
from holdfast.domain.states import State
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff, is_set_within
from holdfast.runtime.seam import Seam
from holdfast.wakeups.protocol import Heard, Hint, Look
from holdfast.wakeups.servicebus.broker import ask
from holdfast.wakeups.servicebus.letters import Letter, read

RECEIVE_SECONDS: Final = 5.0
MOMENT_SECONDS: Final = 0.01
PACE_SHARE: Final = 0.2
ROOM_SECONDS: Final = 1.0
START_SECONDS: Final = 0.1, 0.3, 0.6, 1.0  # for a worker to claim a job that it was told of
AGAIN_SECONDS: Final = 1.0  # the first time; then twice as long each time
EARLY_SECONDS: Final = 1.0  # by which clocks may differ
LOCK_SECONDS: Final = 30.0, 0.5, 300.0  # if the clocks seem to differ; least and most that count
LOCK_SHARE: Final = 2 / 3  # of it, after which it is renewed
LOOK_AGAIN_SECONDS: Final = 0.5, 5.0
UNREADABLE: Final = "NamesNoJob"
UNKNOWN: Final = "JobUnknown"


class Member(NamedTuple):
    """A worker of this process."""

    look: Look
    room: Callable[[], int]
    loop: asyncio.AbstractEventLoop


@dataclass(eq=False, slots=True)
class Held:
    """A message whose lock is ours. `lease` is that of its job, if that runs here; `taken` is set
    when it begins, or when nothing needs the message any more."""

    letter: Letter
    message: Any
    receiver: Any
    locked_at: float
    lock_seconds: float
    lease: Lease | None = None
    taken: asyncio.Event = field(default_factory=asyncio.Event)


class Convoy:
    """All but the methods for workers runs on the messenger's loop. `post` sends a hint."""

    def __init__(self, seam: Seam, renew_seconds: float, post: Callable[[Hint], None]) -> None:
        self._seam = seam
        self._renew_seconds = renew_seconds
        self._post = post
        self._crew: dict[str, Member] = {}
        self._running: dict[UUID, Lease] = {}  # changed by workers, read here
        self._held: dict[UUID, Held] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._renewed_at: float | None = None

    # For workers, on any thread.

    def attach(self, worker_id: str, look: Look, room: Callable[[], int]) -> None:
        self._crew[worker_id] = Member(look, room, asyncio.get_running_loop())

    def detach(self, worker_id: str) -> None:
        self._crew.pop(worker_id, None)

    def started(self, job: Claimed) -> None:
        self._running[job.id] = job.lease
        self._tell(self._begin, job.lease)

    def renewed(self, leases: Collection[Lease]) -> None:
        if self._held:
            self._tell(self._renew, leases)

    def settled(self, job: Claimed, settlement: Settlement) -> None:
        self._no_longer_runs(job.lease)
        if not settlement.state.ended:
            held = self._held.get(job.id)
            body = held.letter.hint.body if held is not None and held.lease == job.lease else None
            self._post(_next_hint(job, settlement, body))
        self._tell(self._finish, job.lease)

    def lost(self, job: Claimed) -> None:
        self._no_longer_runs(job.lease)
        self._tell(self._let_go, job.lease)

    def _no_longer_runs(self, lease: Lease) -> None:
        if self._running.get(lease.job_id) == lease:
            del self._running[lease.job_id]

    def _tell(self, function: Callable[..., None], *arguments: Any) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(function, *arguments)

    # On the messenger's loop.

    async def receive(self, receiver: Any, heard: Heard) -> None:
        """Receive as many messages as there are jobs that can start, until the connection ends.
        Between messages, and only then, ask whether the connection is alive: the client is slow to
        notice a message that comes meanwhile."""
        self._loop = asyncio.get_running_loop()
        pace = Pace()
        try:
            while True:
                got: list[Any] = []
                if room := await self._room():
                    asked_at = self._seam.monotonic()
                    got = await receiver.receive_messages(
                        max_message_count=min(room, pace.count, MESSAGES_RECEIVED_MAX),
                        max_wait_time=RECEIVE_SECONDS,
                    )
                    pace.took(self._seam.monotonic() - asked_at, len(got))
                for message in got:
                    self._take(receiver, message, heard)
                if not got:
                    await ask(receiver)
        finally:
            for task in self._tasks:
                task.cancel()
            self._held.clear()  # their locks end with the connection, or by themselves

    async def wind_up(self, seconds: float) -> list[Hint]:
        """Wait until nothing that runs here has a message. Complete those of other jobs, and return
        what to send again, so that another worker gets it before a lock expires: but only when
        nothing is received here any more, or it would come back."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while any(held.lease for held in self._held.values()):
                    self._changed.clear()
                    await self._changed.wait()
        waiting = [held for held in self._held.values() if held.lease is None]
        for held in waiting:
            self._complete(held)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        return [held.letter.hint for held in waiting]

    async def _room(self) -> int:
        """How many jobs can start, or 0 if none can for a while."""
        until = self._seam.monotonic() + RECEIVE_SECONDS
        while self._seam.monotonic() < until:
            self._changed.clear()
            waiting = sum(held.lease is None for held in self._held.values())
            room = sum(member.room() for member in [*self._crew.values()]) - waiting
            if room > 0:
                return room
            await is_set_within(self._changed, ROOM_SECONDS)
        return 0

    def _take(self, receiver: Any, message: Any, heard: Heard) -> None:
        letter = read(message)
        if letter is None:
            self._bury(receiver, message, UNREADABLE, "the message names no job")
            return
        known = self._held.get(letter.job_id)
        if known is not None and known.letter.number != letter.number:
            self._spawn(receiver.complete_message(message))  # a duplicate
            return
        if known is not None:  # our lock was lost, and this is the next one
            known.message, known.receiver = message, receiver
            known.locked_at = self._seam.monotonic()
            return
        held = Held(letter, message, receiver, self._seam.monotonic(), self._lock_seconds(message))
        held.lease = self._running.get(letter.job_id)
        self._held[letter.job_id] = held
        if held.lease is None:
            self._spawn(self._place(held, heard))

    def _lock_seconds(self, message: Any) -> float:
        """How long the lock lasts, if the clocks agree."""
        usual, least, most = LOCK_SECONDS
        until = message.locked_until_utc
        seconds = usual if until is None else (until - self._seam.now()).total_seconds()
        return seconds if least <= seconds <= most else usual

    async def _place(self, held: Held, heard: Heard) -> None:
        """Find out what a message is good for, several times if its job doesn't start at once."""
        for wait_seconds in (*START_SECONDS, None):
            try:
                job = await self._look(held)
            except TimeoutError:  # another worker gets it
                self._drop(held)
                return
            if not self._has(held):  # its job ran here meanwhile
                return
            standing = self._standing(held.letter.job_id, job)
            if standing is not Standing.DUE or wait_seconds is None:
                break
            heard(held.letter.wakeup)
            if await is_set_within(held.taken, wait_seconds):
                return
        match standing:
            case Standing.HERE:
                held.lease = self._running.get(held.letter.job_id)
            case Standing.OVER:
                self._complete(held)
            case Standing.UNKNOWN:
                self._drop(held)
                self._bury(held.receiver, held.message, UNKNOWN, "no job has this id")
            case Standing.DUE | Standing.LATER:
                assert job is not None
                self._put_off(held, job)

    async def _look(self, held: Held) -> Job | None:
        """Read the job's row, as long as the message is ours."""
        trouble = Backoff(self._seam, *LOOK_AGAIN_SECONDS)
        async with asyncio.timeout(held.lock_seconds):
            while True:
                for member in [*self._crew.values()]:
                    with suppress(StoreError, RuntimeError):  # the worker's loop may be closed
                        return await _on(member.loop, member.look, held.letter.job_id)
                await trouble.wait()

    def _standing(self, job_id: UUID, job: Job | None) -> Standing:
        if job_id in self._running:
            return Standing.HERE
        if job is None:
            return Standing.UNKNOWN
        if job.state is State.RUNNING:
            # One of ours may have claimed it a moment ago.
            return Standing.DUE if job.lease_owner in self._crew else Standing.OVER
        if job.state.ended:
            return Standing.OVER
        early = (job.run_at - self._seam.now()).total_seconds() > EARLY_SECONDS
        return Standing.LATER if early else Standing.DUE

    def _put_off(self, held: Held, job: Job) -> None:
        """Send the message again later. After a few times it is left to the database: the job's
        queue may be paused for days, or a clock may be wrong."""
        again = held.letter.hint.again
        if again < MESSAGE_PUT_OFF_MAX:
            left = (job.run_at - self._seam.now()).total_seconds()
            delay_seconds = max(AGAIN_SECONDS * 2**again, left)
            hint = Hint.of(job, delay_seconds)
            self._post(hint._replace(again=again + 1, body=held.letter.hint.body))
        self._complete(held)

    def _begin(self, lease: Lease) -> None:
        held = self._held.get(lease.job_id)
        if held is not None:
            held.lease = lease
            held.taken.set()

    def _finish(self, lease: Lease) -> None:
        held = self._held.get(lease.job_id)
        if held is not None and held.lease in (None, lease):
            self._complete(held)
        self._changed.set()

    def _let_go(self, lease: Lease) -> None:
        held = self._held.get(lease.job_id)
        if held is not None and held.lease == lease:
            self._drop(held)
        self._changed.set()

    def _has(self, held: Held) -> bool:
        return self._held.get(held.letter.job_id) is held

    def _drop(self, held: Held) -> None:
        """Let a message go, without a word to the broker: its lock expires."""
        if self._has(held):
            del self._held[held.letter.job_id]
        held.taken.set()
        self._changed.set()

    def _complete(self, held: Held) -> None:
        self._drop(held)
        self._spawn(held.receiver.complete_message(held.message))

    def _bury(self, receiver: Any, message: Any, reason: str, description: str) -> None:
        burying = receiver.dead_letter_message(
            message, reason=reason, error_description=description
        )
        self._spawn(burying)

    def _renew(self, leases: Collection[Lease]) -> None:
        """Renew the locks that would not last until the next time."""
        now = self._seam.monotonic()
        period = 0.0 if self._renewed_at is None else now - self._renewed_at
        self._renewed_at = now
        for lease in leases:
            held = self._held.get(lease.job_id)
            if held is None or held.lease != lease:
                continue
            seconds = min(self._renew_seconds, held.lock_seconds * LOCK_SHARE)
            if now + period - held.locked_at >= seconds:
                held.locked_at = now
                self._spawn(self._renew_lock(held))

    async def _renew_lock(self, held: Held) -> None:
        try:
            await held.receiver.renew_message_lock(held.message)
        except Exception as error:  # whatever the client raises
            if self._has(held):
                self._drop(held)
                logs.event(
                    INFO,
                    "message_lock_lost",
                    f"{masked(str(error))}; the job goes on",
                    job_id=held.letter.job_id,
                )

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something that may fail: the broker delivers the message again then."""

        async def run() -> None:
            with suppress(Exception):
                await work

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Pace:
    """How many messages to ask for: as many as come in a moment, because the client returns none
    of them before all have come, or nothing has for a fifth of a second."""

    def __init__(self) -> None:
        self._message_seconds = MOMENT_SECONDS

    @property
    def count(self) -> int:
        return max(1, int(MOMENT_SECONDS / self._message_seconds))

    def took(self, seconds: float, messages: int) -> None:
        latest = seconds / messages if messages else MOMENT_SECONDS
        # Of several: the first of a burst waited long, and those behind it come at once.
        self._message_seconds += (latest - self._message_seconds) * PACE_SHARE
        self._message_seconds = max(self._message_seconds, MOMENT_SECONDS / MESSAGES_RECEIVED_MAX)


class Standing(Enum):
    """How a job stands, as its row says."""

    UNKNOWN = "unknown"
    OVER = "over"  # nothing is to be done here
    HERE = "here"
    DUE = "due"
    LATER = "later"


def _next_hint(job: Claimed, settlement: Settlement, body: bytes | None) -> Hint:
    attempts = job.attempt - 1 if settlement.attempt_back else job.attempt
    return Hint(
        job.id,
        job.queue,
        max(0.0, settlement.delay_seconds),
        job.tenant,
        job.priority,
        job.correlation_id,
        attempts,
        body=body,
    )


async def _on(loop: asyncio.AbstractEventLoop, look: Look, job_id: UUID) -> Job | None:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(look(job_id), loop))
