"""Whether JSON can store a value, and what replaces it if not."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.domain.errors import BadArguments, PayloadTooLarge
from holdfast.domain.limits import INTEGER_MAX, INTEGER_MIN, JSON_DEPTH_MAX
from holdfast.domain.texts import UNSTORABLE, shown

_Path = tuple[Any, ...]  # the keys and indexes that lead to a value

_ENCODER: Final = msgspec.json.Encoder()
_LEAVES: Final = (datetime, date, time, timedelta, UUID, Decimal, bytes, bytearray, memoryview)
_KEYS: Final = (int, Enum, *_LEAVES)
_PLAIN_LEAVES: Final = frozenset({date, timedelta, UUID, Decimal, bytes})
# Python limits the digits of integers that it prints; the limit is at least 640.
_PRINTABLE_BITS_MAX: Final = 2048


def too_large(size: str, bytes_max: int) -> str:
    return (
        f"the arguments take {size} bytes; the maximum is {bytes_max}:"
        " store the data elsewhere and pass a reference"
    )


def is_plain(value: object, nodes_max: int) -> bool:
    """Check the value level by level, so that depth and cycles do no harm."""
    if type(value) is dict and len(value) < nodes_max and _is_flat(value):
        return True
    level: list[Any] = [(value,)]
    for _ in range(JSON_DEPTH_MAX + 1):
        below: list[Any] = []
        for container in level:
            nodes_max -= len(container)
            if nodes_max < 0 or not _is_plain_container(container, below):
                return False
        if not below:
            return True
        level = below
    return False


def _is_flat(value: dict[Any, Any]) -> bool:
    """Whether all values are plain leaves, as most arguments are."""
    below: list[Any] = []
    return _is_plain_container(value, below) and not below


def _is_plain_container(container: Any, below: list[Any]) -> bool:
    if type(container) is dict:
        for key in container:
            if type(key) is not str:
                return False
        container = container.values()
    for item in container:
        kind = type(item)
        if kind is str or kind is bool or item is None:
            continue
        if kind is int:
            if not INTEGER_MIN <= item <= INTEGER_MAX:
                return False
        elif kind is float:
            if not math.isfinite(item):  # msgspec would store null
                return False
        elif kind is dict or kind is list or kind is tuple:
            below.append(item)
        elif kind is datetime:
            if item.tzinfo is not UTC and _offset_has_seconds(item):
                return False
        elif kind not in _PLAIN_LEAVES:
            return False
    return True


class Walk:
    """Turns a value into plain JSON values, and rejects or replaces what JSON can't hold.

    A result may also contain keys and models that convert to JSON. Arguments may not: they must
    keep their types. With `with_keys`, their annotations bring the keys back.

    Every node takes at least two bytes, so `nodes_max` stops the walk through what is too large
    anyway: a few lists that contain each other can stand for 2^60 nodes.
    """

    def __init__(
        self,
        *,
        nodes_max: int,
        for_result: bool = False,
        with_keys: bool = False,
        lenient: bool = False,
    ) -> None:
        self._for_result = for_result
        self._with_keys = with_keys or for_result
        self._lenient = lenient
        self._nodes_max = nodes_max
        self._nodes_left = nodes_max

    def storable(self, value: object, path: _Path = (), depth: int = 0) -> Any:
        try:
            return self._convert(value, path, depth)
        except BadArguments:
            raise
        except BaseException as error:
            if not (self._for_result or isinstance(error, Exception)):
                raise
            problem = f"{_kind(value)} can't be stored: {shown(error, str)}"
            return self._problem(path, problem, shown(value))

    def _convert(self, value: Any, path: _Path, depth: int) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, Enum):
            return self.storable(value.value, path, depth)
        if isinstance(value, str):
            return self._text(value, path, "text")
        if isinstance(value, int):
            return self._integer(int(value), path)
        if isinstance(value, float):
            return self._float(float(value), path)
        if isinstance(value, _LEAVES):
            return self._leaf(value, path)
        if self._for_result and callable(getattr(type(value), "model_dump", None)):
            # A Pydantic model, or something like one.
            return self.storable(value.model_dump(mode="json"), path, depth)
        members = _members(value)
        if members is None:
            return self._problem(path, f"{_kind(value)} can't be stored in JSON", shown(value))
        if depth >= JSON_DEPTH_MAX:
            return self._problem(
                path, f"nested deeper than {JSON_DEPTH_MAX} levels, or contains itself", "..."
            )
        return self._container(members, path, depth + 1)

    def _container(self, members: Any, path: _Path, depth: int) -> Any:
        room = max(0, self._nodes_left)
        self._nodes_left -= len(members)
        if self._nodes_left < 0 and not self._lenient:
            raise PayloadTooLarge(too_large(f"more than {self._nodes_max}", self._nodes_max))
        if isinstance(members, dict):
            return self._object(members, room, path, depth)
        items = [
            self.storable(item, (*path, index), depth)
            for index, item in enumerate(islice(members, room))
        ]
        # The order of a set differs between processes; idempotency needs one order.
        is_set = isinstance(members, set | frozenset)
        return sorted(items, key=_ENCODER.encode) if is_set else items

    def _object(
        self, members: dict[Any, Any], room: int, path: _Path, depth: int
    ) -> dict[str, Any]:
        converted: dict[str, Any] = {}
        for key, item in islice(members.items(), room):
            text = self._key(key, path)
            if text in converted and not self._lenient:
                raise _bad(path, f"two keys become the same text, {shown(text)}")
            converted[text] = self.storable(item, (*path, key), depth)
        return converted

    def _key(self, key: object, path: _Path) -> str:
        if isinstance(key, str):
            return self._text(key, (*path, key), "key")
        if self._with_keys and isinstance(key, _KEYS):
            text = self.storable(key, (*path, key))
            return text if isinstance(text, str) else _ENCODER.encode(text).decode()
        problem = f"the key {shown(key)} is {_kind(key)}; JSON keys must be str"
        return self._problem(path, problem, shown(key, str))

    def _text(self, text: str, path: _Path, noun: str) -> str:
        match = UNSTORABLE.search(text)
        if match is None:
            return str.__str__(text)
        name = "NUL character" if match.group() == "\0" else "lone surrogate"
        return self._problem(
            path, f"a {noun} with a {name} can't be stored", UNSTORABLE.sub("\ufffd", text)
        )

    def _integer(self, number: int, path: _Path) -> int | str:
        if INTEGER_MIN <= number <= INTEGER_MAX:
            return number
        bits = number.bit_length()
        words = str(number) if bits <= _PRINTABLE_BITS_MAX else f"<integer of {bits} bits>"
        return self._problem(
            path, "an integer beyond 64 bits can't be stored; pass it as a str", words
        )

    def _float(self, number: float, path: _Path) -> float | str:
        if math.isfinite(number):
            return number
        name = "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
        return self._problem(path, f"{name} can't be stored in JSON", name)

    def _leaf(self, value: Any, path: _Path) -> Any:
        if isinstance(value, datetime | time) and _offset_has_seconds(value):
            if isinstance(value, time):
                problem = "a time whose UTC offset has seconds can't be stored exactly"
                return self._problem(path, problem, str(value))
            value = value.astimezone(UTC)
        return msgspec.to_builtins(value)

    def _problem(self, path: _Path, text: str, replacement: str) -> str:
        if self._lenient:
            return replacement
        raise _bad(path, text)


def _members(value: Any) -> Any:
    """A container's members, as a dict or a sized collection; None if it is not a container."""
    if isinstance(value, dict | list | tuple | set | frozenset):
        return value
    if isinstance(value, msgspec.Struct):
        return _struct_members(value)
    if isinstance(value, type):
        return None
    described = fields(value) if is_dataclass(value) else getattr(value, "__attrs_attrs__", None)
    if described is None:
        return None
    pairs = ((field.name, getattr(value, field.name)) for field in described)
    return {name: item for name, item in pairs if item is not msgspec.UNSET}


def _struct_members(value: msgspec.Struct) -> dict[str, Any] | list[Any]:
    described = msgspec.structs.fields(value)
    pairs = [(field.encode_name, getattr(value, field.name)) for field in described]
    config = value.__struct_config__
    if config.tag is not None:
        pairs.insert(0, (config.tag_field or "", config.tag))
    if config.array_like:
        return [item for _, item in pairs]
    return {name: item for name, item in pairs if item is not msgspec.UNSET}


def _bad(path: _Path, text: str) -> BadArguments:
    place = "".join(
        f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{shown(step)}]"
        for step in path
    )
    steps = (step if isinstance(step, str | int) else shown(step, str) for step in path)
    return BadArguments(f"${place}: {text}", tuple(steps))


def _offset_has_seconds(moment: datetime | time) -> bool:
    """Historic offsets have seconds (+00:53:28), but JSON's form of times stops at minutes."""
    offset = moment.utcoffset()
    return offset is not None and bool(offset.seconds % 60 or offset.microseconds)


def _kind(value: object) -> str:
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"an object of type {module}{kind.__qualname__}"
