"""The states of a job and the moves between them."""

from __future__ import annotations

import pytest

from holdfast.domain.states import ENDED, LIVE, TRANSITIONS, State, may_become


def test_every_state_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(State)


def test_an_ended_job_never_changes() -> None:
    assert {State.SUCCEEDED, State.FAILED, State.DEAD, State.CANCELED} == ENDED
    assert not any(may_become(ended, state) for ended in ENDED for state in State)


def test_a_job_that_waits_starts_or_is_canceled_and_nothing_else() -> None:
    following = {state for state in State if may_become(State.QUEUED, state)}
    assert following == {State.QUEUED, State.RUNNING, State.CANCELED}


def test_a_running_job_can_end_in_any_way_or_wait_again() -> None:
    assert all(may_become(State.RUNNING, state) for state in State)


@pytest.mark.parametrize("state", State)
def test_a_state_is_live_or_ended(state: State) -> None:
    assert state.ended is (state in ENDED)
    assert (state in LIVE) is not state.ended


@pytest.mark.parametrize("state", State)
def test_every_state_can_be_reached_from_queued(state: State) -> None:
    reached = {State.QUEUED}
    for _ in State:
        reached |= {following for current in reached for following in TRANSITIONS[current]}
    assert state in reached
