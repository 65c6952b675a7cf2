"""Values, messages and frames as bytes: what is read is what was written, and garbage is refused
by the one error that the bus expects."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.servicebus_local.codec import (
    Array,
    Described,
    Int,
    Symbol,
    Timestamp,
    check_depth,
    decode,
    encode,
    end_of,
)
from holdfast.servicebus_local.frames import Splitter
from holdfast.servicebus_local.limits import FRAME_BYTES_MAX, FRAME_DEPTH_MAX, MESSAGE_BYTES_MAX
from holdfast.servicebus_local.message import parse, split
from holdfast.servicebus_local.refusals import Malformed, MessageTooLarge, Refused
from tests.servicebus_local.messages import encoded, message, section

LONG = some.integers(-(2**63), 2**63 - 1)
SIMPLE = (
    some.none()
    | some.booleans()
    | LONG
    | some.floats(allow_nan=False)
    | some.text(max_size=300)
    | some.binary(max_size=300)
    | some.uuids()
    | LONG.map(Timestamp)
    | some.integers(-(2**31), 2**31 - 1).map(Int)
    | some.text("abc:-", max_size=300).map(Symbol)
)
VALUES = some.recursive(
    SIMPLE,
    lambda inner: (
        some.lists(inner, max_size=5) | some.dictionaries(some.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)
HEADER = b"AMQP\x00\x01\x00\x00"


@given(VALUES)
def test_what_is_decoded_is_what_was_encoded(value: Any) -> None:
    content = encode(value)
    assert decode(content) == (value, len(content))
    assert end_of(content, 0) == len(content)
    check_depth(content, 0, len(content))


@given(some.lists(some.uuids(), max_size=5) | some.lists(LONG, max_size=5))
def test_an_array_is_decoded_as_its_items(items: list[Any]) -> None:
    content = encode(Array(items))
    assert decode(content) == (items, len(content))


@given(some.binary(max_size=200))
def test_garbage_is_refused_as_malformed(content: bytes) -> None:
    for read in (
        lambda: decode(content),
        lambda: end_of(content, 0),
        lambda: check_depth(content, 0, len(content)),
        lambda: parse(content),
        lambda: split(content),
        lambda: list(Splitter().feed(content)),
    ):
        with suppress(Refused):
            read()


@given(some.data())
def test_a_damaged_message_is_refused_or_read(data: some.DataObject) -> None:
    content = bytearray(encoded(properties={"a": 1, "b": [1, {"c": "d"}]}))
    for _ in range(data.draw(some.integers(1, 5))):
        content[data.draw(some.integers(0, len(content) - 1))] = data.draw(some.integers(0, 255))
    end = data.draw(some.integers(0, len(content)))
    with suppress(Refused):
        found = parse(bytes(content[:end]))
        with suppress(Malformed):
            assert found.encoded(0, {})
            assert found.data is not None
            assert found.value is None or found.value is not None


def test_values_nested_too_deeply_are_refused() -> None:
    value: Any = 1
    for _ in range(FRAME_DEPTH_MAX + 2):
        value = [value]
    described: Any = 1
    for _ in range(FRAME_DEPTH_MAX + 2):
        described = Described(1, described)
    for content in (encode(value), encode(described), b"\x00" * 100_000):
        with pytest.raises(Malformed):
            decode(content)
        with pytest.raises(Malformed):
            check_depth(content, 0, len(content))


def test_a_frame_with_values_nested_too_deeply_is_refused() -> None:
    """The stack of the engine's thread might be too small for them."""
    value: Any = 1
    for _ in range(FRAME_DEPTH_MAX + 2):
        value = [value]
    body = section(0x10, ["me", {"properties": value}])
    with pytest.raises(Malformed):
        list(Splitter().feed((len(body) + 8).to_bytes(4, "big") + b"\x02\0\0\0" + body))


def test_a_delivery_has_the_senders_bytes_between_the_brokers() -> None:
    raw = encoded(b"\x00\xff", message_id=7, properties={"a": 1}, ttl_ms=5)
    delivered = parse(raw).encoded(3, {Symbol("x-opt-sequence-number"): 9})
    tail = raw[raw.index(section(0x75, b"\x00\xff")) :]
    assert delivered.endswith(tail)
    again = parse(delivered)
    assert again.properties == parse(raw).properties
    assert again.application == parse(raw).application
    assert (again.ttl_ms, again.message_id, again.data) == (5, 7, b"\x00\xff")
    assert {str(key) for key, _ in again.annotations} == {
        "x-opt-partition-key",
        "x-opt-sequence-number",
    }


def test_a_sender_can_not_forge_the_brokers_annotations() -> None:
    raw = section(0x72, {Symbol("x-opt-sequence-number"): 666}) + section(0x75, b"x")
    again = parse(parse(raw).encoded(0, {Symbol("x-opt-enqueued-time"): Timestamp(1)}))
    assert [str(key) for key, _ in again.annotations] == ["x-opt-enqueued-time"]


def test_properties_are_added_or_replaced() -> None:
    changed = message(properties={"a": 1, "b": 2}).with_properties({"b": "two", "c": None})
    assert changed.application_properties == {"a": 1, "b": "two", "c": None}


@pytest.mark.parametrize(
    "raw",
    [
        section(0x75, b"x") + section(0x73, ["id"]),
        section(0x73, ["id"]) * 2 + section(0x75, b"x"),
        section(0x77, 1) * 2,
        section(0x73, {"a": 1}),
        section(0x74, [1]),
        section(0x79, 1),
        b"body",
    ],
    ids=["order", "twice", "two values", "map", "list", "unknown", "none"],
)
def test_a_message_with_wrong_sections_is_refused(raw: bytes) -> None:
    with pytest.raises(Malformed):
        parse(raw)


def test_a_message_above_the_limit_is_refused() -> None:
    with pytest.raises(MessageTooLarge):
        parse(encoded(b"x" * MESSAGE_BYTES_MAX))


@given(some.lists(some.integers(1, 40), max_size=10))
def test_frames_are_found_however_the_bytes_arrive(cuts: list[int]) -> None:
    transfer = section(0x14, [0, 1, b"tag", 0x80013700]) + b"payload"
    frames = [
        (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body
        for body in (section(0x10, ["me"]), b"", transfer)
    ]
    stream = HEADER + b"".join(frames)
    splitter, found, at = Splitter(), [], 0
    for cut in [*cuts, len(stream)]:
        found += list(splitter.feed(stream[at : at + cut]))
        at += cut
    assert [frame.content for frame in found] == [HEADER, *frames]
    assert [frame.message_format for frame in found] == [None, None, None, 0x80013700]


@pytest.mark.parametrize("size", [0, 7, FRAME_BYTES_MAX + 1, 2**32 - 1])
def test_a_frame_of_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(Malformed):
        list(Splitter().feed(size.to_bytes(4, "big") + b"\x02\x00\x00\x00"))
