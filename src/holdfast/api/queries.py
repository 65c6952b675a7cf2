"""Read the query of a request into a struct. An unknown parameter is an error: a misspelled filter
must not match everything."""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec
from starlette.requests import Request

from holdfast.api.bodies import explained
from holdfast.api.problems import At, Problem
from holdfast.domain.texts import UNSTORABLE

T = TypeVar("T")

_INTEGER: Final = re.compile(r"-?\d{1,18}")
_NUMBER: Final = re.compile(r"-?\d{1,18}(\.\d{1,18})?")
_MISSING: Final = re.compile(r"missing required field (\w+)")
_WORDS: Final = {"true": True, "false": False}


def read_query(request: Request, kind: type[T]) -> T:
    """Read a query of this type. Lists are given as `?state=queued&state=running`."""
    fields = _fields(cast(Hashable, kind))
    values: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        if name not in fields:
            known = ", ".join(fields)
            raise bad_parameter(name, f"unknown parameter; expected one of: {known}")
        if UNSTORABLE.search(text):
            raise bad_parameter(name, "contains a character that can't be stored")
        value = _read(text, fields[name])
        if isinstance(fields[name], msgspec.inspect.CollectionType):
            values.setdefault(name, []).append(value)
        elif name in values:
            raise bad_parameter(name, "is given more than once")
        else:
            values[name] = value
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        reason, path = explained(error)
        if missing := _MISSING.search(reason):
            raise bad_parameter(missing[1], "is required") from None
        name = path.removeprefix("$.").partition("[")[0]
        raise bad_parameter(name, reason) from None


def bad_parameter(name: str, reason: str) -> Problem:
    shown = name if len(name) <= 40 else f"{name[:37]}..."
    text = UNSTORABLE.sub("\ufffd", f"{shown}: {reason}")
    return Problem("bad-request", text, [At(reason, parameter=UNSTORABLE.sub("\ufffd", shown))])


@cache
def _fields(kind: Hashable) -> dict[str, msgspec.inspect.Type]:
    """The type of each field, without None."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return {field.encode_name: _given(field.type) for field in info.fields}


def _given(info: msgspec.inspect.Type) -> msgspec.inspect.Type:
    if isinstance(info, msgspec.inspect.Metadata):
        return _given(info.type)
    if not isinstance(info, msgspec.inspect.UnionType):
        return info
    return next(
        _given(each) for each in info.types if not isinstance(each, msgspec.inspect.NoneType)
    )


def _read(text: str, info: msgspec.inspect.Type) -> Any:
    if isinstance(info, msgspec.inspect.IntType) and _INTEGER.fullmatch(text):
        return int(text)
    if isinstance(info, msgspec.inspect.FloatType) and _NUMBER.fullmatch(text):
        return float(text)
    if isinstance(info, msgspec.inspect.BoolType):
        return _WORDS.get(text, text)
    return text
