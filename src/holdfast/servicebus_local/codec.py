"""AMQP 1.0 values as bytes, and back.

Clients may send anything, so nothing here trusts a size, a count or a depth; `Malformed` is the
only error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from holdfast.servicebus_local.limits import FRAME_DEPTH_MAX
from holdfast.servicebus_local.refusals import Malformed

DESCRIBED = 0x00
LIST_EMPTY = 0x45


class Symbol(str):
    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970."""


class Int(int):
    """Encoded in 32 bits; other integers take 64."""


@dataclass(frozen=True)
class Array:
    """Values of one type: all timestamps, integers or UUIDs."""

    items: Sequence[Any]


@dataclass(frozen=True)
class Described:
    descriptor: Any
    value: Any


def end_of(data: bytes, at: int, depth: int = 0) -> int:
    """Where the value that begins here ends."""
    code, at = _byte(data, at), at + 1
    if code == DESCRIBED:
        if depth >= FRAME_DEPTH_MAX:
            raise Malformed("values are nested too deeply")
        return end_of(data, end_of(data, at, depth + 1), depth + 1)
    return _end_of_plain(data, code, at)


def _end_of_plain(data: bytes, code: int, at: int) -> int:
    width = code >> 4
    if 0x4 <= width <= 0x9:
        end = at + (0 if width == 0x4 else 1 << width - 5)
    elif width in (0xA, 0xC, 0xE):
        end = at + 1 + _byte(data, at)
    elif width in (0xB, 0xD, 0xF):
        end = at + 4 + _uint(data, at)
    else:
        raise Malformed(f"unknown type 0x{code:02x}")
    if end > len(data):
        raise Malformed("a value ends after its frame or message")
    return end


def check_depth(data: bytes, at: int, end: int, depth: int = 0) -> None:
    """Raise Malformed if values between here and there are nested too deeply, or aren't values."""
    while at < end:
        at = _check_value(data, at, depth)
    if at > end:
        raise Malformed("a value ends after the one that it is in")


def _check_value(data: bytes, at: int, depth: int) -> int:
    if depth > FRAME_DEPTH_MAX:
        raise Malformed("values are nested too deeply")
    code, at = _byte(data, at), at + 1
    if code == DESCRIBED:
        return _check_value(data, _check_value(data, at, depth + 1), depth + 1)
    end = _end_of_plain(data, code, at)
    width = code >> 4
    if width in (0xC, 0xD):
        check_depth(data, at + (2 if width == 0xC else 8), end, depth + 1)
    elif width in (0xE, 0xF):
        _check_array(data, at + (2 if width == 0xE else 8), end, depth + 1)
    return end


def _check_array(data: bytes, at: int, end: int, depth: int) -> None:
    """Arrays of arrays and lists have no use here, and are refused instead of followed."""
    while at < end and data[at] == DESCRIBED and depth <= FRAME_DEPTH_MAX:
        at, depth = end_of(data, at + 1), depth + 1
    if (at < end and data[at] >> 4 >= 0xC) or depth > FRAME_DEPTH_MAX:
        raise Malformed("values are nested too deeply")


def decode(data: bytes, at: int = 0, depth: int = 0) -> tuple[Any, int]:
    """The value that begins here, and where it ends."""
    if depth > FRAME_DEPTH_MAX:
        raise Malformed("values are nested too deeply")
    code = _byte(data, at)
    if code == DESCRIBED:
        descriptor, at = decode(data, at + 1, depth + 1)
        value, at = decode(data, at, depth + 1)
        return Described(descriptor, value), at
    end = _end_of_plain(data, code, at + 1)
    return _decode_plain(data, code, at + 1, end, depth), end


def _decode_plain(data: bytes, code: int, at: int, end: int, depth: int) -> Any:
    if code in _CONSTANTS:
        return [] if code == LIST_EMPTY else _CONSTANTS[code]
    if code in _FIXED:
        return _FIXED[code](data[at:end])
    wide = code >> 4 in (0xB, 0xD, 0xF)
    at += 4 if wide else 1
    if code in _VARIABLE:
        return _VARIABLE[code](data[at:end])
    if code in (0xC0, 0xD0, 0xC1, 0xD1):
        count, at = _count(data, at, end, wide)
        items = _decode_items(data, at, end, count, depth + 1)
        return items if code in (0xC0, 0xD0) else _as_map(items)
    if code in (0xE0, 0xF0):
        count, at = _count(data, at, end, wide)
        return _decode_array(data, at, end, count, depth + 1)
    raise Malformed(f"unknown type 0x{code:02x}")


def _count(data: bytes, at: int, end: int, wide: bool) -> tuple[int, int]:
    count, at = (_uint(data, at), at + 4) if wide else (_byte(data, at), at + 1)
    if count > end - at:
        raise Malformed("a list is shorter than its count")
    return count, at


def _decode_items(data: bytes, at: int, end: int, count: int, depth: int) -> list[Any]:
    items = []
    for _ in range(count):
        value, at = decode(data, at, depth)
        items.append(value)
    if at > end:
        raise Malformed("a value ends after the one that it is in")
    return items


def _as_map(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise Malformed("a map has a key without a value")
    try:
        return dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        raise Malformed("a key of a map is a list or a map") from None


def _decode_array(data: bytes, at: int, end: int, count: int, depth: int) -> list[Any]:
    _check_array(data, at, end, depth)
    if not count:
        return []
    code, at = _byte(data, at), at + 1
    if code == DESCRIBED:
        at = end_of(data, at)
        code, at = _byte(data, at), at + 1
    items = []
    for _ in range(count):
        ends = _end_of_plain(data, code, at)
        items.append(_decode_plain(data, code, at, ends, depth))
        at = ends
    if at > end:
        raise Malformed("a value ends after the one that it is in")
    return items


def encode(value: Any) -> bytes:
    if isinstance(value, Array):
        return _encode_array(value.items)
    if isinstance(value, list | tuple):
        return _compound(0xD0, [encode(each) for each in value])
    if isinstance(value, dict):
        return _compound(0xD1, [encode(each) for pair in value.items() for each in pair])
    if isinstance(value, Described):
        return b"\x00" + encode(value.descriptor) + encode(value.value)
    code, content = _parts(value)
    return bytes([code]) + content


def _compound(code: int, items: Sequence[bytes]) -> bytes:
    content = b"".join(items)
    return bytes([code]) + struct.pack(">II", len(content) + 4, len(items)) + content


def _encode_array(items: Sequence[Any]) -> bytes:
    parts = [_parts(each) for each in items] or [(0x40, b"")]
    code = parts[0][0]
    content = b"".join(content for _, content in parts)
    size = struct.pack(">II", len(content) + 5, len(items))
    return b"\xf0" + size + bytes([code]) + content


def _parts(value: Any) -> tuple[int, bytes]:
    """The code of a simple value, and what follows it."""
    if value is None:
        return 0x40, b""
    if isinstance(value, bool):
        return 0x56, bytes([value])
    for kind, code, content in _ENCODERS:
        if isinstance(value, kind):
            return code, content(value)
    raise TypeError(f"AMQP has no {type(value).__name__}")


def _sized(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


_ENCODERS: list[tuple[type, int, Callable[[Any], bytes]]] = [
    (Timestamp, 0x83, lambda value: struct.pack(">q", value)),
    (Int, 0x71, lambda value: struct.pack(">i", value)),
    (int, 0x81, lambda value: struct.pack(">q", value)),
    (float, 0x82, lambda value: struct.pack(">d", value)),
    (UUID, 0x98, lambda value: value.bytes),
    (Symbol, 0xB3, lambda value: _sized(value.encode("ascii"))),
    (str, 0xB1, lambda value: _sized(value.encode())),
    (bytes, 0xB0, _sized),
]


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise Malformed("a value ends after its frame or message")
    return data[at]


def _uint(data: bytes, at: int) -> int:
    if at + 4 > len(data):
        raise Malformed("a value ends after its frame or message")
    return int.from_bytes(data[at : at + 4], "big")


def _unsigned(content: bytes) -> int:
    return int.from_bytes(content, "big")


def _signed(content: bytes) -> int:
    return int.from_bytes(content, "big", signed=True)


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8") from None


def _character(content: bytes) -> str:
    try:
        return chr(_unsigned(content))
    except (ValueError, OverflowError):
        raise Malformed("a character is not Unicode") from None


def _double(content: bytes) -> float:
    return float(struct.unpack(">f" if len(content) == 4 else ">d", content)[0])


_CONSTANTS: dict[int, Any] = {
    0x40: None,
    0x41: True,
    0x42: False,
    0x43: 0,
    0x44: 0,
    LIST_EMPTY: [],
}
_FIXED: dict[int, Callable[[bytes], Any]] = {
    0x56: lambda content: content != b"\x00",
    **dict.fromkeys((0x50, 0x52, 0x53, 0x60, 0x70, 0x80), _unsigned),
    **dict.fromkeys((0x51, 0x54, 0x55, 0x61, 0x71, 0x81), _signed),
    0x72: _double,
    0x82: _double,
    0x73: _character,
    **dict.fromkeys((0x74, 0x84, 0x94), bytes),  # decimals, which nobody here computes with
    0x83: lambda content: Timestamp(_signed(content)),
    0x98: lambda content: UUID(bytes=content),
}
_VARIABLE: dict[int, Callable[[bytes], Any]] = {
    0xA0: bytes,
    0xB0: bytes,
    0xA1: _text,
    0xB1: _text,
    0xA3: lambda content: Symbol(content.decode("latin-1")),
    0xB3: lambda content: Symbol(content.decode("latin-1")),
}
