"""A job's JSON Schemas accept what its handler accepts, and nothing of another type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import attrs
import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from holdfast import Context, Holdfast, JobSchemas
from holdfast.domain.errors import BadArguments
from holdfast.domain.schemas import describe
from holdfast.domain.signature import Signature

ROOM = 256 * 1024


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 3


@dataclass
class Item:
    """Something to sell."""

    name: str
    count: int = 1
    parts: list[Item] = field(default_factory=list)


@attrs.define
class Place:
    x: float
    y: float | None = None


class Shape(msgspec.Struct, tag="shape", forbid_unknown_fields=True):
    sides: Annotated[int, msgspec.Meta(ge=3)]


class Dot(msgspec.Struct, tag="dot"):
    at: Place


class Row(TypedDict, total=False):
    id: int
    label: str


class Point(NamedTuple):
    x: int
    y: int = 0


class Line(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    sku: str
    count: int = Field(default=1, ge=0)
    color: Color | None = None


class Basket(BaseModel):
    model_config = ConfigDict(strict=True)

    lines: list[Line]
    above: Basket | None = None


# Each type with some values that JSON has for it.
TYPES: dict[str, tuple[Any, list[Any]]] = {
    "int": (int, [0, -5]),
    "float": (float, [0.5, 3]),
    "str": (str, ["", "a"]),
    "bool": (bool, [True]),
    "optional": (int | None, [None, 7]),
    "scalars": (int | str | None, [1, "a", None]),
    "list": (list[int], [[], [1, 2]]),
    "dict": (dict[str, bool], [{}, {"a": True}]),
    "tuple": (tuple[int, str], [[1, "a"]]),
    "tuple of any length": (tuple[float, ...], [[], [1.5, 2]]),
    "literal": (Literal["a", "b", 3], ["a", 3]),
    "text enum": (Color, ["red"]),
    "number enum": (Level, [1, 3]),
    "bounded": (Annotated[int, msgspec.Meta(gt=2, le=9)], [3, 9]),
    "dataclass": (Item, [{"name": "a"}, {"name": "a", "parts": [{"name": "b", "count": 2}]}]),
    "dataclasses": (dict[str, list[Item]], [{"a": [{"name": "b"}]}]),
    "attrs": (Place, [{"x": 1.5}, {"x": 1, "y": None}]),
    "structs": (Shape | Dot, [{"type": "shape", "sides": 3}, {"type": "dot", "at": {"x": 1}}]),
    "typed dict": (Row, [{}, {"id": 1}, {"label": "a"}]),
    "named tuple": (Point, [[1, 2], [1]]),
    "model": (Line, [{"sku": "a"}, {"sku": "a", "count": 3, "color": "red"}]),
    "models": (list[Basket], [[], [{"lines": [{"sku": "a"}], "above": {"lines": []}}]]),
    "free": (Any, [None, {"a": [1]}]),
    "object": (dict[str, object], [{}, {"a": [1]}]),
}

# Without floats that are whole (JSON Schema takes them for integers) or of more than 64 bits.
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(-1e6, 1e6).filter(lambda number: not number.is_integer())
    | st.sampled_from(["", "a", "b", "red", "shape", "dot", "1"])
)
names = st.sampled_from(["a", "1", "sku", "name", "count", "x", "y", "type", "sides", "id", "at"])
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """The value, or a copy with something inside replaced, added or left out."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 3)) == 0:
        return draw(anything)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = draw(st.sampled_from(keys))
    copy: Any = value.copy()
    match draw(st.sampled_from(["inside", "without", "more"])):
        case "inside":
            copy[key] = draw(changed(value[key]))
        case "without":
            del copy[key]
        case "more" if isinstance(copy, dict):
            copy[draw(names)] = draw(anything)
        case _:
            copy.append(draw(anything))
    return copy


def signature_of(hint: Any, result: Any = None) -> Signature:
    def handler(it: Any) -> None: ...

    handler.__annotations__ = {"it": hint, "return": result}
    return Signature.of(handler)


def validator(schema: dict[str, Any]) -> Callable[[Any], bool]:
    jsonschema_rs.meta.validate(schema)
    return jsonschema_rs.Draft202012Validator(schema).is_valid


@pytest.mark.parametrize("kind", TYPES)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_schema_accepts_what_the_signature_accepts(kind: str, data: st.DataObject) -> None:
    hint, samples = TYPES[kind]
    signature = signature_of(hint, hint)
    schemas = describe(signature, None)
    sample = data.draw(st.sampled_from(samples))
    value = data.draw(st.just(sample) | changed(sample))
    try:
        signature.load(msgspec.json.encode({"it": value}))
        accepted = True
    except BadArguments:
        accepted = False
    assert accepted or value is not sample
    assert validator(schemas.arguments)({"it": value}) is accepted
    assert validator(schemas.result)(value) is accepted


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (datetime, datetime.fromisoformat("2026-01-02T03:04:05Z")),
        (date, date(2026, 1, 2)),
        (timedelta, timedelta(days=2, seconds=3)),
        (UUID, UUID(int=7)),
        (Decimal, Decimal("1.50")),
        (bytes, b"\x00\xff"),
        (set[int], {3, 1}),
        (frozenset[Color], frozenset(Color)),
        (dict[UUID, Item], {UUID(int=1): Item("a")}),
        (Item | None, Item("a", parts=[Item("b")])),
        (Shape | Dot, Dot(Place(1.5))),
        (Basket, Basket(lines=[Line(sku="a", color=Color.RED)])),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_stored_fits_its_schema_and_other_types_do_not(hint: Any, value: object) -> None:
    signature = signature_of(hint, hint)
    is_valid = validator(describe(signature, None).arguments)
    stored = msgspec.json.decode(signature.bind((value,), {}, bytes_max=ROOM))
    assert is_valid(stored)
    for other in (True, {"it": 5}, [None], 7.5):
        assert not is_valid({"it": other})
    assert not is_valid({})
    assert not is_valid({**stored, "that": 1})


def test_a_schema_says_what_the_handler_says(local_hf: Holdfast) -> None:
    @local_hf.job(name="shop.sell")
    async def sell(
        ctx: Context,
        item: Item,
        line: Line,
        price: Decimal = Decimal("1.50"),
        until: date | None = None,
        *,
        place: Place = Place(1.0),  # noqa: B008
        color: Color = Color.RED,
        free: Any = object(),  # noqa: B008
    ) -> list[Item]:
        """Sell an item
        to somebody.

        Not part of the summary.

        Args:
            item: What to sell,
                and all its parts.
            price (Decimal): In euros.

        Returns:
            until: is no parameter here.
        """
        return [item]

    assert sell.arguments_schema == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "shop.sell",
        "description": "Sell an item to somebody.",
        "type": "object",
        "properties": {
            "item": {"$ref": "#/$defs/Item", "description": "What to sell, and all its parts."},
            "line": {
                "type": "object",
                "title": "Line",
                "properties": {
                    "sku": {"type": "string", "title": "Sku"},
                    "count": {"type": "integer", "minimum": 0, "default": 1, "title": "Count"},
                    "color": {
                        "anyOf": [{"$ref": "#/$defs/line.Color"}, {"type": "null"}],
                        "default": None,
                    },
                },
                "required": ["sku"],
                "additionalProperties": False,
            },
            "price": {
                "type": "string",
                "format": "decimal",
                "description": "In euros.",
                "default": "1.50",
            },
            "until": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}
            | {"default": None},
            "place": {"$ref": "#/$defs/Place", "default": {"x": 1.0, "y": None}},
            "color": {"$ref": "#/$defs/Color", "default": "red"},
            "free": {},
        },
        "required": ["item", "line"],
        "additionalProperties": False,
        "$defs": {
            "Item": {
                "title": "Item",
                "description": "Something to sell.",
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "count": {"type": "integer", "default": 1},
                    "parts": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
                },
                "required": ["name"],
            },
            "Place": {
                "title": "Place",
                "type": "object",
                "properties": {
                    "x": {"type": "number"},
                    "y": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
                },
                "required": ["x"],
            },
            "Color": {"title": "Color", "enum": ["blue", "red"]},
            "line.Color": {"title": "Color", "type": "string", "enum": ["red", "blue"]},
        },
    }
    assert sell.result_schema["type"] == "array"
    assert sell.result_schema["items"] == {"$ref": "#/$defs/Item"}
    assert list(sell.result_schema["$defs"]) == ["Item"]
    assert local_hf.schemas() == {
        "shop.sell": JobSchemas(sell.arguments_schema, sell.result_schema)
    }


def test_parameters_are_described_in_the_style_of_sphinx_too() -> None:
    def handler(image: str, width: int) -> None:
        """Resize.

        :param image: the path
        :param int width: in pixels
        :returns: nothing
        """

    described = describe(Signature.of(handler), handler.__doc__).arguments["properties"]
    assert described["image"]["description"] == "the path"
    assert described["width"]["description"] == "in pixels"


def test_a_result_without_a_type_may_be_anything() -> None:
    assert describe(signature_of(int, Any), None).result.keys() == {"$schema"}
    assert describe(signature_of(int, None), None).result["type"] == "null"


def test_models_of_the_same_name_are_told_apart() -> None:
    def make(kind: type) -> Any:
        class Line(BaseModel):
            model_config = ConfigDict(strict=True)

            value: kind  # type: ignore[valid-type]

        Line.model_fields["value"].annotation = kind
        Line.model_rebuild(force=True)
        return Line

    def handler(one: Any, other: Any) -> None: ...

    handler.__annotations__ = {"one": list[make(str)], "other": list[make(int)]}  # type: ignore[misc]
    is_valid = validator(describe(Signature.of(handler), None).arguments)
    assert is_valid({"one": [{"value": "a"}], "other": [{"value": 1}]})
    assert not is_valid({"one": [{"value": 1}], "other": [{"value": "a"}]})
