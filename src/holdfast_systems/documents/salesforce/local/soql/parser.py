"""Parse a query by recursive descent."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar, cast

from holdfast_systems.documents.salesforce.local.errors import ApiError
from holdfast_systems.documents.salesforce.local.limits import QUERY_CHARACTERS_MAX, QUERY_DEPTH_MAX
from holdfast_systems.documents.salesforce.local.soql import syntax
from holdfast_systems.documents.salesforce.local.soql.syntax import Value, malformed
from holdfast_systems.documents.salesforce.local.soql.tokens import END, Token, tokens_of

T = TypeVar("T")

KEYWORDS = {
    "SELECT", "FROM", "WHERE", "AND", "OR", "NOT", "IN", "LIKE", "ORDER", "BY", "ASC", "DESC",
    "NULLS", "LIMIT", "OFFSET", "NULL", "TRUE", "FALSE", "GROUP", "HAVING",
}  # fmt: skip
COUNT = re.compile(r"\d{1,9}")
ESCAPE = re.compile(r"\\(.)", re.DOTALL)
ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
SIGNS = {"=": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def parse(text: str) -> syntax.Query:
    """Parse a query, or raise MALFORMED_QUERY with the position of the error."""
    if len(text) > QUERY_CHARACTERS_MAX:
        raise ApiError("MALFORMED_QUERY", "SOQL statements cannot exceed 100000 characters")
    return _Parser(text).query()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(tokens_of(text))
        self._next = 0
        self._depth = 0

    def query(self) -> syntax.Query:
        self._expect_word("SELECT")
        fields = self._selected()
        self._expect_word("FROM")
        entity = self._name()
        where = self._condition() if self._take("WHERE") else None
        order = self._separated(self._order) if self._take("ORDER", "BY") else ()
        limit = self._count() if self._take("LIMIT") else None
        offset = self._count() if self._take("OFFSET") else 0
        if self._token.kind != END:
            raise self._unexpected()
        return syntax.Query(fields, entity, where, order, limit, offset, self._text)

    def _selected(self) -> tuple[syntax.Name, ...]:
        if self._token.is_word("COUNT") and self._tokens[self._next + 1].text == "(":
            self._advance()
            self._expect_mark("(")
            self._expect_mark(")")
            return ()
        return self._separated(self._name)

    def _condition(self) -> syntax.Condition:
        """Read parts joined by AND or by OR; to mix them, SOQL requires parentheses."""
        self._depth += 1
        if self._depth > QUERY_DEPTH_MAX:
            raise malformed(self._text, self._token.column, "the filter is nested too deeply")
        first = self._operand()
        for word, joined in (("AND", syntax.All), ("OR", syntax.Any)):
            parts = [first]
            while self._take(word):
                parts.append(self._operand())
            if len(parts) > 1:
                first = joined(tuple(parts))
                break
        self._depth -= 1
        return first

    def _operand(self) -> syntax.Condition:
        negations = 0
        while self._take("NOT"):
            negations += 1
        if self._take_mark("("):
            part = self._condition()
            self._expect_mark(")")
        else:
            part = self._comparison()
        return syntax.Not(part) if negations % 2 else part

    def _comparison(self) -> syntax.Comparison:
        name = self._name()
        if self._take("NOT", "IN"):
            return syntax.Comparison(name, "NOT IN", self._list())
        if self._take("IN"):
            return syntax.Comparison(name, "IN", self._list())
        if self._token.kind != "operator":
            raise self._unexpected()
        operator = cast(syntax.Operator, SIGNS[self._advance().text])
        return syntax.Comparison(name, operator, (self._value(),))

    def _list(self) -> tuple[Value, ...]:
        self._expect_mark("(")
        values = self._separated(self._value)
        self._expect_mark(")")
        return values

    def _separated(self, read: Callable[[], T]) -> tuple[T, ...]:
        """Read one or more parts, separated by commas."""
        parts = [read()]
        while self._take_mark(","):
            parts.append(read())
        return tuple(parts)

    def _value(self) -> Value:
        token = self._advance()
        try:
            return self._read_value(token)
        except ValueError:
            raise self._unexpected(token) from None

    def _read_value(self, token: Token) -> Value:
        match token.kind:
            case "string":
                return self._unescaped(token)
            case "number":
                return float(token.text)
            case "datetime":
                return datetime.fromisoformat(token.text)
        constants: dict[str, Value] = {"NULL": None, "TRUE": True, "FALSE": False}
        if token.kind == "word" and token.text.upper() in constants:
            return constants[token.text.upper()]
        raise self._unexpected(token)

    def _unescaped(self, token: Token) -> str:
        def replace(found: re.Match[str]) -> str:
            if found[1] not in ESCAPED:
                message = f"Invalid string literal {token.text}. Illegal character sequence"
                raise malformed(self._text, token.column, f"{message} '{found[0]}'")
            return ESCAPED[found[1]]

        return ESCAPE.sub(replace, token.text[1:-1])

    def _order(self) -> syntax.Order:
        name = self._name()
        descending = self._take("DESC")
        if not descending:
            self._take("ASC")
        nulls_last = self._take("NULLS", "LAST")
        if not nulls_last:
            self._take("NULLS", "FIRST")
        return syntax.Order(name, descending, nulls_last)

    def _count(self) -> int:
        token = self._advance()
        if token.kind != "number" or not COUNT.fullmatch(token.text):
            raise self._unexpected(token)
        return int(token.text)

    def _name(self) -> syntax.Name:
        token = self._advance()
        if token.kind != "word" or token.text.upper() in KEYWORDS:
            raise self._unexpected(token)
        return syntax.Name(token.text, token.column)

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _advance(self) -> Token:
        token = self._token
        if token.kind != END:
            self._next += 1
        return token

    def _take(self, *words: str) -> bool:
        """Take these words if all of them come next."""
        ahead = self._tokens[self._next : self._next + len(words)]
        matches = len(ahead) == len(words) and all(
            token.is_word(word) for token, word in zip(ahead, words, strict=True)
        )
        self._next += len(words) if matches else 0
        return matches

    def _take_mark(self, mark: str) -> bool:
        taken = self._token.kind == "mark" and self._token.text == mark
        self._next += taken
        return taken

    def _expect_word(self, word: str) -> None:
        if not self._take(word):
            raise self._unexpected()

    def _expect_mark(self, mark: str) -> None:
        if not self._take_mark(mark):
            message = f"expecting '{mark}', found {self._token.describe()}"
            raise malformed(self._text, self._token.column, message)

    def _unexpected(self, token: Token | None = None) -> ApiError:
        token = token or self._token
        return malformed(self._text, token.column, f"unexpected token: {token.describe()}")
