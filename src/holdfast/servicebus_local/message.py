"""A message as its sections.

What the sender wrote comes out byte for byte. Only the header and the annotations of the broker are
new for each delivery, and settlements may add application properties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from holdfast.servicebus_local.codec import (
    Symbol,
    Timestamp,
    check_depth,
    decode,
    encode,
    end_of,
)
from holdfast.servicebus_local.limits import MESSAGE_BYTES_MAX
from holdfast.servicebus_local.refusals import Malformed, MessageTooLarge

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION = range(0x70, 0x75)
DATA, SEQUENCE, VALUE, FOOTER = range(0x75, 0x79)
BATCH_FORMAT = 0x80013700
SCHEDULED = "x-opt-scheduled-enqueue-time"
OF_THE_BROKER = {
    "x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-locked-until", "x-opt-message-state",
    "x-opt-enqueue-sequence-number",
}  # fmt: skip
TTL_MAX_MS = 2**32 - 1

Pairs: TypeAlias = tuple[tuple[Any, bytes], ...]  # the key, and the key and value as bytes


@dataclass(frozen=True)
class Message:
    annotations: Pairs
    properties: bytes  # the section
    application: Pairs
    body: bytes  # its sections, and the footer
    message_id: Any
    session_id: str | None
    durable: bool
    priority: int
    ttl_ms: int | None
    scheduled_ms: int | None

    @property
    def size(self) -> int:
        pairs = (*self.annotations, *self.application)
        return len(self.properties) + len(self.body) + sum(len(raw) for _, raw in pairs)

    @property
    def application_properties(self) -> dict[str, Any]:
        return {str(key): decode(raw, end_of(raw, 0))[0] for key, raw in self.application}

    @property
    def data(self) -> bytes:
        """The bytes of the body; of an AMQP value that is no bytes or string, its encoding."""
        parts = []
        for code, _, start, end in _sections(self.body):
            value = decode(self.body, start)[0] if code != FOOTER else b""
            if isinstance(value, str):
                value = value.encode()
            parts.append(value if isinstance(value, bytes) else self.body[start:end])
        return b"".join(parts)

    @property
    def fields(self) -> list[Any]:
        """The properties, decoded."""
        return _padded(self._properties_list(), 13)

    @property
    def first_field(self) -> bytes:
        """The message's ID, encoded."""
        if not self._properties_list():
            return b"\x40"
        _, start = decode(self.properties, 1)
        begin = start + (9 if self.properties[start] == 0xD0 else 3)
        return self.properties[begin : end_of(self.properties, begin)]

    @property
    def value(self) -> Any:
        """The body, if it is a single AMQP value."""
        for code, _, start, _ in _sections(self.body):
            if code == VALUE:
                return decode(self.body, start)[0]
        return None

    def _properties_list(self) -> list[Any]:
        return decode(self.properties, decode(self.properties, 1)[1])[0] if self.properties else []

    def with_properties(self, more: Mapping[str, Any]) -> Message:
        """The same message with these application properties set."""
        return replace(self, application=_merged(self.application, more)) if more else self

    def encoded(self, delivery_count: int, annotations: Mapping[Symbol, Any]) -> bytes:
        """The message for one delivery."""
        pairs = _merged(
            tuple(pair for pair in self.annotations if pair[0] not in OF_THE_BROKER), annotations
        )
        application = _section(APPLICATION, self.application) if self.application else b""
        header = self._header(delivery_count)
        return header + _section(ANNOTATIONS, pairs) + self.properties + application + self.body

    def _header(self, delivery_count: int) -> bytes:
        fields = [
            b"\x56" + bytes([self.durable]),
            b"\x50" + bytes([self.priority]),
            b"\x40" if self.ttl_ms is None else b"\x70" + self.ttl_ms.to_bytes(4, "big"),
            b"\x42",  # not the first acquirer: nobody can know
            b"\x70" + delivery_count.to_bytes(4, "big"),
        ]
        content = b"".join(fields)
        return b"\x00\x53\x70\xc0" + bytes([len(content) + 1, len(fields)]) + content


def parse(raw: bytes) -> Message:
    if len(raw) > MESSAGE_BYTES_MAX:
        raise MessageTooLarge(len(raw), MESSAGE_BYTES_MAX)
    found: dict[int, tuple[int, int, int]] = {}
    body: tuple[int, int] | None = None
    last = HEADER - 1
    for code, begin, start, end in _sections(raw):
        if code < last or (code == last and code not in (DATA, SEQUENCE)):
            raise Malformed("the sections of the message are out of order")
        last = code
        if code >= DATA:
            check_depth(raw, start, end)
            body = (body[0] if body else begin, end)
        else:
            found[code] = (begin, start, end)
    begin, end = body or (0, 0)  # some clients leave out a body that is empty
    return _parsed(raw, found, raw[begin:end])


def _parsed(raw: bytes, found: Mapping[int, tuple[int, int, int]], body: bytes) -> Message:
    header = _fields(raw, found, HEADER, 5)
    properties = _fields(raw, found, PROPERTIES, 13)
    annotations = _pairs(raw, found.get(ANNOTATIONS))
    begin, _, end = found.get(PROPERTIES, (0, 0, 0))
    session_id = properties[10]
    return Message(
        annotations=annotations,
        properties=raw[begin:end],
        application=_pairs(raw, found.get(APPLICATION)),
        body=body,
        message_id=properties[0],
        session_id=session_id if isinstance(session_id, str) else None,
        durable=header[0] is True,
        priority=header[1] if _is_in(header[1], 255) else 4,
        ttl_ms=header[2] if _is_in(header[2], TTL_MAX_MS) else None,
        scheduled_ms=_scheduled_ms(annotations),
    )


def _is_in(value: Any, most: int) -> bool:
    return isinstance(value, int) and 0 <= value <= most


def _scheduled_ms(annotations: Pairs) -> int | None:
    for key, raw in annotations:
        if key == SCHEDULED:
            value, _ = decode(raw, end_of(raw, 0))
            return int(value) if isinstance(value, Timestamp) else None
    return None


def split(raw: bytes) -> list[bytes]:
    """The messages of a batch: each is a data section of the message that carries them."""
    parts = [decode(raw, start)[0] for code, _, start, _ in _sections(raw) if code == DATA]
    if not parts or not all(isinstance(part, bytes) for part in parts):
        raise Malformed("a batch consists of data sections")
    return parts


def _sections(raw: bytes) -> list[tuple[int, int, int, int]]:
    """Code, and where the section, its value and its end are."""
    found = []
    at = 0
    while at < len(raw):
        if raw[at] != 0:
            raise Malformed("a section has no descriptor")
        code, start = decode(raw, at + 1)
        if not isinstance(code, int) or not HEADER <= code <= FOOTER:
            raise Malformed(f"unknown section {code!r}"[:100])
        end = end_of(raw, start)
        found.append((code, at, start, end))
        at = end
    return found


def _fields(
    raw: bytes, found: Mapping[int, tuple[int, int, int]], code: int, count: int
) -> list[Any]:
    fields = decode(raw, found[code][1])[0] if code in found else []
    if not isinstance(fields, list):
        raise Malformed("a section is not a list")
    return _padded(fields, count)


def _padded(fields: list[Any], count: int) -> list[Any]:
    return [*fields, *[None] * count][:count]


def _pairs(raw: bytes, place: tuple[int, int, int] | None) -> Pairs:
    """The entries of a map, undecoded but for their keys."""
    if place is None:
        return ()
    _, start, end = place
    entries = decode(raw, start)[0]  # also checks it
    if not isinstance(entries, dict):
        raise Malformed("a section is not a map")
    at = start + (9 if raw[start] == 0xD1 else 3)
    pairs = []
    while at < end:
        key, value_at = decode(raw, at)
        ends = end_of(raw, value_at)
        pairs.append((key, raw[at:ends]))
        at = ends
    return tuple(pairs)


def _merged(pairs: Pairs, more: Mapping[Any, Any]) -> Pairs:
    kept = tuple(pair for pair in pairs if pair[0] not in more)
    return kept + tuple((key, encode(key) + encode(value)) for key, value in more.items())


def _section(code: int, pairs: Pairs) -> bytes:
    content = b"".join(raw for _, raw in pairs)
    size = (len(content) + 4).to_bytes(4, "big") + (2 * len(pairs)).to_bytes(4, "big")
    return b"\x00\x53" + bytes([code]) + b"\xd1" + size + content
