"""The call to the AppServer, and what its failures mean for the job."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

import aiohttp
import msgspec
from yarl import URL

from holdfast import Permanent, RetryAfter, Transient
from holdfast_systems.compute.limits import (
    ERROR_CHARS_MAX,
    OUTPUTS_BYTES_MAX,
    RETRY_AFTER_SECONDS_MAX,
)

CORRELATION_HEADER = "x-correlation-id"
JOB_HEADER = "x-job-id"
ATTEMPT_HEADER = "x-attempt"
# These are about the moment, not about the request.
_RETRYABLE = (408, 425, 429)


class Call(NamedTuple):
    """What is sent where, and for which attempt of which job, so that the AppServer can log it."""

    url: str
    payload_json: str
    correlation_id: str
    job_id: UUID
    attempt: int


async def solve(http: aiohttp.ClientSession, call: Call, timeout_seconds: float) -> object:
    """Post the inputs and return the outputs; the errors say whether to retry."""
    try:
        async with http.post(
            URL(call.url, encoded=True),
            data=call.payload_json.encode(),
            headers={
                "content-type": "application/json",
                "accept": "application/json",
                CORRELATION_HEADER: call.correlation_id,
                JOB_HEADER: str(call.job_id),
                ATTEMPT_HEADER: str(call.attempt),
            },
            timeout=aiohttp.ClientTimeout(total=timeout_seconds),
            allow_redirects=False,
        ) as response:
            body = await _read(response)
    except TimeoutError:
        raise Transient(
            f"the AppServer did not answer within {timeout_seconds:g} s", code="APP_TIMEOUT"
        ) from None
    except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: an odd URL
        raise Transient(
            f"can't reach the AppServer: {type(error).__name__}", code="APP_UNREACHABLE"
        ) from None
    _check_status(response, body)
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        raise Permanent("the AppServer's answer is not JSON", code="OUTPUTS_INVALID") from None


async def _read(response: aiohttp.ClientResponse) -> bytes:
    if response.status != 200:
        return await response.content.read(ERROR_CHARS_MAX)
    body = bytearray()
    async for piece in response.content.iter_chunked(64 * 1024):
        body += piece
        if len(body) > OUTPUTS_BYTES_MAX:
            raise Permanent(
                f"the AppServer's answer is larger than {OUTPUTS_BYTES_MAX} bytes",
                code="OUTPUTS_TOO_LARGE",
            )
    return bytes(body)


def _check_status(response: aiohttp.ClientResponse, body: bytes) -> None:
    status = response.status
    if status == 200:
        return
    detail = " ".join(body.decode("utf-8", "replace").split())
    text = f"the AppServer answered {status}{': ' if detail else ''}{detail}"
    if status < 500 and status not in _RETRYABLE:
        raise Permanent(text, code="APP_4XX" if status >= 400 else "APP_ANSWER")
    code = "APP_5XX" if status >= 500 else "APP_BUSY"
    seconds = response.headers.get("retry-after", "")
    if seconds.isascii() and seconds.isdigit():
        raise RetryAfter(min(int(seconds[:9]), RETRY_AFTER_SECONDS_MAX), text, code=code)
    raise Transient(text, code=code)
