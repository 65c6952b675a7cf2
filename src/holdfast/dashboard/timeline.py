"""The attempts of a job on one line of time: when each waited and ran. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from holdfast.dashboard.limits import TIMELINE_ATTEMPTS_MAX
from holdfast.domain.attempts import JobAttempt
from holdfast.domain.job import Job
from holdfast.domain.states import State

WIDTH: Final = 1000.0  # of the whole line, in units of the picture
NARROWEST: Final = 6.0  # of an attempt, so that it can be seen


class Span(NamedTuple):
    """A part of the line, from its left end."""

    left: float
    width: float


class Bar(NamedTuple):
    """One attempt: how long it waited since the one before, and how long it ran. Without a start,
    nothing is drawn."""

    attempt: JobAttempt
    wait: Span | None
    run: Span | None
    seconds: float | None
    waited_seconds: float | None


class Timeline(NamedTuple):
    """The newest attempts, oldest first; `left_out` counts older ones."""

    bars: Sequence[Bar]
    left_out: int
    begin: datetime
    seconds: float


def draw(job: Job, attempts: Sequence[JobAttempt], now: datetime) -> Timeline:
    shown = attempts[-TIMELINE_ATTEMPTS_MAX:]
    left_out = len(attempts) - len(shown)
    begin = job.created_at
    if left_out:
        begin = attempts[left_out - 1].ended_at or begin
    times = [time for each in shown for time in (each.started_at, each.ended_at) if time]
    end = max([job.finished_at or now, begin, *times])
    scale = _Scale(begin, (end - begin).total_seconds())
    bars: list[Bar] = []
    free_since = begin
    for attempt in shown:
        bars.append(_bar(attempt, free_since, end, scale))
        free_since = attempt.ended_at or free_since
    return Timeline(bars, left_out, begin, scale.seconds)


def took_seconds(job: Job) -> float | None:
    """How long the last attempt of an ended job ran."""
    # A job canceled while it waited may have the start of an earlier attempt.
    if job.started_at is None or job.finished_at is None or job.state is State.CANCELED:
        return None
    return (job.finished_at - job.started_at).total_seconds()


class _Scale(NamedTuple):
    begin: datetime
    seconds: float

    def at(self, time: datetime) -> float:
        if self.seconds <= 0:
            return 0.0
        place = WIDTH * (time - self.begin).total_seconds() / self.seconds
        return min(max(place, 0.0), WIDTH)


def _bar(attempt: JobAttempt, free_since: datetime, end: datetime, scale: _Scale) -> Bar:
    started_at = attempt.started_at
    if started_at is None:
        return Bar(attempt, None, None, None, None)
    ended_at = max(attempt.ended_at or end, started_at)
    left, right = scale.at(started_at), scale.at(ended_at)
    width = max(right - left, NARROWEST)
    left = min(left, WIDTH - width)
    waited_from = scale.at(free_since)
    wait = Span(waited_from, left - waited_from) if waited_from < left else None
    return Bar(
        attempt,
        wait,
        Span(left, width),
        None if attempt.ended_at is None else (ended_at - started_at).total_seconds(),
        max((started_at - free_since).total_seconds(), 0.0),
    )
