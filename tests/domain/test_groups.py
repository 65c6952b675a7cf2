"""The life of an error group: the same whatever the order in which its jobs are counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.domain.errors import WrongState
from holdfast.domain.groups import (
    ACKNOWLEDGE,
    REOPEN,
    RESOLVE,
    ErrorGroup,
    Failure,
    GroupState,
    GroupVerb,
    changed,
    grown,
    shrunk,
)
from holdfast.domain.limits import GROUP_QUEUES_MAX

START = datetime(2026, 11, 18, tzinfo=UTC)


def failure(
    number: int, seconds: float, *, queue: str = "mail", version: str | None = None
) -> Failure:
    return Failure(
        job_id=UUID(int=number),
        tenant="acme",
        name="work",
        queue=queue,
        error_code="BOOM",
        shape="boom",
        fingerprint="0123456789ab",
        ended_at=START + timedelta(seconds=seconds),
        version=version,
    )


def grown_by(failures: list[Failure]) -> ErrorGroup:
    group = None
    for each in failures:
        group = grown(group, each)
    assert group is not None
    return group


@given(st.lists(st.integers(0, 50), min_size=1, unique=True).flatmap(st.permutations))
def test_the_order_of_counting_makes_no_difference(order: list[int]) -> None:
    group = grown_by([failure(number, number, queue=f"q{number % 3}") for number in order])
    assert group == grown_by(
        [failure(number, number, queue=f"q{number % 3}") for number in sorted(order)]
    )
    assert (group.jobs, group.jobs_ever) == (len(order), len(order))
    assert group.example_id == UUID(int=max(order))


def test_a_group_names_a_bounded_number_of_queues() -> None:
    many = range(2 * GROUP_QUEUES_MAX)
    group = grown_by([failure(number, number, queue=f"q{number}") for number in many])
    assert len(group.queues) == GROUP_QUEUES_MAX


@pytest.mark.parametrize(
    ("version", "resolved_in", "state"),
    [
        (None, None, "back"),
        (None, "1.10", "back"),
        ("1.9", "1.10", "resolved"),
        ("v1.9", "1.10", "resolved"),
        ("1.10", "1.10", "back"),
        ("1.10.0", "1.10", "back"),
        ("1.10", "1.10.0", "back"),
        ("1.11", "1.10", "back"),
        ("2026.11.17", "2026.11.18", "resolved"),
        ("f00dfeed", "1.10", "back"),
        ("1.9", "f00dfeed", "back"),
        ("1.9-rc1", "1.10", "back"),
        ("1.9", None, "back"),
    ],
)
def test_only_a_version_that_is_known_to_be_older_leaves_a_group_resolved(
    version: str | None, resolved_in: str | None, state: str
) -> None:
    group = changed(
        grown_by([failure(1, 0)]), RESOLVE, now=START, by=None, note=None, version=resolved_in
    )
    assert grown(group, failure(2, 1, version=version)).state == state


class Life(RuleBasedStateMachine):
    """A group, beside the few facts that decide its state."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0
        self.jobs = self.ever = 1
        self.group = grown_by([failure(1, 0)])
        self.state = "new"
        self.resolved_at = START

    @rule(age=st.integers(-30, 5))
    def fail(self, age: int) -> None:
        self.seconds += 1
        each = failure(self.ever + 1, self.seconds + age)
        self.group = grown(self.group, each)
        self.jobs, self.ever = self.jobs + 1, self.ever + 1
        if self.state == "resolved" and each.ended_at > self.resolved_at:
            self.state = "back"

    @rule(verb=st.sampled_from([ACKNOWLEDGE, RESOLVE, REOPEN]))
    def change(self, verb: GroupVerb) -> None:
        self.seconds += 1
        now = START + timedelta(seconds=self.seconds)
        before = self.group
        try:
            self.group = changed(before, verb, now=now, by="ann", note=None, version=None)
        except WrongState:
            assert (verb.name, self.state) == ("acknowledge", "resolved")
            return
        self.state = verb.target
        if self.state == "resolved":
            # What was counted by then is not what comes back.
            self.resolved_at = max(now, before.last_seen)

    @precondition(lambda self: self.jobs > 0)
    @rule()
    def leave_the_history(self) -> None:
        self.group = shrunk(self.group, 1)
        self.jobs -= 1

    @invariant()
    def state_and_counts_are_as_the_facts_say(self) -> None:
        assert self.group.state == GroupState(self.state)
        assert (self.group.jobs, self.group.jobs_ever) == (self.jobs, self.ever)
        assert self.group.first_seen <= self.group.last_seen


TestLife = Life.TestCase
