"""The line of a job's attempts is drawn in bounds, in order, whatever the clocks say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from holdfast import Job, State
from holdfast.dashboard.limits import TIMELINE_ATTEMPTS_MAX
from holdfast.dashboard.timeline import NARROWEST, WIDTH, draw
from holdfast.domain.attempts import JobAttempt
from tests.support import properties  # noqa: F401

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
TIMES = st.timedeltas(timedelta(hours=-2), timedelta(hours=2)).map(lambda by: NOW + by)
ATTEMPTS = st.builds(
    JobAttempt,
    attempt=st.integers(1, 5),
    fence=st.integers(1, 9),
    outcome=st.sampled_from(["failed", "running", "succeeded"]),
    worker=st.none(),
    started_at=st.none() | TIMES,
    ended_at=st.none() | TIMES,
)


def made_job(created_at: datetime, finished_at: datetime | None = None) -> Job:
    return Job(
        id=UUID(int=7),
        name="resize",
        state=State.RUNNING,
        queue="images",
        priority=0,
        arguments={},
        max_attempts=5,
        run_at=created_at,
        created_at=created_at,
        finished_at=finished_at,
    )


def attempt(number: int, started: float, ended: float | None) -> JobAttempt:
    return JobAttempt(
        attempt=number,
        fence=number,
        outcome="running" if ended is None else "failed",
        worker=None,
        started_at=NOW + timedelta(seconds=started),
        ended_at=None if ended is None else NOW + timedelta(seconds=ended),
    )


@given(TIMES, st.none() | TIMES, st.lists(ATTEMPTS, max_size=60))
def test_every_span_lies_within_the_line(
    created_at: datetime, finished_at: datetime | None, attempts: list[JobAttempt]
) -> None:
    drawn = draw(made_job(created_at, finished_at), attempts, NOW)
    assert [bar.attempt for bar in drawn.bars] == attempts[-TIMELINE_ATTEMPTS_MAX:]
    assert drawn.left_out == max(len(attempts) - TIMELINE_ATTEMPTS_MAX, 0)
    assert drawn.seconds >= 0
    for bar in drawn.bars:
        for span in filter(None, (bar.wait, bar.run)):
            assert 0 <= span.left <= span.left + span.width <= WIDTH + 1e-6
        assert bar.run is None or bar.run.width >= NARROWEST
        assert bar.seconds is None or bar.seconds >= 0


def test_attempts_and_the_waits_between_them_are_to_scale() -> None:
    drawn = draw(made_job(NOW), [attempt(1, 1, 2), attempt(2, 6, None)], NOW + timedelta(seconds=8))
    first, second = drawn.bars
    assert (first.wait, first.run) == ((0, 125), (125, 125))
    assert (second.wait, second.run) == ((250, 500), (750, 250))
    assert (first.seconds, first.waited_seconds) == (1, 1)
    assert (second.seconds, second.waited_seconds) == (None, 4)
