"""The grammar of the rule language, and its parser.

expression := conjunction ("or" conjunction)*
conjunction := negation ("and" negation)*
negation := "not" negation | comparison
comparison := sum (("==" | "!=" | "<" | "<=" | ">" | ">=") sum)?
sum := product (("+" | "-") product)*
product := sign (("*" | "/") sign)*
sign := "-" sign | primary
primary := number | text | "true" | "false" | name | name "." name | "(" expression ")"
         | name "(" expression ["where" expression] ("," expression)* ")"
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from holdfast_systems.passport.errors import ValidationError
from holdfast_systems.passport.limits import (
    EXPRESSION_CHARS_MAX,
    EXPRESSION_DEPTH_MAX,
    EXPRESSION_SIGNS_MAX,
)

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]{1,18}(?:\.[0-9]{1,12})?(?![0-9A-Za-z_.]))"
    r'|(?P<text>"[^"\n]*")'
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>==|!=|<=|>=|[-+*/<>().,]))"
)
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_KEYWORDS = ("and", "or", "not", "where", "true", "false")


@dataclass(frozen=True, slots=True)
class Literal:
    value: Decimal | str | bool


@dataclass(frozen=True, slots=True)
class Name:
    """The value of an earlier field."""

    name: str


@dataclass(frozen=True, slots=True)
class Column:
    """A field of every fact of one type."""

    fact_type: str
    field: str


@dataclass(frozen=True, slots=True)
class Unary:
    sign: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    sign: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple[Expression, ...]
    where: Expression | None = None


Expression = Literal | Name | Column | Unary | Binary | Call


class _Token(NamedTuple):
    kind: str
    text: str
    place: int


def parse(source: str) -> Expression:
    if len(source) > EXPRESSION_CHARS_MAX:
        raise ValidationError(f"an expression can have at most {EXPRESSION_CHARS_MAX} characters")
    return _Parser(source).parse()


def _tokens(source: str) -> list[_Token]:
    found = []
    place = 0
    end = len(source.rstrip())
    while place < end:
        match = _TOKEN.match(source, place)
        if match is None or match.lastgroup is None:
            text = source[place : place + 20]
            raise ValidationError(f"character {place + 1}: unexpected {text!r}")
        text = match[match.lastgroup]
        kind = "sign" if text in _KEYWORDS else match.lastgroup
        found.append(_Token(kind, text, match.start(match.lastgroup)))
        place = match.end()
    # Each sign adds at most one level to the recursion over the expression.
    if sum(token.kind == "sign" for token in found) > EXPRESSION_SIGNS_MAX:
        raise ValidationError(
            f"an expression can have at most {EXPRESSION_SIGNS_MAX} operators and signs"
        )
    return [*found, _Token("end", "", end)]


class _Parser:
    def __init__(self, source: str) -> None:
        self._tokens = _tokens(source)
        self._next = 0
        self._depth = 0

    def parse(self) -> Expression:
        found = self._expression()
        self._expect("end")
        return found

    def _expression(self) -> Expression:
        self._depth += 1
        if self._depth > EXPRESSION_DEPTH_MAX:
            raise ValidationError(
                f"an expression can have at most {EXPRESSION_DEPTH_MAX} levels of nesting"
            )
        found = self._chain(("or",), lambda: self._chain(("and",), self._negation))
        self._depth -= 1
        return found

    def _negation(self) -> Expression:
        return self._prefixed("not", self._comparison)

    def _comparison(self) -> Expression:
        left = self._sum()
        if sign := self._take(*_COMPARISONS):
            return Binary(sign, left, self._sum())
        return left

    def _sum(self) -> Expression:
        return self._chain(("+", "-"), lambda: self._chain(("*", "/"), self._signed))

    def _signed(self) -> Expression:
        return self._prefixed("-", self._primary)

    def _prefixed(self, sign: str, operand: Callable[[], Expression]) -> Expression:
        count = 0
        while self._take(sign):
            count += 1
        found = operand()
        for _ in range(count):
            found = Unary(sign, found)
        return found

    def _chain(self, signs: tuple[str, ...], operand: Callable[[], Expression]) -> Expression:
        found = operand()
        while sign := self._take(*signs):
            found = Binary(sign, found, operand())
        return found

    def _primary(self) -> Expression:
        token = self._tokens[self._next]
        if token.kind == "number":
            self._next += 1
            return Literal(Decimal(token.text))
        if token.kind == "text":
            self._next += 1
            return Literal(token.text[1:-1])
        if word := self._take("true", "false"):
            return Literal(word == "true")
        if self._take("("):
            found = self._expression()
            self._expect(")")
            return found
        return self._named(self._expect("word"))

    def _named(self, name: str) -> Expression:
        if self._take("."):
            return Column(name, self._expect("word"))
        if not self._take("("):
            return Name(name)
        arguments = [self._expression()]
        where = self._expression() if self._take("where") else None
        while self._take(","):
            arguments.append(self._expression())
        self._expect(")")
        return Call(name, tuple(arguments), where)

    def _take(self, *signs: str) -> str | None:
        token = self._tokens[self._next]
        if token.kind != "sign" or token.text not in signs:
            return None
        self._next += 1
        return token.text

    def _expect(self, what: str) -> str:
        token = self._tokens[self._next]
        if what not in (token.kind, token.text) or (token.kind == "text"):
            found = repr(token.text) if token.text else "the end"
            expected = {"word": "a name", "end": "the end"}.get(what, what)
            raise ValidationError(
                f"character {token.place + 1}: expected {expected}, found {found}"
            )
        self._next += 1
        return token.text
