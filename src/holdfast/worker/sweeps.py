"""Applications' sweeps: functions that find work in an application's own tables.

Every worker that serves a sweep's queue calls it: when the worker starts, when the queue is woken,
when the sweep asked for it, and at least every `every_seconds`. There is no leader, so a sweep
takes small steps that can be repeated, and skips what another worker has locked.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from logging import ERROR, WARNING
from traceback import format_tb
from typing import Any

from holdfast.domain import texts
from holdfast.domain.errors import ConfigurationError, StoreUnavailable
from holdfast.domain.limits import DELAY_SECONDS_MAX
from holdfast.domain.texts import type_name
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff, is_set_within
from holdfast.stores.protocol import QueueControl, capability
from holdfast.worker.setup import Setup

EVERY_SECONDS_MIN = 0.01
TROUBLE_SECONDS = 0.2, 30.0


@dataclass(frozen=True, slots=True)
class SweepContext:
    """What a sweep knows about the worker that calls it."""

    worker_id: str


SweepFunction = Callable[[SweepContext], Awaitable[float | None]]


@dataclass(frozen=True, slots=True)
class Sweep:
    """`every_seconds` None means the worker's `poll_seconds`."""

    name: str
    queue: str
    every_seconds: float | None
    function: SweepFunction


def make_sweep(
    known: list[Sweep], function: SweepFunction, queue: str, every_seconds: float | None
) -> SweepFunction:
    """Add a function to an application's known sweeps."""
    if not inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"a sweep must be an async function, not {function!r}")
    name = function.__name__
    if any(sweep.name == name for sweep in known):
        raise ConfigurationError(f"a sweep named {name!r} already exists")
    texts.check_name("queue", queue)
    if every_seconds is not None:
        texts.check_range("every_seconds", every_seconds, EVERY_SECONDS_MIN, DELAY_SECONDS_MAX)
    known.append(Sweep(name, queue, every_seconds, function))
    return function


class Sweeps:
    """The sweeps whose queues this worker serves. Once it is `stopping`, they begin no more turns;
    turns in progress may finish in the time that the worker has left."""

    def __init__(self, setup: Setup, sweeps: Sequence[Sweep], stopping: asyncio.Event) -> None:
        served = setup.slots.queues
        self._all = [
            _Sweeping(setup, sweep, stopping)
            for sweep in sweeps
            if not setup.suspects_only and (served is None or sweep.queue in served)
        ]

    def parts(self) -> Iterator[Coroutine[Any, Any, None]]:
        return (each.run() for each in self._all)

    def wake(self, queue: str | None) -> None:
        """Call the sweeps of this queue, or all of them, now."""
        for each in self._all:
            if queue in (None, each.queue):
                each.wake()

    async def are_due_within(self, seconds: float) -> bool:
        """Call all of them; does any of them have something to do within this time?"""
        answers = [await each.turn() for each in self._all]
        return any(answer is not None and answer <= seconds for answer in answers)


class _Sweeping:
    def __init__(self, setup: Setup, sweep: Sweep, stopping: asyncio.Event) -> None:
        self.queue = sweep.queue
        self._stopping = stopping
        self._sweep = sweep
        self._every_seconds = sweep.every_seconds or setup.settings.poll_seconds
        self._context = SweepContext(setup.worker_id)
        self._queues = capability(setup.store, QueueControl)
        self._log_errors = setup.settings.log_errors
        self._trouble = Backoff(setup.seam, *TROUBLE_SECONDS)
        self._known_errors: set[str] = set()
        self._awake = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()

    def wake(self) -> None:
        self._awake.set()

    async def run(self) -> None:
        while not self._stopping.is_set():
            self._awake.clear()
            seconds = await self.turn()
            if seconds is None or seconds > self._every_seconds:
                seconds = self._every_seconds
            if seconds > 0:
                await is_set_within(self._awake, seconds)
            else:
                await asyncio.sleep(0)

    async def turn(self) -> float | None:
        """Call the sweep once. Return the number of seconds until it should be called again, or
        None if it doesn't know of anything to do."""
        async with self._one_at_a_time:
            try:
                if self._queues is not None and await self._queues.is_paused(self.queue):
                    return None
                seconds = _checked(await self._sweep.function(self._context))
            except StoreUnavailable as error:
                logs.event(
                    WARNING,
                    "sweep_failed",
                    str(error),
                    name=self._sweep.name,
                    queue=self.queue,
                    worker_id=self._context.worker_id,
                )
                return self._trouble.next_seconds()
            except asyncio.CancelledError as error:
                if _is_canceled():
                    raise
                return self._failed(error)
            except Exception as error:
                return self._failed(error)
        self._trouble.reset()
        self._known_errors.clear()
        if seconds == 0:
            self.wake()  # whoever called it
        return seconds

    def _failed(self, error: BaseException) -> float:
        kind = type_name(error)
        if kind not in self._known_errors:
            self._known_errors.add(kind)
            logs.event(
                ERROR,
                "sweep_failed",
                f"{self._sweep.name} failed; it is called again",
                exception=error if self._log_errors else None,
                traceback=None if self._log_errors else _frames(error),
                name=self._sweep.name,
                queue=self.queue,
                worker_id=self._context.worker_id,
                error_code=kind,
            )
        return self._trouble.next_seconds()


def _is_canceled() -> bool:
    """Was this task itself canceled, rather than something it waited for?"""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _frames(error: BaseException) -> str:
    """Where it was raised, without its text, which may contain personal data."""
    return "".join(format_tb(error.__traceback__)).rstrip()


def _checked(seconds: object) -> float | None:
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or math.isnan(seconds):
        raise TypeError(f"a sweep must return seconds or None, not {seconds!r}")
    return max(0.0, seconds)
