"""The states of a job, and the one table of transitions between them.

The databases enforce the same table by constraint and trigger; a test compares them.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from holdfast.domain.errors import BadArguments


class State(StrEnum):
    """The state of a job. The last four are final."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD = "dead"
    CANCELED = "canceled"

    @property
    def ended(self) -> bool:
        """Whether it is final: succeeded, failed, dead or canceled."""
        return self in ENDED


TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    # queued -> queued changes the due time: `jobs retry` makes a waiting job due now.
    State.QUEUED: frozenset({State.QUEUED, State.RUNNING, State.CANCELED}),
    # running -> running is a renewal or a progress report, running -> queued a retry, a snooze,
    # a release or a reclaim.
    State.RUNNING: frozenset(State),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.DEAD: frozenset(),
    State.CANCELED: frozenset(),
}

ENDED: Final = frozenset(state for state, following in TRANSITIONS.items() if not following)
DEAD_STATES: Final = (State.DEAD, State.FAILED)  # what `holdfast dead` lists
UNSUCCESSFUL: Final = (*DEAD_STATES, State.CANCELED)
LIVE: Final = frozenset(State) - ENDED


def as_states(names: Iterable[str]) -> tuple[State, ...]:
    """Convert names to states, or raise BadArguments."""
    try:
        if isinstance(names, str):
            raise TypeError
        return tuple(map(State, names))
    except (TypeError, ValueError):
        known = ", ".join(State)
        raise BadArguments(
            f"states must be a list of states, not {names!r}; the states are: {known}"
        ) from None


def may_become(current: State, following: State) -> bool:
    return following in TRANSITIONS[current]
