"""A PDF as the mappings see it: pages of lines of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class NoPdf(Exception):
    pass


class NotConverted(Exception):
    """This PDF can't be converted by this mapping, however often it is tried."""


@dataclass(frozen=True, slots=True)
class Box:
    """In points of 1/72 inch, from the page's upper left corner."""

    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def around(cls, boxes: Sequence[Box]) -> Box:
        return cls(
            min(box.left for box in boxes),
            min(box.top for box in boxes),
            max(box.right for box in boxes),
            max(box.bottom for box in boxes),
        )


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    box: Box


@dataclass(frozen=True, slots=True)
class Line:
    words: list[Word]

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class Page:
    number: int
    width: float
    height: float
    lines: list[Line]
