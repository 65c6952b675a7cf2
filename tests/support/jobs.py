"""Claimed jobs, made by hand."""

from __future__ import annotations

from uuid import uuid4

from holdfast.domain.job import Claimed


def claimed(
    *,
    name: str = "work",
    attempt: int = 1,
    queue: str = "default",
    waited_seconds: float | None = None,
) -> Claimed:
    return Claimed(
        id=uuid4(),
        name=name,
        arguments=b"{}",
        queue=queue,
        priority=0,
        tenant="default",
        correlation_id=None,
        attempt=attempt,
        max_attempts=5,
        fence=1,
        snoozes=0,
        releases=0,
        expired=False,
        waited_seconds=waited_seconds,
    )
