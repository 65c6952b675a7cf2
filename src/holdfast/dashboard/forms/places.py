"""A place in a form: a field, or a group of places, with what was entered there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.dashboard.forms.shapes import ANYTHING, SELECTS, Choices, Kind, Shape

VALUE: Final = "value:"  # of a field, by the name of its place
WAY: Final = "way:"  # how a place is filled in: one of the ways below, or the number of a shape
ITEMS: Final = "items:"  # the IDs of a list's items, in order
KEY: Final = "key:"  # the name of one value of a map

OMIT: Final = "omit"  # left out
NULL: Final = "null"
JSON: Final = "json"  # typed as JSON, whatever the schema says
FIRST: Final = "0"

_TITLES: Final = {OMIT: "Left out", NULL: "null", JSON: "JSON"}
_EMPTIES: Final = {OMIT: "left out", NULL: "null", FIRST: "an empty text"}


@dataclass(kw_only=True)
class Place:
    """`name` is its name in the form's data, and `pointer` the JSON Pointer to its value.

    They differ below a list: items keep their names when others are removed.
    """

    name: str
    pointer: str
    schema: Any
    choices: Choices
    depth: int
    member: str = ""  # its name in the object around it
    is_optional: bool = False
    is_fixed: bool = False  # an item that can't be removed
    way: str = FIRST
    when_empty: str = FIRST
    text: str = ""
    key: str | None = None  # its name in the map around it
    children: list[Place] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def shape(self) -> Shape | None:
        """The shape that is filled in; None if it is left out, null or typed as JSON."""
        shapes = self.choices.shapes
        return shapes[int(self.way)] if self.way.isdecimal() and shapes else None

    @property
    def kind(self) -> Kind | str:
        return self.way if self.shape is None else self.shape.kind

    @property
    def is_select(self) -> bool:
        return self.choices.is_simple and self.choices.shapes[0].kind in SELECTS

    @property
    def is_checkbox(self) -> bool:
        """A boolean that must be given needs no third value."""
        sure = not self.is_optional and not self.choices.is_nullable
        return sure and self.choices.is_simple and self.choices.shapes[0].kind == "boolean"

    @property
    def is_constant(self) -> bool:
        shape = self.shape
        return (
            shape is not None
            and shape.kind == "enum"
            and len(shape.options) == 1
            and len(self.choices.shapes) == 1
            and not self.is_optional
            and not self.choices.is_nullable
        )

    @property
    def ways(self) -> list[tuple[str, str]]:
        """What to choose from before it is filled in."""
        if self.choices.is_simple and self.way != JSON:
            return []
        given = [OMIT] if self.is_optional else []
        given += [NULL] if self.choices.is_nullable else []
        found = [(way, _TITLES[way]) for way in given]
        found += [(str(number), each.label) for number, each in enumerate(self.choices.shapes)]
        return [*found, (JSON, _TITLES[JSON])] if self.way == JSON else found

    @property
    def empties(self) -> list[tuple[str, str]]:
        """What an empty field may mean."""
        if not self.choices.is_simple or self.choices.shapes[0].kind in SELECTS:
            return []
        given = [OMIT] if self.is_optional else []
        given += [NULL] if self.choices.is_nullable else []
        if given and self.choices.shapes[0].kind == "text":
            given.append(FIRST)
        return [(way, _EMPTIES[way]) for way in given]

    @property
    def own(self) -> Mapping[str, Any]:
        """Its own schema, without what that refers to."""
        return self.schema if isinstance(self.schema, dict) else {}

    @property
    def seen(self) -> Shape:
        """The shape that hints and labels are about, even while it is left out."""
        if self.shape is not None:
            return self.shape
        return self.choices.shapes[0] if len(self.choices.shapes) == 1 else ANYTHING

    @property
    def label(self) -> str:
        title = self.own.get("title")
        if isinstance(title, str) and title:
            return title
        return self.member

    @property
    def help(self) -> str:
        found = self.own.get("description", self.seen.schema.get("description"))
        return found if isinstance(found, str) else ""

    @property
    def has_default(self) -> bool:
        return "default" in self.own or "default" in self.seen.schema

    @property
    def default(self) -> Any:
        return self.own.get("default", self.seen.schema.get("default"))

    @property
    def html_id(self) -> str:
        """An ID for the page, whatever characters are in the name."""
        return "f" + hashlib.blake2s(self.name.encode(), digest_size=6).hexdigest()

    @property
    def can_add(self) -> bool:
        shape = self.shape
        if shape is None or shape.kind not in ("list", "map"):
            return False
        return shape.items_max is None or len(self.children) < shape.items_max

    @property
    def is_row(self) -> bool:
        """A short list of fixed length, like the two numbers of a point."""
        return bool(self.children) and all(
            each.is_fixed and each.choices.is_simple and each.way != JSON for each in self.children
        )

    def all(self) -> Iterator[Place]:
        yield self
        for child in self.children:
            yield from child.all()

    def find(self, name: str) -> Place | None:
        return next((each for each in self.all() if each.name == name), None)

    @property
    def has_errors(self) -> bool:
        return any(each.errors for each in self.all())
