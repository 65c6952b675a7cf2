"""Check the types of expressions, before any fact is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from holdfast_systems.passport.errors import RuleTypeError
from holdfast_systems.passport.limits import NUMBER_PLACES_MAX
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


class Type(NamedTuple):
    """One value, or one for every fact of a type."""

    kind: Kind
    over: str | None = None

    def __str__(self) -> str:
        return f"{self.kind} of every {self.over}" if self.over else self.kind.value


# What each function takes of every fact (None: anything), and what it returns.
AGGREGATES: Mapping[str, tuple[Kind | None, Kind]] = {
    "sum": (Kind.NUMBER, Kind.NUMBER),
    "min": (Kind.NUMBER, Kind.NUMBER),
    "max": (Kind.NUMBER, Kind.NUMBER),
    "count": (None, Kind.NUMBER),
    "any": (Kind.BOOLEAN, Kind.BOOLEAN),
    "all": (Kind.BOOLEAN, Kind.BOOLEAN),
}


class Checker:
    """Finds types, and remembers the fields declared so far and the fact types used."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._fields: dict[str, Kind] = {}
        self.fact_types: set[str] = set()

    def declare(self, name: str, kind: Kind) -> None:
        self._fields[name] = kind

    def scalar(self, expression: Expression) -> Kind:
        """Find the type of a whole rule, which must be one value."""
        kind, over = self.find(expression)
        if over is not None:
            _refuse(f"a rule must give one value, not one for every {over}: use sum, any, ...")
        return kind

    def find(self, expression: Expression) -> Type:
        match expression:
            case Literal(value):
                return Type(_kind_of(value))
            case Name(name):
                if name not in self._fields:
                    _refuse(f"no earlier field {name!r}")
                return Type(self._fields[name])
            case Column(fact_type, field):
                return self._column(fact_type, field)
            case Unary(sign, operand):
                expected = Kind.NUMBER if sign == "-" else Kind.BOOLEAN
                return self._expect(expected, operand, sign)
            case Binary(sign, left, right):
                return self._binary(sign, left, right)
            case Call():
                return self._call(expression)

    def _column(self, fact_type: str, field: str) -> Type:
        kind = self._schema.kind_of(field) if fact_type == self._schema.fact_type else None
        if kind is None:
            _refuse(f"{self._schema.version} has no {fact_type}.{field}")
        self.fact_types.add(fact_type)
        return Type(kind, fact_type)

    def _binary(self, sign: str, left: Expression, right: Expression) -> Type:
        first, second = self.find(left), self.find(right)
        if first.over and second.over and first.over != second.over:
            _refuse(f"{sign} can't combine every {first.over} with every {second.over}")
        over = first.over or second.over
        if first.kind != second.kind:
            _refuse(f"{sign} can't take {first} and {second}")
        if sign in ("==", "!="):
            return Type(Kind.BOOLEAN, over)
        expected = Kind.BOOLEAN if sign in ("and", "or") else Kind.NUMBER
        if first.kind != expected:
            _refuse(f"{sign} takes {expected}, not {first.kind}")
        return Type(Kind.BOOLEAN if sign in ("<", "<=", ">", ">=") else expected, over)

    def _call(self, call: Call) -> Type:
        if call.function == "round":
            return self._round(call)
        if call.function not in AGGREGATES:
            _refuse(f"no function {call.function!r}")
        takes, gives = AGGREGATES[call.function]
        if len(call.arguments) != 1:
            _refuse(f"{call.function} takes one argument")
        kind, over = self.find(call.arguments[0])
        if over is None:
            _refuse(f"{call.function} takes a value of every fact, not a single one")
        if takes not in (None, kind):
            _refuse(f"{call.function} takes {takes}, not {kind}")
        if call.where is not None and self.find(call.where) != Type(Kind.BOOLEAN, over):
            _refuse(f"where takes a boolean of every {over}")
        return Type(gives)

    def _round(self, call: Call) -> Type:
        if len(call.arguments) != 2 or call.where is not None:
            _refuse("round takes a number and the number of places")
        if not _is_places(call.arguments[1]):
            _refuse(f"round takes 0 to {NUMBER_PLACES_MAX} places, as a literal")
        return self._expect(Kind.NUMBER, call.arguments[0], "round")

    def _expect(self, kind: Kind, operand: Expression, taker: str) -> Type:
        found = self.find(operand)
        if found.kind != kind:
            _refuse(f"{taker} takes {kind}, not {found}")
        return found


def _kind_of(value: object) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOLEAN
    return Kind.TEXT if isinstance(value, str) else Kind.NUMBER


def _is_places(expression: Expression) -> bool:
    return (
        isinstance(expression, Literal)
        and _kind_of(expression.value) is Kind.NUMBER
        and expression.value in range(NUMBER_PLACES_MAX + 1)
    )


def _refuse(text: str) -> NoReturn:
    raise RuleTypeError(text)
