"""A call that does not fit its handler is refused at enqueue; the worker gets typed values."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast.context
from holdfast.context import Context
from holdfast.domain.codec import Results
from holdfast.domain.errors import (
    BadArguments,
    ConfigurationError,
    PayloadTooLarge,
    UnreadableResult,
)
from holdfast.domain.job import Job
from holdfast.domain.signature import OtherArguments, Signature
from holdfast.domain.states import State

if TYPE_CHECKING:
    from somewhere import Elsewhere  # type: ignore[import-not-found]

ROOM = 256 * 1024


class Size(StrEnum):
    SMALL = "small"


@dataclass
class Item:
    name: str
    price: Decimal
    parts: list[Item] = field(default_factory=list)


@dataclass
class Strict:
    width: int

    def __post_init__(self) -> None:
        if self.width < 0:
            raise KeyError("width")


async def resize(ctx: Context, image: str, width: int = 800, *, mode: str = "fit") -> None: ...


def bind(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bytes:
    return Signature.of(function).bind(args, kwargs, bytes_max=ROOM)


def refusal(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(BadArguments) as raised:
        bind(function, *args, **kwargs)
    return str(raised.value)


def test_arguments_are_bound_as_by_a_call_and_stored_by_name() -> None:
    assert bind(resize, "a.png") == b'{"image":"a.png"}'
    assert bind(resize, "a.png", 640) == b'{"image":"a.png","width":640}'
    assert bind(resize, width=640, image="a.png") == b'{"width":640,"image":"a.png"}'
    assert bind(resize, "a.png", mode="fill") == b'{"image":"a.png","mode":"fill"}'


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "resize: missing required argument image"),
        (("a", 1, "fit"), {}, "resize: takes 2 positional arguments, but 3 were given"),
        (("a",), {"image": "b"}, "resize: got multiple values for argument image"),
        (("a",), {"widht": 1}, "resize: got an unexpected argument widht"),
        (("a",), {"ctx": 1}, "resize: got an unexpected argument ctx"),
        (("a", "5"), {}, "resize: argument width: Expected int, got str"),
        (("a", None), {}, "resize: argument width: Expected int, got null"),
        (("a", True), {}, "resize: argument width: Expected int, got bool"),
        (("a", 1.5), {}, "resize: argument width: Expected int, got float"),
        (("a\0",), {}, "resize: $.image: a text with a NUL character can't be stored"),
    ],
)
def test_a_call_that_does_not_fit_is_refused_by_job_and_parameter(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    assert refusal(resize, *args, **kwargs) == message


def test_a_misfit_inside_a_structure_is_refused_at_its_place() -> None:
    def order(items: dict[str, list[Item]]) -> None: ...

    wrong = [Item("a", Decimal(1)), Item("b", "cheap")]  # type: ignore[arg-type]
    assert refusal(order, {"k": wrong}).startswith("order: argument items[...][1].price: ")


def test_a_payload_too_large_stays_that_error() -> None:
    with pytest.raises(PayloadTooLarge, match="resize: the arguments take 300012 bytes"):
        bind(resize, "a" * 300_000)


def test_the_registered_name_is_the_one_in_errors() -> None:
    signature = Signature.of(resize, "images.resize")
    with pytest.raises(BadArguments, match=r"^images\.resize: missing required argument image$"):
        signature.bind((), {}, bytes_max=ROOM)


def typed(
    moment: datetime,
    key: UUID,
    price: Decimal,
    size: Size,
    item: Item,
    tags: set[str],
    pair: tuple[int, float],
    data: bytes,
    choice: Literal["a", "b"],
    small: Annotated[int, msgspec.Meta(lt=10)],
    maybe: int | None,
    free: Any,
    untouched: Any = None,
) -> None: ...


def test_the_worker_loads_the_types_that_were_bound() -> None:
    values = {
        "moment": datetime(2024, 2, 29, 12, tzinfo=UTC),
        "key": UUID(int=7),
        "price": Decimal("1.10"),
        "size": Size.SMALL,
        "item": Item("a", Decimal(2), [Item("b", Decimal(3))]),
        "tags": {"x", "y"},
        "pair": (1, 2.0),
        "data": b"\x00\xff",
        "choice": "b",
        "small": 9,
        "maybe": None,
        "free": {"any": [1, "thing"]},
    }
    signature = Signature.of(typed)
    loaded = signature.load(signature.bind((), values, bytes_max=ROOM))
    assert loaded == values
    assert isinstance(loaded["size"], Size)
    assert refusal(typed, **{**values, "small": 10}).startswith("typed: argument small: ")
    assert refusal(typed, **{**values, "choice": "c"}).startswith("typed: argument choice: ")


@settings(deadline=None)
@given(
    st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.timezones()),  # noqa: DTZ001
    st.uuids(),
    st.decimals(allow_nan=False),
)
def test_typed_arguments_round_trip(moment: datetime, key: UUID, price: Decimal) -> None:
    def handler(moment: datetime, key: UUID, price: Decimal) -> None: ...

    signature = Signature.of(handler)
    stored = signature.bind((moment, key, price), {}, bytes_max=ROOM)
    loaded = signature.load(stored)
    assert loaded.pop("moment").astimezone(UTC) == moment.astimezone(UTC)
    assert loaded == {"key": key, "price": price}


@attrs.define
class Place:
    _name: str
    at: tuple[float, float] = (0.0, 0.0)
    size: str = attrs.field(default="s", validator=attrs.validators.in_("sml"), kw_only=True)
    seen: list[Item] = attrs.field(factory=list, init=False)


class Shape(msgspec.Struct, tag=True):
    places: dict[UUID, Place]


class Dot(msgspec.Struct, tag=True):
    at: datetime


class Row(TypedDict):
    item: Item
    price: NotRequired[Decimal]


class Pair(NamedTuple):
    item: Item
    pieces: int = 1


PLACE = Place("a", (1.0, 2.0))


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Place, PLACE),
        (list[Place | None], [PLACE, None]),
        (dict[str, tuple[Place, ...]], {"a": (PLACE, PLACE)}),
        (dict[UUID, Place], {UUID(int=1): PLACE}),
        (dict[int, dict[date, Item]], {1: {date(2026, 1, 2): Item("a", Decimal(1))}}),
        (dict[Size, list[Item]], {Size.SMALL: []}),
        (Shape | Dot, Shape({UUID(int=1): PLACE})),
        (list[Shape | Dot], [Dot(datetime(2026, 1, 2, tzinfo=UTC)), Shape({})]),
        (Row, {"item": Item("a", Decimal(1)), "price": Decimal("1.5")}),
        (Pair, Pair(Item("a", Decimal(1)))),
        (set[UUID] | None, {UUID(int=1), UUID(int=2)}),
        (date | int, date(2026, 1, 2)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_structures_are_loaded_as_themselves_wherever_they_are(hint: Any, value: object) -> None:
    def handler(it: Any) -> None: ...

    handler.__annotations__ = {"it": hint, "return": hint}
    signature = Signature.of(handler)
    stored = signature.bind((value,), {}, bytes_max=ROOM)
    loaded = signature.load(stored)["it"]
    assert loaded == value
    assert type(loaded) is type(value)
    result = msgspec.json.decode(signature.typed(Results(ROOM)).encode(value))
    assert signature.load_result(ended(result)) == value


def ended(result: object) -> Job:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    return Job(
        id=UUID(int=1),
        name="handler",
        state=State.SUCCEEDED,
        queue="default",
        priority=0,
        arguments={},
        max_attempts=1,
        run_at=now,
        created_at=now,
        result=result,
    )


def test_keys_that_no_annotation_brings_back_are_refused() -> None:
    def handler(known: dict[int, str], free: Any, partly: dict[int, Any]) -> None: ...

    assert bind(handler, {1: "a"}, {}, {}) == b'{"known":{"1":"a"},"free":{},"partly":{}}'
    assert "$.free: the key 1 is" in refusal(handler, {}, {1: "a"}, {})
    assert "$.partly: the key 1 is" in refusal(handler, {}, {}, {1: "a"})
    assert "$.known: two keys become the same text, '1'" in refusal(
        handler, {1: "a", "1": "b"}, 1, {}
    )
    assert refusal(handler, {UUID(int=1): "a"}, {}, {}) == (
        "handler: argument known: Expected int, got str, in a key"
    )


def test_an_attrs_class_that_refuses_itself_is_bad_arguments() -> None:
    def handler(place: Place) -> None: ...

    wrong = Place("a")
    wrong.at = ("x",)  # type: ignore[assignment]
    assert refusal(handler, wrong) == "handler: argument place.at[0]: Expected float, got str"
    with pytest.raises(BadArguments) as caught:
        Signature.of(handler).load(b'{"place":{"_name":"a","size":"secret"}}')
    # Without the words of attrs, which repeat the value.
    assert str(caught.value) == "handler: argument place: refused by a validator (ValueError)"


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        ([{"name": "a"}], "Object missing required field price - at $[0]"),
        ("a", "Expected array, got str"),
        (None, "Expected array, got null"),
    ],
)
def test_a_result_of_another_type_is_not_passed_off_as_this_one(
    stored: object, reason: str
) -> None:
    def handler() -> list[Item]: ...  # type: ignore[empty-body]

    job = ended(stored)
    with pytest.raises(UnreadableResult) as raised:
        Signature.of(handler).load_result(job)
    assert str(raised.value) == (
        f"the result of job {job.id} (handler) does not fit the handler's type: {reason}"
    )
    assert raised.value.job is job


def test_a_result_without_a_type_is_returned_as_it_is_stored() -> None:
    async def nothing() -> None: ...
    def free() -> Any: ...
    def unannotated(): ...  # type: ignore[no-untyped-def]
    def unresolved() -> Elsewhere: ...

    for handler in (nothing, free, unannotated, unresolved):
        assert Signature.of(handler).load_result(ended({"a": 1})) == {"a": 1}


def test_the_result_of_a_plain_function_that_returns_a_coroutine_is_what_it_awaits() -> None:
    def handler() -> Coroutine[Any, Any, Pair]: ...  # type: ignore[empty-body]

    loaded = Signature.of(handler).load_result(ended([{"name": "a", "price": "1"}, 2]))
    assert loaded == Pair(Item("a", Decimal(1)), 2)


def test_a_result_that_cannot_be_loaded_is_refused_when_it_is_registered() -> None:
    def path() -> Path: ...  # type: ignore[empty-body]
    def unclear() -> str | datetime: ...  # type: ignore[empty-body]

    for handler in (path, unclear):
        with pytest.raises(ConfigurationError, match=r"its result \(annotate it with Any to get"):
            Signature.of(handler)


def test_defaults_are_left_to_the_code_that_runs_the_job() -> None:
    nothing = object()

    def handler(image: str, width: int = 800, extra: Any = nothing) -> tuple[str, int, Any]:
        return image, width, extra

    signature = Signature.of(handler)
    loaded = signature.load(signature.bind(("a",), {}, bytes_max=ROOM))
    assert loaded == {"image": "a"}
    assert handler(**loaded) == ("a", 800, nothing)
    with pytest.raises(BadArguments, match=r"handler: \$\.extra: an object of type object"):
        signature.bind(("a",), {"extra": nothing}, bytes_max=ROOM)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"image":5}', "argument image: Expected str, got int"),
        (b'["a"]', "the arguments don't fit the handler: Expected object, got array"),
        (b'{"image":"a","width":1e400}', "argument width: "),
        (b'{"image', "the arguments can't be read: "),
        (b"\xff", "the arguments can't be read: "),
        (b"", "the arguments can't be read: "),
        (b'{"image":"\\ud800"}', "the arguments can't be read: "),
        (b'{"image":' + b"[" * 100_000, "argument image: Expected str, got array"),
    ],
    ids=lambda value: str(value[:30]),
)
def test_stored_arguments_that_do_not_fit_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(BadArguments, match="^" + re.escape(f"resize: {message}")):
        Signature.of(resize).load(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"image":"a","size":1}', "has no argument 'size'"),
        (b'{"image":"a","size":1,"a\\nb":2}', "has no argument 'size', 'a\\nb'"),
        (b'{"image":5,"size":1}', "has no argument 'size'"),
        (b'{"width":1}', "needs argument 'image'"),
        (b'{"picture":"a"}', "has no argument 'picture' and needs argument 'image'"),
    ],
    ids=lambda value: str(value[:30]),
)
def test_stored_arguments_of_other_names_are_told_from_bad_ones(data: bytes, reason: str) -> None:
    signature = Signature.of(resize)
    for refuse in (signature.load, signature.check_names):
        with pytest.raises(OtherArguments) as raised:
            refuse(data)
        assert str(raised.value) == f"{signature} {reason}"


@pytest.mark.parametrize("data", [b'{"image":5}', b'["a"]', b'{"image', b"\xff", b""])
def test_bad_arguments_are_not_taken_for_those_of_another_version(data: bytes) -> None:
    with pytest.raises(BadArguments) as raised:
        Signature.of(resize).load(data)
    assert type(raised.value) is BadArguments


def test_stored_arguments_nested_too_deep_are_refused() -> None:
    def handler(free: Any) -> None: ...

    with pytest.raises(
        BadArguments, match="handler: the arguments can't be read: maximum recursion"
    ):
        Signature.of(handler).load(b'{"free":' + b"[" * 100_000)


def test_a_structure_that_refuses_itself_is_bad_arguments() -> None:
    def handler(box: Strict) -> None: ...

    with pytest.raises(BadArguments, match=r"handler: .*'width'"):
        Signature.of(handler).load(b'{"box":{"width":-1}}')


def test_a_handler_without_parameters_takes_none() -> None:
    def tick() -> None: ...

    signature = Signature.of(tick)
    assert signature.bind((), {}, bytes_max=2) == b"{}"
    assert signature.load(b"{}") == {}
    assert refusal(tick, 1) == "tick: takes 0 positional arguments, but 1 were given"


def test_the_context_is_told_by_its_name_or_its_type() -> None:
    class Own(Context):
        pass

    def by_name(ctx, a): ...  # type: ignore[no-untyped-def]
    def by_type(job: Context, a: int) -> None: ...
    def by_module(job: holdfast.context.Context, a: int) -> None: ...
    def by_position(ctx: Context, /, a: int) -> None: ...
    def by_words(job: somewhere.Context, a: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def by_subclass(job, a): ...  # type: ignore[no-untyped-def]
    def without(a: int) -> None: ...

    by_subclass.__annotations__["job"] = Own
    for handler in (by_name, by_type, by_module, by_position, by_words, by_subclass):
        signature = Signature.of(handler)
        assert signature.takes_context, handler
        assert signature.parameters == ("a",)
    assert not Signature.of(without).takes_context


def test_async_handlers_are_told_from_sync_ones() -> None:
    class Handler:
        async def __call__(self, a: int) -> None: ...

        def method(self, a: int) -> None: ...

    async def handler(a: int, b: int) -> None: ...
    def sync(a: int) -> None: ...

    for each in (handler, Handler(), functools.partial(handler, b=1)):
        assert Signature.of(each).is_async, each
    for other in (sync, Handler().method, functools.partial(sync)):
        assert not Signature.of(other).is_async, other
    assert bind(Handler(), 1) == bind(Handler().method, 1) == b'{"a":1}'
    assert refusal(Handler(), "1") == "Handler: argument a: Expected int, got str"


def test_annotations_under_a_decorator_are_seen() -> None:
    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> None:
            function(*args, **kwargs)

        return wrapper

    for decorated in (decorate(plain), functools.lru_cache(plain)):
        assert refusal(decorated, "big") == "plain: argument size: Invalid enum value 'big'"


def plain(size: Size) -> None: ...


def test_an_annotation_that_cannot_be_resolved_counts_as_any() -> None:
    def handler(width: int, thing: Elsewhere) -> None: ...

    assert bind(handler, 1, [1, "x"]) == b'{"width":1,"thing":[1,"x"]}'
    assert refusal(handler, "1", 2) == "handler: argument width: Expected int, got str"


def variadic(*images: str) -> None: ...
def keywords(**options: str) -> None: ...
def by_position_only(ctx: Context, image: str, /) -> None: ...
def path(file: Path) -> None: ...
def nested_path(files: dict[str, list[Path | None]]) -> None: ...
def callback(call: Callable[[], None]) -> None: ...
def unclear(moment: str | datetime) -> None: ...
def late(a: int, job: Context) -> None: ...
def keyword_context(*, ctx: Context) -> None: ...
def generator(a: int) -> Any:
    yield a


async def async_generator(a: int) -> Any:
    yield a


class Shop:
    def sell(self, item: str) -> None: ...

    @classmethod
    def open(cls, name: str) -> None: ...

    @staticmethod
    def close(name: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (variadic, "variadic: takes *images; a job takes named parameters only"),
        (keywords, "keywords: takes **options; a job takes named parameters only"),
        (by_position_only, "by_position_only: takes image by position only"),
        (path, "path: parameter file: the type Path can't be read from JSON"),
        (nested_path, "nested_path: parameter files: the type Path can't be read from JSON"),
        (callback, "callback: parameter call: "),
        (unclear, "unclear: parameter moment: its type can't be stored: Type unions may not"),
        (late, "late: the context job must come first"),
        (keyword_context, "keyword_context: the context ctx must be positional"),
        (generator, "generator: a handler returns its result; it can't be a generator"),
        (async_generator, "async_generator: a handler returns its result"),
        (Item, "Item: a handler is a function"),
        (Shop.sell, "sell: a method can't be a job, because workers don't have its object"),
        (Shop.__dict__["open"], "open: a method can't be a job"),
    ],
)
def test_a_handler_that_cannot_work_is_refused_when_it_is_registered(
    function: Callable[..., Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Signature.of(function)
    assert str(raised.value).startswith(message)


def test_what_needs_no_object_is_no_method() -> None:
    def inner(self: int) -> None: ...

    assert bind(inner, 1) == b'{"self":1}'
    assert bind(Shop.close, "ada") == bind(Shop.open, "ada") == b'{"name":"ada"}'
    assert bind(Shop().sell, "tea") == b'{"item":"tea"}'
