"""Why a job, or an attempt, ended without success, in one sentence."""

from __future__ import annotations

from holdfast.domain.job import Job
from holdfast.domain.states import State
from holdfast.domain.texts import times
from holdfast.domain.times import exact


def error_line(code: str | None, text: str | None) -> str:
    """The code and the first line of the text, which often begins with the code."""
    first = (text or "").strip().split("\n")[0]
    if not code or first.startswith(code):
        return first or "an error without a message"
    return f"{code}: {first}" if first else code


def why_it_ended(job: Job) -> str | None:
    """None for a job that is waiting, running or succeeded."""
    code = job.error_code or "an error without a code"
    match job.state:
        case State.FAILED:
            return (
                f"{code} is permanent, so it was not retried"
                f" (attempt {job.attempts} of {job.max_attempts})"
            )
        case State.DEAD if job.attempts < job.max_attempts:
            return (
                f"{code} has reached its limit, so it was not retried"
                f" (attempt {job.attempts} of {job.max_attempts})"
            )
        case State.DEAD:
            crashes = f", {times(job.crashes)} by a crash" if job.crashes else ""
            if job.max_attempts == 1:
                return f"its only attempt ended with {code}{crashes}"
            return f"all {job.max_attempts} attempts are used up{crashes}; the last error: {code}"
        case State.CANCELED if code == "EXPIRED" and job.expires_at is not None:
            return f"it expired at {exact(job.expires_at)} before it ran"
        case State.CANCELED if job.started_at is None:
            return "it was canceled before it started"
        case State.CANCELED:
            return "it was canceled; what it had done by then is not recorded"
    return None
