"""Splits what a client sends into frames, and refuses those that could harm the protocol engine.

The engine walks through nested values by recursion, so their depth is checked here. It also keeps
the format of a message to itself, which tells a batch from a single message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.servicebus_local.codec import check_depth, decode, end_of
from holdfast.servicebus_local.limits import FRAME_BYTES_MAX
from holdfast.servicebus_local.refusals import Malformed

PROTOCOL_HEADER = b"AMQP"
HEADER_BYTES = 8
TRANSFER = 0x14
MESSAGE_FORMAT = 3  # the field of a transfer


@dataclass(frozen=True)
class Frame:
    content: bytes
    message_format: int | None = None  # of a transfer that begins a message


class Splitter:
    def __init__(self) -> None:
        self._waiting = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now."""
        self._waiting += data
        while len(self._waiting) >= HEADER_BYTES:
            size = self._size()
            if len(self._waiting) < size:
                break
            content = bytes(self._waiting[:size])
            del self._waiting[:size]
            yield Frame(content, _message_format(content))

    def _size(self) -> int:
        if self._waiting.startswith(PROTOCOL_HEADER):
            return HEADER_BYTES
        size = int.from_bytes(self._waiting[:4], "big")
        if not HEADER_BYTES <= size <= FRAME_BYTES_MAX:
            raise Malformed(f"a frame of {size} bytes")
        return size


def _message_format(content: bytes) -> int | None:
    """Check a frame; answer the format of the message that it begins, if it does."""
    begin = content[4] * 4
    if content.startswith(PROTOCOL_HEADER) or begin == len(content):
        return None
    if not HEADER_BYTES <= begin < len(content) or content[begin] != 0:
        raise Malformed("a frame without a performative")
    end = end_of(content, begin)
    check_depth(content, begin, end)
    code, start = decode(content, begin + 1)
    if code != TRANSFER:
        return None
    fields, _ = decode(content, start)
    if not isinstance(fields, list):
        raise Malformed("a performative is not a list")
    found = fields[MESSAGE_FORMAT] if len(fields) > MESSAGE_FORMAT else None
    return found if isinstance(found, int) else None
