"""The states of a job and the one table of the moves between them.

The databases repeat this table by constraint and trigger; a test compares them, pair by pair.
"""

from enum import StrEnum
from typing import Final


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD = "dead"
    CANCELED = "canceled"

    @property
    def ended(self) -> bool:
        return self in ENDED


TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    # queued -> queued is a change of the due time: `jobs retry` makes a waiting job due now.
    State.QUEUED: frozenset({State.QUEUED, State.RUNNING, State.CANCELED}),
    # running -> running is a renewal or a progress report, running -> queued a retry, a snooze,
    # a release, or a reclaim of what a dead worker held.
    State.RUNNING: frozenset(
        {
            State.RUNNING,
            State.QUEUED,
            State.SUCCEEDED,
            State.FAILED,
            State.DEAD,
            State.CANCELED,
        }
    ),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.DEAD: frozenset(),
    State.CANCELED: frozenset(),
}

ENDED: Final = frozenset(state for state, following in TRANSITIONS.items() if not following)
LIVE: Final = frozenset(State) - ENDED


def may_become(current: State, following: State) -> bool:
    return following in TRANSITIONS[current]
