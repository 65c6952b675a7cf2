"""Handlers get arguments of the types they ask for, and callers results of those they return."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field

from holdfast import (
    BadArguments,
    Context,
    Holdfast,
    IdempotencyConflict,
    Job,
    JobFailed,
    Retry,
    State,
    UnreadableResult,
)

Value = Any


class Color(StrEnum):
    RED = "red"


@dataclass
class Item:
    name: str
    price: Decimal


@attrs.frozen
class Place:
    x: float
    at: datetime


class Shape(msgspec.Struct, tag=True):
    sides: int


class Dot(msgspec.Struct, tag=True):
    place: Place


class Row(TypedDict):
    id: UUID
    items: list[Item]


class Pair(NamedTuple):
    item: Item
    day: date


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: str = Field(alias="cardNumber")


class Cash(BaseModel):
    kind: Literal["cash"] = "cash"
    amount: Decimal


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: UUID
    paid: Annotated[Card | Cash, Field(discriminator="kind")]
    tags: set[str] = set()


@dataclass
class Parcel:
    order: Order
    label: bytes


ITEM = Item("tea", Decimal("1.50"))
PLACE = Place(1.5, datetime(2026, 1, 2, tzinfo=UTC))
ORDER = Order(id=UUID(int=7), paid=Card(cardNumber="4711"), tags={"b", "a"})
VALUES: list[tuple[Any, Value]] = [
    (Item, ITEM),
    (Place, PLACE),
    (Shape | Dot, Dot(PLACE)),
    (Row, {"id": UUID(int=1), "items": [ITEM]}),
    (Pair, Pair(ITEM, date(2026, 1, 2))),
    (dict[UUID, tuple[Item, Color] | None], {UUID(int=1): (ITEM, Color.RED), UUID(int=2): None}),
    (Order, ORDER),
    (dict[str, list[Order]], {"a": [ORDER]}),
    (Order | None, None),
    (Card | Cash, Cash(amount=Decimal(3))),
]


@pytest.mark.parametrize(
    ("hint", "value"), VALUES, ids=lambda value: getattr(value, "__name__", "")
)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_arguments_and_results_keep_their_types(
    hf: Holdfast, hint: Any, value: Value, is_async: bool
) -> None:
    seen: list[Value] = []

    async def handle(it: Any) -> Any:
        seen.append(it)
        return it

    def handle_plain(it: Any) -> Any:
        seen.append(it)
        return it

    handler = handle if is_async else handle_plain
    handler.__annotations__ = {"it": hint, "return": hint}
    job = await hf.job(name="handle")(handler).enqueue(value)
    await hf.run_due()
    for result in (*seen, await hf.result(job), await hf.result(job.id)):
        assert result == value
        assert type(result) is type(value)


async def test_a_result_that_a_handler_sets_in_its_transaction_keeps_its_type(
    hf: Holdfast,
) -> None:
    @hf.job
    async def ship(ctx: Context, order: Order) -> Parcel | None:
        async with ctx.completing():
            ctx.set_result(Parcel(order, b"label"))
        return None

    job = await ship.enqueue(ORDER)
    await hf.run_due()
    assert await hf.result(job) == Parcel(ORDER, b"label")


async def test_a_result_that_does_not_fit_its_model_fails_the_job(hf: Holdfast) -> None:
    @hf.job
    async def ship() -> Order:
        return {"id": 5}  # type: ignore[return-value]

    job = await ship.enqueue()
    await hf.run_due()
    with pytest.raises(JobFailed, match=r"UNSTORABLE_RESULT: .*\$\.id: ") as raised:
        await hf.result(job)
    assert raised.value.job.state is State.FAILED


async def test_a_result_of_older_code_is_told_from_one_that_fits(hf: Holdfast) -> None:
    @hf.job
    async def ship() -> Item:
        return ["tea"]  # type: ignore[return-value]

    job = await ship.enqueue()
    await hf.run_due()
    with pytest.raises(UnreadableResult, match="Expected object, got array") as raised:
        await hf.result(job)
    assert raised.value.job.result == ["tea"]


async def test_a_job_that_this_object_does_not_define_has_its_result_as_stored(
    hf: Holdfast, store_url: str
) -> None:
    @hf.job
    async def ship() -> Item:
        return ITEM

    job = await ship.enqueue()
    await hf.run_due()
    async with Holdfast(store_url) as other:
        assert await other.result(job.id) == {"name": "tea", "price": "1.50"}


async def test_an_old_name_of_a_job_has_its_type(hf: Holdfast, store_url: str) -> None:
    async with Holdfast(store_url) as older:

        @older.job(name="send")
        async def send() -> Item:
            return ITEM

        job: Job[Item] = await send.enqueue()

    @hf.job(aliases=["send"])
    async def ship() -> Item:
        return ITEM

    await hf.run_due()
    assert await hf.result(job) == ITEM


async def test_models_that_are_equal_are_one_request(hf: Holdfast) -> None:
    @hf.job
    async def ship(order: Order) -> None: ...

    keyed = ship.options(idempotency_key="k")
    same = Order.model_validate(
        {"tags": ["a", "b", "a"], "paid": {"kind": "card", "cardNumber": "4711"}, "id": ORDER.id}
    )
    assert (await keyed.enqueue(ORDER)).id == (await keyed.enqueue(same)).id
    with pytest.raises(IdempotencyConflict):
        await keyed.enqueue(ORDER.model_copy(update={"tags": {"a"}}))


async def test_a_breaker_sees_the_model(hf: Holdfast) -> None:
    @hf.job(breaker=lambda order: order.paid.kind)
    async def ship(order: Order) -> None: ...

    assert (await ship.enqueue(ORDER)).breaker == "card"


async def test_stored_arguments_that_no_longer_fit_fail_the_job_by_name(
    hf: Holdfast, store_url: str
) -> None:
    async with Holdfast(store_url) as other:

        @other.job
        async def ship(order: dict[str, Any]) -> None: ...

        job = await ship.enqueue({"id": str(UUID(int=1)), "paid": {"kind": "cash"}})

    @hf.job(name="ship", retry=Retry.none)
    async def ship_models(order: Order) -> None: ...

    await hf.run_due()
    found = await hf.get(job.id)
    assert (found.state, found.error_code) == (State.FAILED, "BAD_ARGUMENTS")
    assert found.error_text == "ship: argument order.paid.cash.amount: is missing"


async def test_a_call_that_does_not_fit_stores_nothing(hf: Holdfast) -> None:
    @hf.job
    async def ship(order: Order) -> None: ...

    with pytest.raises(BadArguments, match=r"ship: argument order\.paid: Input tag 'gold' found"):
        await ship.enqueue({"id": UUID(int=1), "paid": {"kind": "gold"}})  # type: ignore[arg-type]
    assert await hf.jobs.counts() == []


async def test_a_direct_call_is_a_plain_call(local_hf: Holdfast) -> None:
    @local_hf.job
    def double(number: int) -> int:
        """Double a number."""
        return number * 2

    assert double(3) == 6
    text: Any = "3"
    assert repr(double(text)) == "'33'"
    assert (double.__name__, double.__doc__) == ("double", "Double a number.")
