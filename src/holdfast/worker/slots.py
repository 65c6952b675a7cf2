"""How many jobs a worker may run at a time, in all and per queue."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from holdfast.domain import codec
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.workers import ALL_QUEUES, Load

ALL = ALL_QUEUES
QueueChoice = str | Sequence[str] | Mapping[str, int | None]


def queue_caps(queues: QueueChoice | None) -> dict[str, int | None] | None:
    """Which queues, with the limits of some, in whatever form they were given."""
    if queues is None:
        return None
    if isinstance(queues, str):
        return parse_queues(queues)
    if isinstance(queues, Mapping):
        return dict(queues)
    return dict.fromkeys(queues)


def parse_queues(text: str) -> dict[str, int | None]:
    """Read `a,b:10`: queue a without a limit of its own, at most 10 jobs of queue b at a time.

    `*` stands for all other queues.
    """
    queues: dict[str, int | None] = {}
    for part in text.split(","):
        name, colon, cap = part.strip().partition(":")
        if not name or (colon and not (cap.isascii() and cap.isdigit() and int(cap) > 0)):
            raise ConfigurationError(f"{text!r} is not a list of queues like 'mail,images:10'")
        queues[name] = int(cap) if colon else None
    _check_caps(queues)
    return queues


def _check_caps(queues: dict[str, int | None]) -> None:
    if not queues:
        raise ConfigurationError("the list of queues is empty; leave it out to serve all")
    for queue, cap in queues.items():
        codec.check_name("queue", queue)
        if ALL in queue and queue != ALL:
            raise ConfigurationError(
                f"{queue!r}: queues can't be selected by pattern; list them by name, or use '*'"
                " alone for all others"
            )
        if cap is not None and cap < 1:
            raise ConfigurationError(f"the limit of queue {queue} must be 1 or more, not {cap!r}")
        if queue == ALL and cap is not None:
            raise ConfigurationError("'*' can't have a limit; see concurrency")


class Slots:
    """`queues` are those that are served, None for all; `caps` the limits of some of them."""

    def __init__(self, concurrency: int, queues: dict[str, int | None] | None) -> None:
        if concurrency < 1:
            raise ConfigurationError(f"concurrency must be 1 or more, not {concurrency}")
        if queues is not None:
            _check_caps(queues)
        self.concurrency = concurrency
        self.queues = None if queues is None or ALL in queues else list(queues)
        self.caps = {queue: cap for queue, cap in (queues or {}).items() if cap is not None}
        self.capped = tuple(self.caps)
        self.groups = self._grouped()
        self._used = 0
        self._used_by_queue: Counter[str] = Counter()
        self._free = asyncio.Event()
        self._free.set()
        self._hung = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._unused = asyncio.Event()
        self._unused.set()

    def _grouped(self) -> list[tuple[str, ...] | None]:
        """The queues that are claimed together: each with a limit by itself, and all others (None
        if they are not listed)."""
        groups: list[tuple[str, ...] | None] = [(queue,) for queue in self.caps]
        if self.queues is None:
            groups.append(None)
        elif others := tuple(queue for queue in self.queues if queue not in self.caps):
            groups.append(others)
        return groups

    @property
    def served(self) -> dict[str, int | None] | None:
        """The queues as others are told of them: None for all, `*` for all others."""
        if self.queues is not None:
            return {queue: self.caps.get(queue) for queue in self.queues}
        return {**self.caps, ALL: None} if self.caps else None

    @property
    def load(self) -> Load:
        """How it stands; asked from another thread, too."""
        full = (name for name, cap in self.caps.items() if self._used_by_queue[name] >= cap)
        return Load(self._used, tuple(full))

    @property
    def used(self) -> int:
        return self._used

    @property
    def hung(self) -> int:
        """How many are taken by handlers that should have stopped, and may never do so."""
        return self._hung

    @property
    def free(self) -> int:
        return self.concurrency - self._used

    def free_for(self, group: Sequence[str] | None) -> int:
        """How many more of a group may start."""
        if not self.caps or group is None or group[0] not in self.caps:
            return self.free
        (queue,) = group
        return min(self.free, self.caps[queue] - self._used_by_queue[queue])

    def take(self, queues: Sequence[str]) -> None:
        """Take a slot for each job that starts, by the queues of these."""
        self._used += len(queues)
        self._idle.clear()
        self._unused.clear()
        if self.caps:
            self._used_by_queue.update(queue for queue in queues if queue in self.caps)
        if self._used >= self.concurrency:
            self._free.clear()

    def give_back(self, queue: str) -> None:
        self._used -= 1
        if queue in self.caps:
            self._used_by_queue[queue] -= 1
        self._free.set()
        self._tell_idle()

    def hang(self) -> None:
        self._hung += 1
        self._tell_idle()

    def recover(self) -> None:
        """One that hung has ended after all, and gives its slot back now."""
        self._hung -= 1

    def _tell_idle(self) -> None:
        if self._used == self._hung:
            self._idle.set()
        if not self._used:
            self._unused.set()

    def let_go(self) -> None:
        """Let whoever waits go on, although nothing is free."""
        self._free.set()
        self._idle.set()
        self._unused.set()

    async def wait_free(self) -> None:
        await self._free.wait()

    async def wait_idle(self) -> None:
        """Wait until nothing runs but what hangs."""
        await self._idle.wait()

    async def wait_unused(self) -> None:
        await self._unused.wait()
