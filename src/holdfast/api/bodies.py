"""Read the body of a request: exact JSON, limited in size and time."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from holdfast.api.exact_json import BadJson, parse, pointer_to
from holdfast.api.limits import BODY_BYTES_MAX, BODY_SECONDS_MAX
from holdfast.api.problems import At, Problem

T = TypeVar("T")

_UNKNOWN_FIELD: Final = re.compile(
    r"Object contains unknown field `(?P<name>.*?)`(?: - at |$)", re.S
)
_STEP: Final = re.compile(r"\.(?P<name>[^.\[`]+)|\[(?P<index>\d+)\]")


async def read_bytes(request: Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Read the whole body, or raise a Problem if it is too large or too slow."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > bytes_max:
        raise _too_large(bytes_max)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            more = True
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > bytes_max:
                    raise _too_large(bytes_max)
    except TimeoutError:
        detail = f"the body did not arrive within {BODY_SECONDS_MAX:g} s"
        raise Problem("too-slow", detail, headers={"connection": "close"}) from None
    return bytes(body)


async def read_json(request: Request, bytes_max: int = BODY_BYTES_MAX) -> Any:
    _check_media_type(request)
    return _parsed(await read_bytes(request, bytes_max))


def _check_media_type(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        given = media_type or "missing"
        raise Problem("wrong-media-type", f"Content-Type is {given}; send application/json")


def _parsed(data: bytes) -> Any:
    try:
        return parse(data)
    except BadJson as error:
        place = [] if error.pointer is None else [At(str(error), pointer=error.pointer)]
        raise Problem("bad-json", str(error), place) from None


async def read_body(request: Request, kind: type[T], bytes_max: int = BODY_BYTES_MAX) -> T:
    """Read a body of this type. Unknown members are errors."""
    return convert(await read_json(request, bytes_max), kind)


async def read_optional_body(request: Request, kind: type[T]) -> T:
    """Like `read_body`, but a missing body counts as an empty object."""
    data = await read_bytes(request)
    if not data:
        return kind()
    _check_media_type(request)
    return convert(_parsed(data), kind)


def convert(value: Any, kind: type[T], prefix: str = "") -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, path = explained(error)
        pointer = prefix + pointer_of(path)
        if unknown := _UNKNOWN_FIELD.match(str(error)):
            pointer += pointer_to(unknown["name"])
        raise Problem("bad-request", reason, [At(reason, pointer=pointer)]) from None


def explained(error: msgspec.ValidationError) -> tuple[str, str]:
    """Why a value is invalid, and its path, such as `$.jobs[3].name`."""
    reason, _, path = str(error).partition(" - at ")
    if "matching regex" in reason:
        reason = "names can't contain control characters or line breaks"
    return reason.replace("`", ""), path.strip("`")


def pointer_of(path: str) -> str:
    """Turn the path of a validation error, like `$.jobs[3].name`, into a JSON Pointer."""
    steps = [match["name"] or match["index"] for match in _STEP.finditer(path)]
    return pointer_to(*steps)


def _too_large(bytes_max: int) -> Problem:
    detail = f"the body is larger than {bytes_max:,} bytes"
    return Problem("too-large", detail, headers={"connection": "close"})
