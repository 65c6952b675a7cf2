"""Evaluate an expression that passed the type check, over facts in order.

Arithmetic is decimal with 34 digits, rounding half to even: the same on every machine. So is the
limit on its time, which counts operations, not seconds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import (
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DecimalException,
    DivisionByZero,
    InvalidOperation,
    Overflow,
)
from functools import reduce
from typing import Any

from holdfast_systems.passport.errors import ValidationError
from holdfast_systems.passport.facts import Fact
from holdfast_systems.passport.limits import RULE_STEPS_MAX
from holdfast_systems.passport.rules.syntax import (
    Binary,
    Call,
    Column,
    Expression,
    Literal,
    Name,
    Unary,
)
from holdfast_systems.passport.schema import Kind, Schema

Value = Decimal | str | bool

_ARITHMETIC = Context(
    prec=34,
    rounding=ROUND_HALF_EVEN,
    Emin=-99,
    Emax=99,
    capitals=1,
    clamp=0,
    flags=[],
    traps=[DivisionByZero, InvalidOperation, Overflow],
)

_BINARY: Mapping[str, Callable[[Any, Any], Value]] = {
    "+": _ARITHMETIC.add,
    "-": _ARITHMETIC.subtract,
    "*": _ARITHMETIC.multiply,
    "/": _ARITHMETIC.divide,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "and": lambda left, right: left and right,
    "or": lambda left, right: left or right,
}


class Evaluator:
    """Holds the facts of one passport, and the fields computed so far."""

    def __init__(self, schema: Schema, facts: Sequence[Fact]) -> None:
        self._schema = schema
        self._facts = facts
        self._steps_left = RULE_STEPS_MAX
        self.fields: dict[str, Value] = {}

    def value(self, expression: Expression) -> Value:
        try:
            found = self._find(expression)
        except DecimalException as error:
            is_division = isinstance(error, DivisionByZero)
            problem = "division by zero" if is_division else "the number is too large or undefined"
            raise ValidationError(problem) from None
        assert not isinstance(found, list)
        return found

    def _find(self, expression: Expression) -> Value | list[Value]:
        match expression:
            case Literal(value):
                return value
            case Name(name):
                return self.fields[name]
            case Column(fact_type, field):
                return self._column(fact_type, field)
            case Unary("-", operand):
                return self._spread(_ARITHMETIC.minus, self._find(operand))
            case Unary(_, operand):
                return self._spread(operator.not_, self._find(operand))
            case Binary(sign, left, right):
                return self._spread(_BINARY[sign], self._find(left), self._find(right))
            case Call():
                return self._call(expression)

    def _column(self, fact_type: str, field: str) -> list[Value]:
        self._spend(len(self._facts))
        is_number = self._schema.kind_of(field) is Kind.NUMBER
        cells = [fact.payload[field] for fact in self._facts if fact.fact_type == fact_type]
        return [Decimal(cell) if is_number else cell for cell in cells]

    def _call(self, call: Call) -> Value | list[Value]:
        first = self._find(call.arguments[0])
        if call.function == "round":
            places = call.arguments[1]
            assert isinstance(places, Literal)
            step = Decimal(1).scaleb(-int(places.value))
            return self._spread(lambda number: _ARITHMETIC.quantize(number, step), first)
        values = first if isinstance(first, list) else [first]
        self._spend(len(values))
        if call.where is not None:
            chosen = self._find(call.where)
            pairs = zip(values, chosen if isinstance(chosen, list) else [], strict=True)
            values = [value for value, is_chosen in pairs if is_chosen]
        return _aggregate(call.function, values)

    def _spread(
        self, function: Callable[..., Value], *operands: Value | list[Value]
    ) -> Value | list[Value]:
        """Apply a function to single values, or fact by fact; a single value applies to every
        fact."""
        lengths = {len(operand) for operand in operands if isinstance(operand, list)}
        if not lengths:
            self._spend(1)
            return function(*operands)
        (length,) = lengths
        self._spend(length)
        columns = [each if isinstance(each, list) else [each] * length for each in operands]
        return [function(*row) for row in zip(*columns, strict=True)]

    def _spend(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise ValidationError(
                f"the rules take more than {RULE_STEPS_MAX:,} steps with these facts"
            )


def _aggregate(function: str, values: list[Any]) -> Value:
    match function:
        case "sum":
            return reduce(_ARITHMETIC.add, values, Decimal(0))
        case "count":
            return Decimal(len(values))
        case "any":
            return any(values)
        case "all":
            return all(values)
    if not values:
        raise ValidationError(f"{function} of no facts")
    least_or_most: Value = min(values) if function == "min" else max(values)
    return least_or_most
