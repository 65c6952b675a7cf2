"""Salesforce's answers. Nothing about them is taken for granted: an unusable answer fails only the
call that it answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from holdfast.store_api import StoreRefused
from holdfast_systems.documents.salesforce.client import limits
from holdfast_systems.documents.salesforce.client.ids import is_record_id

T = TypeVar("T")

_CODE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,79}", re.ASCII)
_NO_CODE: Final = "UNKNOWN_EXCEPTION"


class Unusable(Exception):
    """The answer doesn't follow Salesforce's API."""


class SalesforceRefused(StoreRefused):
    """Salesforce refused a request; `code` is its own error code."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code if _CODE.fullmatch(code) else _NO_CODE
        self.text = shortened(text)
        super().__init__(f"Salesforce refused: {self.code}: {self.text}")


class Written(NamedTuple):
    """The result for one record in a batch: its id, or why Salesforce refused it."""

    id: str | None
    refusal: SalesforceRefused | None = None


class Granted(msgspec.Struct):
    access_token: str
    instance_url: str


class Page(msgspec.Struct, rename="camel"):
    records: list[Any]
    done: bool
    total_size: int
    next_records_url: str = ""

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for row in self.records if isinstance(row, dict)]


class Created(msgspec.Struct):
    id: str


class _Refusal(msgspec.Struct, rename="camel"):
    status_code: str = _NO_CODE
    message: str = ""


class Result(msgspec.Struct):
    success: bool
    id: str | None = None
    errors: list[_Refusal] = []


def read(body: bytes, answer: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=answer)
    except (ValueError, RecursionError) as error:  # invalid UTF-8, nested too deeply
        raise Unusable(shortened(str(error))) from error


def read_id(value: object) -> str:
    if not is_record_id(value):
        raise Unusable(shortened(f"{value!r} is not a record id"))
    return value


def read_results(results: Sequence[Result], records: int) -> list[Written]:
    """Read one result for each record that was sent, in the same order."""
    if len(results) != records:
        raise Unusable(f"{len(results)} results for {records} records")
    return [_written(result) for result in results]


def _written(result: Result) -> Written:
    if result.success:
        return Written(read_id(result.id))
    error = next(iter(result.errors), _Refusal())
    return Written(result.id, SalesforceRefused(error.status_code, error.message))


def read_error(status: int, body: bytes) -> tuple[str, str]:
    """Read the code and the text of an error; the code is the HTTP status if there is none."""
    try:
        first = read(body, list[Any])[0]
        code, text = str(first["errorCode"]), str(first["message"])
    except (Unusable, LookupError, TypeError):
        code, text = "", ""
    return code if _CODE.fullmatch(code) else f"HTTP_{status}", text


def read_reason(body: bytes) -> str:
    """Read why OAuth rejected a login."""
    try:
        refused = read(body, dict[str, Any])
    except Unusable:
        return ""
    words = (refused.get(name) for name in ("error", "error_description"))
    return shortened("".join(f": {word}" for word in words if isinstance(word, str) and word))


def shortened(text: str) -> str:
    return text[: limits.MESSAGE_CHARS_MAX]
