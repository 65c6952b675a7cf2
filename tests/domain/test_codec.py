"""Arguments are stored exactly or refused by name; so are results, unless replaced."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, RootModel

from holdfast.domain import codec
from holdfast.domain.errors import (
    BadArguments,
    ConfigurationError,
    PayloadTooLarge,
    UnstorableValue,
)
from holdfast.domain.limits import (
    ERROR_TEXT_CHARS_MAX,
    INTEGER_MAX,
    INTEGER_MIN,
    JSON_DEPTH_MAX,
    KEY_CHARS_MAX,
    NAME_CHARS_MAX,
    PROGRESS_BYTES_MAX,
    TAG_CHARS_MAX,
)
from holdfast.domain.texts import check_name, error_text, storable_text

ROOM = 256 * 1024


class Color(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Ratio(Enum):
    BROKEN = math.nan


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Item:
    name: str
    price: float
    parts: list[Item] = field(default_factory=list)


class Shape(msgspec.Struct, tag="shape", rename="camel"):
    corner_count: int
    note: str | msgspec.UnsetType = msgspec.UNSET


class Row(msgspec.Struct, array_like=True, tag="row"):
    x: int
    y: float


class Words(str):
    pass


def encode(**values: object) -> bytes:
    return codec.encode_arguments(values, bytes_max=ROOM)


def result(value: object, bytes_max: int = ROOM) -> Any:
    """What stands for a value where an app asks to replace what can't be stored."""
    data = codec.Results(bytes_max, replaces=True).encode(value)
    assert len(data) <= bytes_max
    return msgspec.json.decode(data)


def exact_result(value: object) -> Any:
    return msgspec.json.decode(codec.Results(ROOM).encode(value))


def instant(value: Any) -> Any:
    """Times in the gaps and folds of daylight saving equal nothing but their own instant."""
    aware = isinstance(value, datetime) and value.tzinfo is not None
    return value.astimezone(UTC) if aware else value


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(INTEGER_MIN, INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
plain_values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20
)
zones: Any = st.none() | st.timezones()
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones)  # noqa: DTZ001
typed_values = {
    datetime: moments,
    date: st.dates(),
    time: st.times(),
    timedelta: st.timedeltas(),
    UUID: st.uuids(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    bytes: st.binary(),
    set[int]: st.sets(st.integers(INTEGER_MIN, INTEGER_MAX)),
    tuple[str, float]: st.tuples(texts, st.floats(allow_nan=False, allow_infinity=False)),
}
anything = st.recursive(
    scalars
    | st.text()
    | st.floats()
    | st.integers()
    | st.binary()
    | st.decimals()
    | st.datetimes(timezones=zones)
    | st.times(timezones=zones)
    | st.complex_numbers()
    | st.sampled_from([object(), int, len, Ratio.BROKEN, Color.RED, Point(1, 2), Row(1, math.inf)]),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.none() | st.binary(), inner)
        | st.builds(Item, st.text(), inner, st.lists(inner))
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.dictionaries(texts, plain_values))
def test_arguments_come_back_as_they_were(values: dict[str, Any]) -> None:
    assert codec.decode(codec.encode_arguments(values, bytes_max=10**7)) == values


@settings(deadline=None)
@given(st.data(), st.sampled_from(sorted(typed_values, key=str)))
def test_typed_values_come_back_as_they_were(data: st.DataObject, kind: Any) -> None:
    value = data.draw(typed_values[kind])
    holder: Any = msgspec.defstruct("Holder", [("value", kind)])
    stored = msgspec.json.decode(encode(value=value), type=holder).value
    assert instant(stored) == instant(value)


@pytest.mark.parametrize(
    "value",
    [
        Item("a", 1.5, [Item("b", -0.0)]),
        Shape(3),
        Shape(4, note="n"),
        Row(1, 2.5),
        Point(1, 2),
        Color.RED,
        Level.HIGH,
    ],
)
def test_structures_are_stored_as_msgspec_reads_them(value: Any) -> None:
    kind: Any = msgspec.defstruct("Holder", [("value", type(value))])
    assert msgspec.json.decode(encode(value=value), type=kind).value == value


def test_subclasses_of_plain_types_are_stored_as_these() -> None:
    class Count(int):
        pass

    values = {"x": Words("a"), Words("y"): Count(5), "z": {Color.RED: Words("b")}}
    assert encode(**values) == b'{"x":"a","y":5,"z":{"red":"b"}}'


def test_minus_zero_keeps_its_sign() -> None:
    assert math.copysign(1, codec.decode(encode(x=-0.0))["x"]) == -1


def test_an_offset_with_seconds_keeps_the_instant() -> None:
    moment = datetime(1850, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    assert moment.utcoffset() == timedelta(minutes=53, seconds=28)
    stored = msgspec.json.decode(encode(x=moment), type=dict[str, datetime])
    assert stored["x"] == moment


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append({"again": value})
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, {"price": math.nan}], "$.x[1].price: NaN can't be stored in JSON"),
        (math.inf, "$.x: Infinity can't be stored in JSON"),
        (float("-1e400"), "$.x: -Infinity can't be stored in JSON"),
        (Ratio.BROKEN, "$.x: NaN can't be stored"),
        (Item("a", math.nan), "$.x.price: NaN"),
        ([Item("a", 1, [Item("b", math.inf)])], "$.x[0].parts[0].price: Infinity"),
        (Row(1, math.nan), "$.x[2]: NaN"),
        ("a\0b", "$.x: a text with a NUL character can't be stored"),
        (Words("a\0b"), "$.x: a text with a NUL character can't be stored"),
        ("a\ud800b", "$.x: a text with a lone surrogate can't be stored"),
        ({"a\0": 1}, "$.x['a\\x00']: a key with a NUL character can't be stored"),
        ({"\udfff": 1}, "$.x['\\udfff']: a key with a lone surrogate can't be stored"),
        ({"my key": math.nan}, "$.x['my key']: NaN"),
        (2**63, "$.x: an integer beyond 64 bits can't be stored"),
        (-(2**63) - 1, "$.x: an integer beyond 64 bits"),
        (10**5000, "$.x: an integer beyond 64 bits"),
        ({1: 2}, "$.x: the key 1 is an object of type int"),
        ({None: 2}, "$.x: the key None is an object of type NoneType"),
        (object(), "$.x: an object of type object can't be stored in JSON"),
        (1j, "$.x: an object of type complex can't be stored in JSON"),
        (Item, "$.x: an object of type type can't be stored in JSON"),
        (len, "$.x: an object of type builtin_function_or_method can't be stored"),
        (nested(JSON_DEPTH_MAX), f"nested deeper than {JSON_DEPTH_MAX} levels"),
        (nested(100_000), f"nested deeper than {JSON_DEPTH_MAX} levels"),
        (cyclic(), f"nested deeper than {JSON_DEPTH_MAX} levels"),
        (
            datetime(1, 1, 1, tzinfo=timezone(timedelta(seconds=1))),
            "$.x: an object of type datetime.datetime can't be stored: date value out of range",
        ),
        (
            time(1, tzinfo=timezone(timedelta(seconds=3))),
            "$.x: a time whose UTC offset has seconds can't be stored exactly",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_cannot_be_stored_is_refused_at_its_place(value: object, message: str) -> None:
    with pytest.raises(BadArguments) as raised:
        encode(x=value)
    assert message in str(raised.value)
    str(raised.value).encode()


def test_the_limits_themselves_are_allowed() -> None:
    values = {"low": INTEGER_MIN, "high": INTEGER_MAX, "deep": nested(JSON_DEPTH_MAX - 1)}
    assert codec.decode(encode(**values)) == values


def test_a_text_that_spells_an_escape_is_no_nul() -> None:
    assert codec.decode(encode(x="\\u0000")) == {"x": "\\u0000"}


def test_a_payload_too_large_says_both_sizes() -> None:
    with pytest.raises(PayloadTooLarge, match=r"52428808 bytes; the maximum is 262144"):
        encode(x="a" * 50 * 1024 * 1024)
    exact = codec.encode_arguments({"x": "abc"}, bytes_max=11)
    assert exact == b'{"x":"abc"}'
    with pytest.raises(PayloadTooLarge, match="11 bytes; the maximum is 10"):
        codec.encode_arguments({"x": "abc"}, bytes_max=10)


def lists_of_lists() -> list[Any]:
    value: list[Any] = []
    for _ in range(50):
        value = [value, value]
    return value


def test_a_small_object_that_stands_for_a_huge_one_ends_early() -> None:
    with pytest.raises(PayloadTooLarge, match="more than 262144 bytes"):
        encode(x=lists_of_lists())
    assert result(lists_of_lists())["holdfast"] == "result too large"


def test_an_object_that_fails_to_be_read_is_refused() -> None:
    class Broken(dict[str, int]):
        def items(self) -> Any:
            raise RuntimeError("no items today")

    with pytest.raises(BadArguments, match=r"\$\.x: .*Broken can't be stored: no items today"):
        encode(x=Broken(a=1))
    assert result(Broken(a=1)) == "{'a': 1}"


def test_sets_are_stored_in_one_order_by_every_process() -> None:
    program = (
        "from holdfast.domain.codec import encode_arguments;"
        "print(encode_arguments({'x': {'b', 'a', 'd', 'c', 'e'}}, bytes_max=99).decode())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert outputs == {'{"x":["a","b","c","d","e"]}\n'}


@settings(deadline=None)
@given(anything, st.sampled_from([120, 1000, 10**6]))
def test_every_result_can_be_replaced(value: object, bytes_max: int) -> None:
    data = codec.Results(bytes_max, replaces=True).encode(value)
    assert len(data) <= bytes_max
    stored = msgspec.json.decode(data)
    assert codec.encode_arguments({"x": stored}, bytes_max=10**7)


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


class Talkative:
    def __repr__(self) -> str:
        return "word " * 10**6


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        ({"ok": [1, 2.5, "x"]}, {"ok": [1, 2.5, "x"]}),
        ([math.nan, math.inf, -math.inf], ["NaN", "Infinity", "-Infinity"]),
        ("a\0b\ud800", "a\ufffdb\ufffd"),
        ({"k\0": "v"}, {"k\ufffd": "v"}),
        (2**63, "9223372036854775808"),
        (10**5000, "<integer of 16610 bits>"),
        ({1: {None: b"x"}}, {"1": {"None": "eA=="}}),
        (1 + 2j, "(1+2j)"),
        (Unspeakable(), "<Unspeakable without a readable text>"),
        ({Unspeakable: 1}, {str(Unspeakable): 1}),
        (Item("a", math.nan), {"name": "a", "price": "NaN", "parts": []}),
    ],
    ids=lambda _: "",
)
def test_a_result_keeps_what_it_can(value: object, stored: object) -> None:
    assert result(value) == stored


def test_a_result_cuts_what_is_too_deep_or_too_long() -> None:
    deep = result(nested(100_000))
    for _ in range(JSON_DEPTH_MAX):
        (deep,) = deep
    assert deep == "..."
    assert len(result(Talkative())) == 1000


def test_a_result_too_large_leaves_a_preview() -> None:
    assert result("é" * 10**6, bytes_max=1000) == {
        "holdfast": "result too large",
        "bytes": 2 * 10**6 + 2,
        "preview": '"' + "é" * 124,
    }


def test_progress_has_a_limit_of_its_own() -> None:
    exact, replacing = codec.Results(ROOM), codec.Results(ROOM, replaces=True)
    assert len(exact.encode_progress("a" * (PROGRESS_BYTES_MAX - 2))) == PROGRESS_BYTES_MAX
    with pytest.raises(UnstorableValue, match=r"progress can't be stored: it is larger than 16384"):
        exact.encode_progress("a" * PROGRESS_BYTES_MAX)
    cut = msgspec.json.decode(replacing.encode_progress("a" * PROGRESS_BYTES_MAX))
    assert cut["holdfast"] == "result too large"


class Line(BaseModel):
    sku: str
    price: Decimal
    margin: float = 0.5


class Order(BaseModel):
    lines: list[Line]
    placed: date


class Skus(RootModel[list[str]]):
    pass


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ({"ok": {1, 2}, "at": date(2026, 1, 2)}, {"ok": [1, 2], "at": "2026-01-02"}),
        ({7: "a", UUID(int=1): "b", True: "c"}, {"7": "a", str(UUID(int=1)): "b", "true": "c"}),
        (Item("a", 1.5), {"name": "a", "price": 1.5, "parts": []}),
        (Skus(["a"]), ["a"]),
        (
            [Order(lines=[Line(sku="a", price=Decimal("1.50"))], placed=date(2026, 1, 2))],
            [{"lines": [{"sku": "a", "price": "1.50", "margin": 0.5}], "placed": "2026-01-02"}],
        ),
    ],
    ids=["set", "keys", "dataclass", "root model", "model"],
)
def test_a_result_is_stored_if_nothing_of_it_is_lost(value: object, stored: object) -> None:
    assert exact_result(value) == stored


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"order": object()}, "$.order: an object of type object can't be stored in JSON"),
        ([math.nan], "$[0]: NaN can't be stored in JSON"),
        ({(1, 2): 3}, "$: the key (1, 2) is an object of type tuple"),
        ({1: "a", "1": "b"}, "$: two keys become the same text, '1'"),
        ([2**63], "$[0]: an integer beyond 64 bits can't be stored"),
        (nested(100), f"nested deeper than {JSON_DEPTH_MAX} levels"),
        ("a" * ROOM, f"it is larger than {ROOM} bytes"),
        ([{} for _ in range(ROOM)], f"it is larger than {ROOM} bytes"),
        ([Line(sku="a", price=Decimal(1), margin=math.inf)], "$[0].margin: Infinity can't"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_result_that_would_lose_something_is_refused_at_its_place(
    value: object, reason: str
) -> None:
    with pytest.raises(UnstorableValue) as raised:
        exact_result(value)
    assert str(raised.value).startswith("the result can't be stored: ")
    assert reason in str(raised.value)
    assert raised.value.code == "UNSTORABLE_RESULT"


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff", b'"\\ud800"', b"1e400", b"NaN", b"[" * 100_000, b"1" * 5000],
    ids=lambda data: repr(data[:10]),
)
def test_unreadable_json_comes_back_as_text(data: bytes) -> None:
    text = codec.decode(data)
    assert text == data.decode("utf-8", "replace")
    with pytest.raises(BadArguments, match="resize: the arguments are not valid JSON"):
        codec.body_hash("resize", data)


def test_duplicate_keys_mean_the_last() -> None:
    assert codec.decode(b'{"a":1,"a":2}') == {"a": 2}
    assert codec.body_hash("n", b'{"a":1,"a":2}') == codec.body_hash("n", b'{"a":2}')


def test_the_body_hash_ignores_the_order_of_keys_at_any_depth() -> None:
    one = codec.body_hash("n", b'{"a":[{"x":1,"y":{"p":1,"q":2}}],"b":2}')
    other = codec.body_hash("n", b'{ "b": 2, "a": [{"y":{"q":2,"p":1},"x":1}] }')
    assert one == other
    assert len(one) == 32


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("m", b'{"a":[1,2]}'),
        ("n", b'{"a":[2,1]}'),
        ("n", b'{"a":[1.0,2]}'),
        ("n", b'{"a":["1",2]}'),
        ("n", b'{"a":[1,2],"b":null}'),
        ("n", b'{"a":[[1,2]]}'),
    ],
)
def test_the_body_hash_tells_bodies_apart(name: str, arguments: bytes) -> None:
    assert codec.body_hash("n", b'{"a":[1,2]}') != codec.body_hash(name, arguments)


@settings(deadline=None)
@given(st.text(), st.integers(1, 20))
def test_texts_are_storable_and_cut(text: str, chars_max: int) -> None:
    stored = storable_text(text, chars_max)
    stored.encode()
    assert "\0" not in stored
    assert len(stored) == min(len(text), chars_max)
    assert stored.endswith("…") or len(text) <= chars_max


def test_a_text_that_is_none_is_made_one() -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError("mute")

    assert storable_text(404, 10) == "404"
    assert storable_text(Words("wörd\0s"), 10) == "wörd\ufffds"
    assert storable_text(Mute(), 100) == "<Mute without a readable text>"


def fail(depth: int, error: Exception) -> None:
    secret = "swordfish"
    if depth:
        fail(depth - 1, error)
    assert secret
    raise error


def caught(error: Exception, depth: int = 0) -> str:
    with pytest.raises(type(error)) as raised:
        fail(depth, error)
    return error_text(raised.value)


def test_an_error_text_says_what_and_where_without_variables() -> None:
    lines = caught(ValueError("bad width")).splitlines()
    assert lines[0] == "ValueError: bad width"
    assert lines[-1].startswith(f"  {__file__}:")
    assert lines[-1].endswith(" in fail")
    assert "swordfish" not in "".join(lines)


def test_an_error_text_shows_the_innermost_frames_only() -> None:
    lines = caught(ValueError("deep"), depth=500).splitlines()
    assert len(lines) == 6
    assert all(line.endswith(" in fail") for line in lines[1:])


def test_an_error_text_leaves_out_the_frames_of_the_engine() -> None:
    with pytest.raises(BadArguments) as raised:
        encode(x=math.nan)
    lines = error_text(raised.value).splitlines()
    assert len(lines) == 3
    assert lines[2].endswith(" in encode")


def test_an_error_text_is_bounded_and_keeps_its_frames() -> None:
    text = caught(ValueError("x" * 10**7))
    assert len(text) <= ERROR_TEXT_CHARS_MAX
    assert text.endswith(" in fail")


@pytest.mark.parametrize(
    ("error", "first"),
    [
        (ValueError("a\0b\ud800"), "ValueError: a\ufffdb\ufffd"),
        (ValueError(), "ValueError"),
        (KeyError("k"), "KeyError: 'k'"),
        (ExceptionGroup("two", [ValueError("a")]), "ExceptionGroup: two (1 sub-exception)"),
    ],
)
def test_an_error_text_can_be_stored(error: Exception, first: str) -> None:
    assert caught(error).splitlines()[0] == first


def test_an_error_that_cannot_speak_still_has_a_text() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("silent")

    assert error_text(Silent()) == "Silent: <Silent without a readable text>"


@pytest.mark.parametrize(
    ("kind", "chars_max"),
    [
        ("job name", NAME_CHARS_MAX),
        ("queue", NAME_CHARS_MAX),
        ("tenant", NAME_CHARS_MAX),
        ("correlation_id", NAME_CHARS_MAX),
        ("idempotency_key", KEY_CHARS_MAX),
        ("tag", TAG_CHARS_MAX),
    ],
)
def test_a_name_has_a_limit(kind: str, chars_max: int) -> None:
    error = ConfigurationError if kind in ("job name", "queue") else BadArguments
    check_name(kind, "ü" * chars_max)
    message = f"the {kind} has {chars_max + 1} characters; the maximum is {chars_max}"
    with pytest.raises(error, match=message):
        check_name(kind, "ü" * (chars_max + 1))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "the queue must not be empty"),
        (5, "the queue must be a str, not int"),
        (None, "the queue must be a str, not NoneType"),
        ("a\0", r"the queue 'a\\x00' contains the character '\\x00', which is not allowed"),
        ("a\ud800", r"contains the character '\\ud800'"),
        ("a\nb", r"contains the character '\\n'"),
        ("a\x1b[31m", r"contains the character '\\x1b'"),
        ("a\x85", r"contains the character '\\x85'"),
        ("a\u2028", r"contains the character '\\u2028'"),
    ],
)
def test_a_name_that_cannot_be_stored_or_shown_is_refused(name: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_name("queue", name)


def test_an_aware_datetime_is_plain() -> None:
    assert (
        encode(x=datetime(2024, 2, 29, 1, 2, 3, 4, UTC)) == b'{"x":"2024-02-29T01:02:03.000004Z"}'
    )
