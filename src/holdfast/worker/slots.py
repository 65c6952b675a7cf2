"""How many jobs a worker may run at a time, in total and per queue."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from holdfast.domain import texts
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.queues import is_pattern
from holdfast.domain.workers import ALL_QUEUES, Load
from holdfast.runtime.backoff import is_set_within

QueueChoice = str | Sequence[str] | Mapping[str, int | None]


def queue_caps(queues: QueueChoice | None) -> dict[str, int | None] | None:
    """Read the queues to serve, and the limits of some of them, in any accepted form."""
    if queues is None:
        return None
    if isinstance(queues, str):
        return _parse_queues(queues)
    if isinstance(queues, Mapping):
        return dict(queues)
    return dict.fromkeys(queues)


def _parse_queues(text: str) -> dict[str, int | None]:
    """Read `a,b:10,*`: queue a, at most 10 jobs of queue b at a time, and all other queues."""
    queues: dict[str, int | None] = {}
    for part in text.split(","):
        name, colon, cap = part.strip().partition(":")
        if not name or (colon and not (cap.isascii() and cap.isdigit() and int(cap) > 0)):
            raise ConfigurationError(f"{text!r} is not a list of queues like 'mail,images:10'")
        queues[name] = int(cap) if colon else None
    return queues


def _check_caps(queues: dict[str, int | None]) -> None:
    if not queues:
        raise ConfigurationError("the list of queues is empty; leave it out to serve all queues")
    for queue, cap in queues.items():
        texts.check_name("queue", queue)
        if queue != ALL_QUEUES and is_pattern(queue):
            raise ConfigurationError(
                f"{queue!r}: queues can't be selected by pattern; list them by name, or use '*'"
                " for all others"
            )
        if cap is not None and cap < 1:
            raise ConfigurationError(f"the limit of queue {queue} must be 1 or more, not {cap!r}")
        if queue == ALL_QUEUES and cap is not None:
            raise ConfigurationError("'*' can't have a limit; set concurrency instead")


class Slots:
    """`queues` are the queues to serve, None for all. `caps` are the limits of some of them, and
    `groups` the queues to claim from together: each with a limit by itself, then all others, which
    are None if they are not listed. `hung` slots belong to handlers that should have stopped."""

    def __init__(self, concurrency: int, queues: dict[str, int | None] | None) -> None:
        if concurrency < 1:
            raise ConfigurationError(f"concurrency must be 1 or more, not {concurrency}")
        if queues is not None:
            _check_caps(queues)
        self.concurrency = concurrency
        self.queues = None if queues is None or ALL_QUEUES in queues else list(queues)
        self.caps = {queue: cap for queue, cap in (queues or {}).items() if cap is not None}
        self.capped = tuple(self.caps)
        self.groups: list[tuple[str, ...] | None] = [(queue,) for queue in self.caps]
        if self.queues is None:
            self.groups.append(None)
        elif others := tuple(queue for queue in self.queues if queue not in self.caps):
            self.groups.append(others)
        self.used = 0
        self.hung = 0
        self._used_by_queue: Counter[str] = Counter()
        self._idle = asyncio.Event()
        self._unused = asyncio.Event()
        self.release_waiters()

    @classmethod
    def none(cls) -> Slots:
        """For a process that runs no jobs itself."""
        slots = cls(1, None)
        slots.concurrency = 0
        return slots

    @property
    def served(self) -> dict[str, int | None] | None:
        """The queues as other workers see them: None for all, `*` for all others."""
        if self.queues is not None:
            return {queue: self.caps.get(queue) for queue in self.queues}
        return {**self.caps, ALL_QUEUES: None} if self.caps else None

    @property
    def load(self) -> Load:
        """Safe to read from any thread."""
        full = (name for name, cap in self.caps.items() if self._used_by_queue[name] >= cap)
        return Load(self.used, tuple(full))

    @property
    def free(self) -> int:
        return self.concurrency - self.used

    def free_for(self, group: Sequence[str] | None) -> int:
        """How many more jobs of a group may start."""
        if not self.caps or group is None or group[0] not in self.caps:
            return self.free
        (queue,) = group
        return min(self.free, self.caps[queue] - self._used_by_queue[queue])

    def take(self, queues: Sequence[str]) -> None:
        """Take a slot for each job that starts, given the queues of these jobs."""
        self.used += len(queues)
        self._idle.clear()
        self._unused.clear()
        if self.caps:
            self._used_by_queue.update(queue for queue in queues if queue in self.caps)

    def give_back(self, queue: str) -> None:
        self.used -= 1
        if queue in self.caps:
            self._used_by_queue[queue] -= 1
        self._update_idle()

    def hang(self) -> None:
        self.hung += 1
        self._update_idle()

    def _update_idle(self) -> None:
        if self.used == self.hung:
            self._idle.set()
        if not self.used:
            self._unused.set()

    def release_waiters(self) -> None:
        """Wake everything that waits, whatever is free."""
        self._idle.set()
        self._unused.set()

    async def wait_idle(self) -> None:
        """Wait until only hung handlers run."""
        await self._idle.wait()

    async def is_unused_within(self, seconds: float) -> bool:
        return await is_set_within(self._unused, seconds)
