"""The response to a request that raised an error."""

from __future__ import annotations

from logging import ERROR, WARNING
from typing import Final

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from holdfast.api.problems import At, Problem, problem_of
from holdfast.domain.errors import HoldfastError
from holdfast.observability import logs

# Starlette handles an error by the most specific of these.
ERRORS: Final = (
    Problem,
    HoldfastError,
    RequestValidationError,
    HTTPException,
    ClientDisconnect,
    Exception,
)
_OF_HTTP: Final = {404: "not-found", 405: "no-such-method"}


async def answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=400)  # nobody reads this
    return reported(request, error).response(request.state.correlation_id)


def reported(request: Request, error: Exception) -> Problem:
    """The problem that tells the caller of an error. What is not the caller's fault is logged."""
    match error:
        case Problem():
            return error
        case RequestValidationError():
            problem = _invalid(error)
        case HTTPException():
            code = _OF_HTTP.get(error.status_code, "bad-request")
            text = f"{request.method} {request.url.path}: {error.detail}"
            problem = Problem(code, text, headers=error.headers)
        case HoldfastError():
            problem = problem_of(error)
        case _:
            text = "unexpected error; look for the correlation ID in the server's log"
            problem = Problem("internal-error", text)
    if problem.kind.status >= 500:
        _log(request, error, problem.kind.status)
    return problem


def _invalid(error: RequestValidationError) -> Problem:
    errors = [
        At(each["msg"].removeprefix("Value error, "), parameter=str(each["loc"][-1]))
        for each in error.errors()
    ]
    detail = "; ".join(f"{each.parameter}: {each.detail}" for each in errors)
    return Problem("bad-request", detail, errors)


def _log(request: Request, error: Exception, status: int) -> None:
    text = f"{request.method} {request.url.path}: {type(error).__name__}: {error}"
    correlation_id = request.state.correlation_id
    if status == 503:
        logs.event(WARNING, "request_failed", text, correlation_id=correlation_id)
    elif status == 500:
        logs.event(ERROR, "request_failed", text, exception=error, correlation_id=correlation_id)
