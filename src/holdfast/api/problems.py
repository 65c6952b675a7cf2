"""Errors as problem details (RFC 9457), and the problem for each of the library's errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from starlette.responses import Response

from holdfast.api.limits import RETRY_AFTER_SECONDS
from holdfast.domain import errors
from holdfast.domain.job import Job
from holdfast.domain.secrets import masked
from holdfast.operations.pepper import NoPepper

MEDIA_TYPE: Final = "application/problem+json"


class Kind(NamedTuple):
    status: int
    title: str


# The code is the last part of the problem's type. It never changes.
KINDS: Final = {
    "bad-json": Kind(400, "The body is not valid JSON, or a value can't be stored exactly"),
    "bad-request": Kind(400, "The request is invalid"),
    "idempotency-key-missing": Kind(400, "An Idempotency-Key header is required"),
    "key-missing": Kind(401, "A valid key is required"),
    "not-allowed": Kind(403, "Not allowed"),
    "not-found": Kind(404, "Not found"),
    "bulk-change-not-found": Kind(404, "Bulk change not found"),
    "job-not-found": Kind(404, "Job not found"),
    "no-such-method": Kind(405, "Method not allowed"),
    "too-slow": Kind(408, "The request took too long to arrive"),
    "wrong-state": Kind(409, "The current state does not allow this"),
    "already-requeued": Kind(409, "The job was already requeued"),
    "duplicate-job": Kind(409, "A job with this ID already exists"),
    "job-failed": Kind(409, "The job did not succeed"),
    "lease-lost": Kind(409, "The lease was lost; nothing was changed"),
    "request-in-flight": Kind(409, "A request with this Idempotency-Key is in progress"),
    "too-large": Kind(413, "Content too large"),
    "wrong-media-type": Kind(415, "The Content-Type must be application/json"),
    "bad-arguments": Kind(422, "Invalid arguments"),
    "bad-result": Kind(422, "The result does not fit the job's declared type"),
    "unknown-name": Kind(422, "Unknown job name"),
    "idempotency-conflict": Kind(422, "The Idempotency-Key was used for a different request"),
    "too-many-requests": Kind(429, "Rate limit exceeded"),
    "head-too-large": Kind(431, "The headers are too large"),
    "internal-error": Kind(500, "Internal server error"),
    "not-in-this-store": Kind(501, "Not supported by this database"),
    "database-unavailable": Kind(503, "The database is unavailable"),
    "not-ready": Kind(503, "The service is not ready"),
    "too-many-connections": Kind(503, "Too many connections"),
}


class At(msgspec.Struct, frozen=True, omit_defaults=True):
    """One error: what is wrong, and where in the body or in which parameter."""

    detail: str
    pointer: str | None = None  # a JSON Pointer (RFC 6901) into the body
    parameter: str | None = None  # in the path, the query or the headers


class ProblemDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of every error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[At] = []
    job_id: str | None = None
    reason: str | None = (
        None  # a code defined by the system or application that the route belongs to
    )
    state: str | None = None  # of the job, with `job-failed`
    error: dict[str, str] | None = None  # its code and text, with `job-failed`
    correlation_id: str | None = None


class Problem(Exception):
    """Raise this in a route to respond with problem details."""

    def __init__(
        self,
        code: str,
        detail: str,
        errors: Sequence[At] = (),
        *,
        job_id: object = None,
        reason: str | None = None,
        ended: Job | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.kind = KINDS[code]
        self.detail = detail
        self.errors = list(errors)
        self.job_id = None if job_id is None else str(job_id)
        self.reason = reason
        self.ended = ended
        self.headers = dict(headers or {})

    def response(self, correlation_id: str | None = None) -> Response:
        details = ProblemDetails(
            type=f"/v1/problems/{self.code}",
            title=self.kind.title,
            status=self.kind.status,
            detail=masked(self.detail),
            code=self.code,
            errors=[_masked(each) for each in self.errors],
            job_id=self.job_id,
            reason=self.reason,
            state=None if self.ended is None else self.ended.state,
            error=None if self.ended is None else self.ended.last_error,
            correlation_id=correlation_id,
        )
        return Response(
            msgspec.json.encode(details),
            self.kind.status,
            headers=self.headers,
            media_type=MEDIA_TYPE,
        )


def _masked(place: At) -> At:
    """Mask secrets: a client may have sent its key in the wrong place."""
    return At(
        masked(place.detail),
        pointer=place.pointer and masked(place.pointer),
        parameter=place.parameter and masked(place.parameter),
    )


def problem_of(error: errors.HoldfastError) -> Problem:
    """The problem that reports this error to a caller. These texts never contain secrets."""
    text = str(error)
    match error:
        case errors.JobNotFound():
            return Problem("job-not-found", text, job_id=error.job_id)
        case errors.BulkChangeNotFound():
            return Problem("bulk-change-not-found", text)
        case errors.AlreadyRequeued():
            return Problem("already-requeued", text, job_id=error.new_id)
        case errors.KeyNotFound() | errors.ErrorGroupNotFound():
            return Problem("not-found", text)
        case errors.WrongState():
            return Problem("wrong-state", text)
        case errors.LeaseLost():
            return Problem("lease-lost", text, job_id=error.job_id)
        case errors.DuplicateJob():
            return Problem("duplicate-job", text, job_id=error.job_id)
        case errors.IdempotencyConflict():
            return Problem("idempotency-conflict", text, job_id=error.job_id)
        case errors.JobFailed():
            return Problem("job-failed", text, job_id=error.job.id, ended=error.job)
        case errors.PayloadTooLarge():
            return Problem("too-large", text)
        case errors.BadArguments() | errors.StoreRefused():
            return Problem("bad-arguments", text)
        case errors.NotInThisStore():
            return Problem("not-in-this-store", text)
        case errors.SchemaMismatch():
            return unavailable(
                "the database schema does not match this server; run: holdfast migrate"
            )
        case NoPepper():
            text = "this server has no usable pepper, so it can't create or check keys; see its log"
            return unavailable(text, "not-ready")
        case errors.ConfigurationError():
            return Problem("bad-request", text)
        case errors.CannotDecrypt():
            return unavailable(text, "not-ready")  # another server may have the key
        case errors.StoreUnavailable():
            return unavailable("the database can't be reached; try again later")
    return Problem(
        "internal-error", "unexpected error; look for the correlation ID in the server's log"
    )


def unavailable(text: str, code: str = "database-unavailable") -> Problem:
    """A temporary problem: the client should try again."""
    return Problem(code, text, headers={"retry-after": str(RETRY_AFTER_SECONDS)})


def explained(code: str) -> dict[str, Any] | None:
    """What `/v1/problems/{code}` tells about a kind of problem."""
    kind = KINDS.get(code)
    return None if kind is None else {"code": code, "status": kind.status, "title": kind.title}
