"""Pydantic's types are stored exactly and loaded as themselves, or refused with a reason."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID, uuid4

import attrs
import msgspec
import pydantic
import pytest
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    RootModel,
    SecretStr,
    computed_field,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from holdfast.domain.codec import Results, body_hash
from holdfast.domain.errors import BadArguments, ConfigurationError, UnstorableValue
from holdfast.domain.signature import OtherArguments, Signature

ROOM = 256 * 1024
T = TypeVar("T")


class Line(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sku: str
    price: Decimal = Decimal(1)
    tags: frozenset[str] = frozenset()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def shown(self) -> str:
        return f"{self.sku} at {self.price}"


class Order(BaseModel):
    id: UUID = Field(alias="orderId")
    lines: list[Line]
    placed: date | None = None
    by_sku: dict[str, Line] = {}
    above: Order | None = None


class Named(BaseModel):
    """The alias of one field is the name of the other, and what is read is not what is written."""

    title: str = Field(alias="name")
    name: str = Field(
        validation_alias=AliasChoices("title", AliasPath("names", 0)), serialization_alias="label"
    )


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    lives: int


class Box(BaseModel, Generic[T]):
    inside: T


class Numbers(RootModel[set[int]]):
    pass


class Connected(BaseModel):
    host: str
    _client: object = PrivateAttr(default_factory=object)


@pydantic.dataclasses.dataclass
class Checked:
    width: int = Field(gt=0)


@dataclass
class Parcel:
    line: Line
    raw: bytes
    notes: list[str] = field(default_factory=list)


class Pair(NamedTuple):
    line: Line
    pieces: int


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
ORDER = Order(
    orderId=UUID(int=7),
    lines=[Line(sku="a", price=Decimal("1.10"), tags=frozenset("xyz"))],
    placed=date(2026, 1, 2),
    by_sku={"b": Line(sku="b")},
    above=Order(orderId=UUID(int=8), lines=[]),
)


def signature_of(hint: Any, result: Any = None) -> Signature:
    def handler(it: Any) -> None: ...

    handler.__annotations__ = {"it": hint, "return": result}
    return Signature.of(handler)


def bind(hint: Any, value: object) -> bytes:
    return signature_of(hint).bind((value,), {}, bytes_max=ROOM)


def refusal(hint: Any, value: object) -> str:
    with pytest.raises(BadArguments) as raised:
        bind(hint, value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Order, ORDER),
        (list[Order], [ORDER, ORDER]),
        (dict[UUID, Order], {UUID(int=1): ORDER}),
        (tuple[Order, int], (ORDER, 3)),
        (Order | None, None),
        (Order | None, ORDER),
        (Named, Named.model_validate({"name": "a title", "title": "a name"})),
        (Pet, Dog(lives=3)),
        (dict[str, list[Pet]], {"a": [Cat(lives=9), Dog(lives=1)]}),
        (Box[list[Cat]], Box[list[Cat]](inside=[Cat(lives=1)])),
        (Numbers, Numbers({3, 1})),
        (Checked, Checked(width=3)),
        (Parcel, Parcel(Line(sku="a"), b"text", ["n"])),
        (Pair, Pair(Line(sku="a"), 2)),
        (Line | Parcel, Parcel(Line(sku="a"), b"")),
        (pydantic.HttpUrl, pydantic.HttpUrl("https://example.com/")),
        (Annotated[int, Field(gt=0)], 5),
        (pydantic.AwareDatetime, datetime.fromisoformat("2026-01-02T03:04:05+02:00")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_worker_loads_what_was_enqueued(hint: Any, value: object) -> None:
    signature = signature_of(hint, hint)
    stored = signature.bind((value,), {}, bytes_max=ROOM)
    loaded = signature.load(stored)["it"]
    assert loaded == value
    assert type(loaded) is type(value)
    encoded = signature.typed(Results(ROOM)).encode(value)
    assert msgspec.json.decode(encoded) == msgspec.json.decode(stored)["it"]


def test_models_are_stored_by_the_names_of_their_fields_without_computed_ones() -> None:
    assert msgspec.json.decode(bind(Order, ORDER))["it"] == {
        "id": str(UUID(int=7)),
        "lines": [{"sku": "a", "price": "1.10", "tags": ["x", "y", "z"]}],
        "placed": "2026-01-02",
        "by_sku": {"b": {"sku": "b", "price": "1", "tags": []}},
        "above": {
            "id": str(UUID(int=8)),
            "lines": [],
            "placed": None,
            "by_sku": {},
            "above": None,
        },
    }


def test_a_dict_is_taken_as_the_model_takes_it_and_stored_alike() -> None:
    given = {"orderId": str(UUID(int=7)), "lines": [{"sku": "a"}]}
    assert bind(Order, given) == bind(Order, Order.model_validate(given))


def test_what_is_changed_after_the_enqueue_is_not_in_the_job() -> None:
    order = ORDER.model_copy(deep=True)
    stored = bind(Order, order)
    order.lines.clear()
    assert signature_of(Order).load(stored)["it"] == ORDER


def test_private_attributes_are_made_anew() -> None:
    value = Connected(host="a")
    loaded = signature_of(Connected).load(bind(Connected, value))["it"]
    assert loaded.host == "a"
    assert loaded._client is not value._client


class Positive(BaseModel):
    width: int

    @field_validator("width")
    @classmethod
    def check_width(cls, width: int) -> int:
        if width < 0:
            raise ValueError("a width is not negative")
        if width == 13:
            raise KeyError("unlucky")
        if width == 14:
            raise PydanticCustomError("even_worse", "a width is not {unlucky}", {"unlucky": 14})
        return width

    @model_validator(mode="after")
    def check_whole(self) -> Positive:
        if self.width == 99:
            raise ValueError("not this one")
        return self


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (Line, {"price": 1}, "argument it.sku: is missing"),
        (Line, {"sku": 5}, "argument it.sku: must be a valid string"),
        (Line, {"sku": "a", "shown": "b"}, "argument it.shown: is not a field of the model"),
        (list[Line], [{"sku": "a"}, {}], "argument it[1].sku: is missing"),
        (Order, {"orderId": 1, "lines": 2}, "argument it.orderId: UUID input should be a string"),
        (dict[str, Line], {"a b": {}}, "argument it['a b'].sku: is missing"),
        (Pet, {"kind": "cow"}, "argument it: Input tag 'cow' found using 'kind' does not match"),
        (Positive, {"width": -1}, "argument it.width: a width is not negative"),
        (Positive, {"width": 13}, "argument it: KeyError: 'unlucky'"),
        (Positive, {"width": 14}, "argument it.width: a width is not 14"),
        (Positive, {"width": 99}, "argument it: not this one"),
        (Positive, 5, "argument it: must be a valid dictionary or instance of Positive"),
        (Annotated[int, Field(gt=0)], 0, "argument it: must be greater than 0"),
        (Positive, Positive.model_construct(width="x"), "argument it.width: must be a valid int"),
        (Box[Any], Box(inside=object()), "argument it: PydanticSerializationError: Unable to"),
        (Box[float], Box(inside=float("nan")), "$.it.inside: NaN can't be stored in JSON"),
        (Box[int], Box(inside=2**70), "$.it.inside: an integer beyond 64 bits"),
        (Box[str], Box(inside="\0"), "$.it.inside: a text with a NUL character"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_does_not_fit_is_refused_at_its_place(hint: Any, value: object, message: str) -> None:
    assert refusal(hint, value).startswith(f"handler: {message}")


def test_further_misfits_are_counted() -> None:
    assert refusal(Order, {"lines": [{}, {}]}) == (
        "handler: argument it.orderId: is missing (and 2 more)"
    )


class Account(BaseModel):
    user: str
    password: SecretStr
    pin: int = Field(lt=10)


class Revealed(BaseModel):
    password: SecretStr

    @field_serializer("password")
    def reveal(self, password: SecretStr) -> str:
        return password.get_secret_value()


@pytest.mark.parametrize("user", [["sesame"], {"name": "sesame"}, "ann"])
def test_no_error_shows_a_value(user: object) -> None:
    signature = signature_of(Account)
    value = {"user": user, "password": "sesame"}
    data = msgspec.json.encode({"it": value})
    for fails in (
        lambda: signature.bind((value,), {}, bytes_max=ROOM),
        lambda: signature.load(data),
    ):
        with pytest.raises(BadArguments) as raised:
            fails()
        error: BaseException | None = raised.value
        while error is not None:
            assert "sesame" not in str(error)
            error = error.__cause__ or error.__context__


def test_a_secret_is_refused_unless_the_model_reveals_it() -> None:
    account = Account(user="ann", password=SecretStr("sesame"), pin=1)
    assert "argument it.password: is not the same after being stored" in refusal(Account, account)
    assert "sesame" not in refusal(Account, account)
    revealed = Revealed(password=SecretStr("sesame"))
    assert signature_of(Revealed).load(bind(Revealed, revealed))["it"] == revealed


class Stamped(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def stamp(cls, text: str) -> str:
        return f"{text}!"


class Partly(BaseModel):
    kept: int
    dropped: int = Field(default=1, exclude=True)


class Longer(Line):
    length: int = 1


class Same(BaseModel):
    lives: int


class Encoded(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64")

    data: bytes


@pytest.mark.parametrize(
    ("hint", "value", "place"),
    [
        (Stamped, Stamped(text="a"), "it.text"),
        (Partly, Partly(kept=1, dropped=2), "it.dropped"),
        (Line, Longer(sku="a"), "it"),
        (list[Line], [Line(sku="a"), Longer(sku="a")], "it[1]"),
        (Box[Any], Box[Any](inside=(1, 2)), "it.inside"),
        (Box[Any], Box[Any](inside={"a": [UUID(int=1)]}), "it.inside.a[0]"),
        (Parcel, Parcel(Longer(sku="a"), b""), "it.line"),
        (Encoded, Encoded(data=b"text"), "it.data"),
        (dict[str, Box[Same | Cat]], {"a": Box[Same | Cat](inside=Cat(lives=1))}, None),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_would_change_when_it_is_loaded_is_refused(
    hint: Any, value: object, place: str | None
) -> None:
    if place is None:
        assert signature_of(hint).load(bind(hint, value))["it"] == value
    else:
        expected = f"handler: argument {place}: is not the same after being stored and loaded"
        assert refusal(hint, value).startswith(expected)


def test_bytes_that_are_no_text_need_a_model_that_encodes_them() -> None:
    class Both(BaseModel):
        model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

        data: bytes

    assert refusal(Parcel, Parcel(Line(sku="a"), b"\xff")).startswith("handler: argument it: ")
    value = Both(data=b"\xff\x00")
    assert signature_of(Both).load(bind(Both, value))["it"] == value


def test_stored_arguments_that_do_not_fit_are_told_from_those_of_another_version() -> None:
    signature = signature_of(Line)
    with pytest.raises(BadArguments, match=r"^handler: argument it\.sku: is missing$") as raised:
        signature.load(b'{"it":{}}')
    assert type(raised.value) is BadArguments
    with pytest.raises(OtherArguments, match="has no argument 'that' and needs argument 'it'"):
        signature.load(b'{"that":{"sku":"a"}}')


def test_a_default_of_the_signature_is_left_to_the_code_that_runs_the_job() -> None:
    def handler(line: Line = ORDER.lines[0], pet: Pet | None = None) -> None: ...

    handler.__annotations__ = {"line": Line, "pet": Pet | None}
    signature = Signature.of(handler)
    assert signature.bind((), {}, bytes_max=ROOM) == b"{}"
    assert signature.load(b"{}") == {}
    assert signature.load(b'{"pet":{"kind":"cat","lives":9}}') == {"pet": Cat(lives=9)}


class Many(BaseModel):
    names: set[str]
    inner: list[Box[frozenset[str]]]
    rows: deque[set[str]]
    root: RootModel[set[str]]


PROGRAM = """
import tests.domain.test_models as here
names = {"b", "a", "d", "c", "e"}
many = here.Many(
    names=names,
    inner=[here.Box[frozenset[str]](inside=frozenset(names))],
    rows=[names],
    root=here.RootModel[set[str]](names),
)
print(here.bind(here.Many, many).decode())
"""


def test_sets_in_models_are_stored_in_one_order_by_every_process() -> None:
    """The body of an idempotency key is the same, whoever sends it."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(["src", *sys.path])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    five = '["a","b","c","d","e"]'
    assert outputs == {
        f'{{"it":{{"names":{five},"inner":[{{"inside":{five}}}],"rows":[{five}],"root":{five}}}}}\n'
    }


def test_the_body_hash_is_that_of_the_value_however_it_was_given() -> None:
    given = {"lines": [], "orderId": UUID(int=7)}
    hashes = {
        body_hash("n", bind(Order, value))
        for value in (given, Order(lines=[], orderId=UUID(int=7)))
    }
    assert len(hashes) == 1
    assert body_hash("n", bind(Order, {**given, "orderId": uuid4()})) not in hashes


@attrs.define
class Attrs:
    line: Line


class Struct(msgspec.Struct):
    line: Line


class Arbitrary(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    client: threading_lock = None  # type: ignore[name-defined]  # noqa: F821


class Opaque(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    frame: traceback.FrameSummary


@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        (Attrs, "Unable to generate pydantic-core schema for <class 'tests.domain.test_models.At"),
        (Struct, "Unable to generate pydantic-core schema for <class 'tests.domain.test_models.St"),
        (Line | Attrs, "Unable to generate pydantic-core schema"),
        (Arbitrary, "`TypeAdapter[<class 'tests.domain.test_models.Arbitrary'>]` is not fully def"),
        (Opaque, "Cannot generate a JsonSchema for core_schema.IsInstanceSchema"),
        (dict[str, Box[Callable[[], None]]], "Cannot generate a JsonSchema for core_schema.Calla"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_type_that_cannot_work_is_refused_when_it_is_registered(hint: Any, reason: str) -> None:
    which = "Pydantic, which loads its type, can't read it from JSON:"
    with pytest.raises(ConfigurationError) as raised:
        signature_of(hint)
    assert str(raised.value).startswith(f"handler: parameter it: {which} {reason}")
    with pytest.raises(ConfigurationError) as raised:
        signature_of(int, hint)
    assert str(raised.value).startswith("handler: its result (annotate it with Any to get it as")


def test_a_result_that_does_not_fit_cannot_be_stored_unless_it_may_be_replaced() -> None:
    signature = signature_of(int, list[Line])
    results = signature.typed(Results(ROOM))
    assert results.encode([{"sku": "a"}]) == results.encode([Line(sku="a")])
    with pytest.raises(UnstorableValue, match=r"the result can't be stored: \$\[0\].sku: is miss"):
        results.encode([{}])
    with pytest.raises(UnstorableValue, match=r"\$\[0\]: is not the same after being stored"):
        results.encode([Longer(sku="a")])
    replacing = signature.typed(Results(ROOM, replaces=True))
    assert replacing.encode([{}]) == b"[{}]"


def test_pydantic_and_attrs_are_imported_by_those_who_use_them_only() -> None:
    program = """
import dataclasses, sys, holdfast
@dataclasses.dataclass
class Item: name: str
@holdfast.Holdfast("sqlite:///never.db").job
def sell(item: Item) -> Item: return item
sell.call(Item("a")), sell.arguments_schema
print({"pydantic", "attr", "attrs"} & set(sys.modules))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "set()\n"


def test_a_pydantic_that_cannot_load_by_name_is_refused() -> None:
    program = """
import holdfast, pydantic
pydantic.VERSION = "2.10.6"
class Line(pydantic.BaseModel): sku: str
try:
    @holdfast.Holdfast("sqlite:///never.db").job
    def sell(line: Line) -> None: ...
except holdfast.ConfigurationError as error:
    print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.endswith(": it needs Pydantic 2.11 or later, not 2.10.6\n")
