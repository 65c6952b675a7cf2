"""Split a query into tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast_systems.documents.salesforce.local.soql.syntax import malformed

TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<string>'(?:[^'\\]|\\.)*')
  | (?P<datetime>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d))
  | (?P<number>[+-]?\d+(?:\.\d+)?)
  | (?P<word>[A-Za-z][A-Za-z0-9_.]*)
  | (?P<operator><=|>=|!=|<>|=|<|>)
  | (?P<mark>[(),])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
END = "end"


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    column: int

    def is_word(self, word: str) -> bool:
        return self.kind == "word" and self.text.upper() == word

    def describe(self) -> str:
        return "<EOF>" if self.kind == END else f"'{self.text}'"


def tokens_of(text: str) -> Iterator[Token]:
    column = 0
    while column < len(text):
        found = TOKEN.match(text, column)
        if found is None:
            raise malformed(text, column, f"unexpected token: '{text[column]}'")
        if found.lastgroup != "space":
            yield Token(found.lastgroup or "", found.group(), column)
        column = found.end()
    yield Token(END, "", column)
