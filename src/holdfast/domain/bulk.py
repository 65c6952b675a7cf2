"""Bulk changes: many jobs that are canceled, retried or requeued together, each exactly once.

previewed -> running -> completed
             running <-> paused
previewed, running, paused -> canceled
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from holdfast.domain.errors import WrongState
from holdfast.domain.job import Filter, Job
from holdfast.domain.states import DEAD_STATES, State

CATCH_UP_SECONDS: Final = 0.2


class BulkAction(StrEnum):
    """What happens to each job."""

    CANCEL = "cancel"
    RETRY = "retry"
    REQUEUE = "requeue"


class BulkState(StrEnum):
    """The state of a bulk change. The last two are final."""

    PREVIEWED = "previewed"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELED = "canceled"


# The states of jobs that a filter without states matches. A retry means one thing for waiting jobs
# and another for ended ones, so its filter has to say which.
STATES_OF: Final[dict[BulkAction, tuple[State, ...]]] = {
    BulkAction.CANCEL: (State.QUEUED, State.RUNNING),
    BulkAction.REQUEUE: DEAD_STATES,
}


class Verb(NamedTuple):
    """What an operator does to a bulk change: from which states, and to which one. In the states of
    `reached` it does nothing, so it can be repeated."""

    done: str
    sources: tuple[BulkState, ...]
    target: BulkState
    reached: tuple[BulkState, ...]


_GOING: Final = (BulkState.RUNNING, BulkState.COMPLETED)

START: Final = Verb("started", (BulkState.PREVIEWED,), BulkState.RUNNING, _GOING)
PAUSE: Final = Verb("paused", (BulkState.RUNNING,), BulkState.PAUSED, (BulkState.PAUSED,))
RESUME: Final = Verb("resumed", (BulkState.PAUSED,), BulkState.RUNNING, _GOING)
CANCEL: Final = Verb(
    "canceled",
    (BulkState.PREVIEWED, BulkState.RUNNING, BulkState.PAUSED),
    BulkState.CANCELED,
    (BulkState.CANCELED,),
)


class BulkCount(msgspec.Struct, frozen=True):
    """How many of the jobs had this state and name when the change was previewed."""

    state: State
    name: str
    jobs: int


class BulkChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of many jobs. Its jobs are fixed when it is previewed.

    Of the jobs `done` so far, `changed` were changed, `requeued_already` had already been requeued,
    `moved_on` had another state or were gone, and `refused` could not be written.
    """

    id: UUID
    action: BulkAction
    state: BulkState
    tenant: str | None = None  # None: created by someone who sees all tenants
    filter: Filter | None = None  # None: the IDs were given
    again: bool = False
    jobs_per_second: float | None = None  # None: as fast as the database allows
    by: str | None = None
    because: str | None = None
    total: int
    capped: bool = False  # more jobs matched; they are not part of the change
    requeued_before: int = 0  # jobs that were left out because they had been requeued
    counts: tuple[BulkCount, ...] = ()
    sample: Sequence[Job] = ()  # the first few, as they are now; empty in lists
    done: int = 0
    changed: int = 0
    requeued_already: int = 0
    moved_on: int = 0
    refused: int = 0
    rate: float | None = None  # jobs per second, measured since it was started or resumed
    seconds_left: float | None = None  # estimated
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error_text: str | None = None  # why it paused on its own

    @property
    def ended(self) -> bool:
        """Whether it is completed or canceled."""
        return self.state in (BulkState.COMPLETED, BulkState.CANCELED)


class BulkPage(NamedTuple):
    """Bulk changes, newest first. Pass `after` to get the next page; it is None on the last one."""

    changes: Sequence[BulkChange]
    after: UUID | None


class Tally(NamedTuple):
    """What became of the jobs of one step."""

    changed: int = 0
    requeued_already: int = 0
    moved_on: int = 0
    refused: int = 0


def wrong_state(verb: Verb, change: BulkChange) -> WrongState:
    return WrongState(
        f"bulk change {change.id} is {change.state} and can't be {verb.done}; nothing was changed"
    )


def measured_rate(done: int, seconds: float) -> float | None:
    """Jobs per second; None if nothing has been done yet."""
    return done / seconds if done > 0 and seconds > 0 else None


def next_step(
    jobs_per_second: float | None, jobs: int, due_at: datetime, now: datetime
) -> datetime:
    """When the step after one of this many jobs is due.

    A late step doesn't slow down the rest, up to CATCH_UP_SECONDS. Longer delays, such as after a
    crash, are not made up for with a burst.
    """
    if jobs_per_second is None:
        return now
    begin = max(due_at, now - timedelta(seconds=CATCH_UP_SECONDS))
    return begin + timedelta(seconds=jobs / jobs_per_second)
