"""A PDF as the mappings see it: pages of lines, form fields and annotations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

# Characters that XML 1.0 can't contain, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class NoPdf(Exception):
    pass


class NotConverted(Exception):
    """This mapping can't convert this PDF; retrying doesn't help."""


@dataclass(frozen=True, slots=True)
class Box:
    """In points (1/72 inch) from the upper left corner of the page."""

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

    def is_beside(self, other: Box) -> bool:
        """Whether the vertical middle of the other box is between top and bottom."""
        return self.top <= (other.top + other.bottom) / 2 <= self.bottom


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
class Field:
    """A form field. `kind` is text, choice, checkbox, radio or signature."""

    kind: str
    name: str
    label: str
    value: str
    box: Box
    is_checked: bool | None = None


@dataclass(frozen=True, slots=True)
class Annotation:
    kind: str
    text: str
    box: Box


class NoText(StrEnum):
    """Why a page or a document has no text."""

    BLANK = "blank"
    IMAGE = "image"
    DRAWING = "drawing"
    FONTS = "fonts"
    DYNAMIC_XFA = "dynamic-xfa"


@dataclass(frozen=True, slots=True)
class Page:
    number: int
    width: float
    height: float
    lines: list[Line]
    fields: list[Field] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    no_text: NoText | None = None


@dataclass(frozen=True, slots=True)
class Document:
    pages: Sequence[Page]
    no_text: NoText | None = None


def clean(text: str) -> str:
    return _FORBIDDEN.sub("", text)
