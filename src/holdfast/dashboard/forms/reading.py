"""Read the data of a form as a tree of places, for its schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.api.exact_json import pointer_to
from holdfast.dashboard.forms.entries import Data, TooManyFields, Writer, below
from holdfast.dashboard.forms.places import (
    FIRST,
    ITEMS,
    JSON,
    KEY,
    NULL,
    OMIT,
    VALUE,
    WAY,
    Place,
)
from holdfast.dashboard.forms.shapes import Shape, Shapes
from holdfast.dashboard.limits import JOB_FORM_FIELDS_MAX, JOB_FORM_ITEMS_MAX

_ID_CHARS_MAX: Final = 6
_BLANK_ITEMS_MAX: Final = 10  # that a new list starts with, however many it needs


def read(schema: Any, data: Mapping[str, str]) -> Place:
    """Return the place of the whole value. Without data, it is as a new form begins."""
    return _Reader(schema, data).place(schema, "", "", depth=0)


def lines_of(text: str) -> str:
    """Browsers send a line's end as two characters."""
    return text.replace("\r\n", "\n")


class _Reader:
    def __init__(self, schema: Any, data: Mapping[str, str]) -> None:
        self._shapes = Shapes(schema)
        self._data: Data = dict(data)
        self._left = JOB_FORM_FIELDS_MAX

    def place(
        self,
        schema: Any,
        name: str,
        pointer: str,
        *,
        depth: int,
        member: str = "",
        is_optional: bool = False,
        is_fixed: bool = False,
    ) -> Place:
        self._left -= 1
        if self._left < 0:
            raise TooManyFields
        place = Place(
            name=name,
            pointer=pointer,
            schema=schema,
            choices=self._shapes.choices(schema, depth),
            depth=depth,
            member=member,
            is_optional=is_optional,
            is_fixed=is_fixed,
        )
        place.text = lines_of(self._data.get(VALUE + name, ""))
        self._choose(place)
        if (shape := place.shape) is not None:
            self._add_children(place, shape)
        return place

    def _choose(self, place: Place) -> None:
        """Find out how the place is filled in."""
        given = self._data.get(WAY + place.name)
        if given == JSON:
            place.way = JSON
        elif not place.choices.is_simple:
            self._choose_shape(place, given)
        elif place.is_select:
            self._choose_option(place)
        else:
            empties = [way for way, _ in place.empties]
            place.when_empty = given if given in empties else [*empties, FIRST][0]
            place.way = FIRST if place.text else place.when_empty

    def _choose_shape(self, place: Place, given: str | None) -> None:
        ways = [way for way, _ in place.ways]
        if given in ways:
            place.way = given
        elif place.is_optional and not self._begins_filled(place):
            place.way = OMIT
        else:
            place.way = next((way for way in ways if way != OMIT), NULL)
            if given is None and self._begins_filled(place):
                writer = Writer(self._shapes)
                self._data |= writer.write(place.schema, place.name, place.default, place.depth)
                place.way = self._data[WAY + place.name]

    @staticmethod
    def _begins_filled(place: Place) -> bool:
        """Whether an optional object begins with its default, so that its fields are seen."""
        shapes = place.choices.shapes
        is_object = len(shapes) == 1 and shapes[0].kind == "object"
        return place.is_optional and is_object and isinstance(place.default, dict)

    @staticmethod
    def _choose_option(place: Place) -> None:
        if place.text == NULL and place.choices.is_nullable:
            place.way = NULL
        elif not place.text and place.is_optional:
            place.way = OMIT

    def _add_children(self, place: Place, shape: Shape) -> None:
        match shape.kind:
            case "object":
                for member, schema in shape.properties.items():
                    child = self.place(
                        schema,
                        below(place.name, member),
                        place.pointer + pointer_to(member),
                        depth=place.depth + 1,
                        member=member,
                        is_optional=member not in shape.required,
                    )
                    place.children.append(child)
            case "list":
                self._add_items(place, shape)
            case "map":
                self._add_values(place, shape)

    def _add_items(self, place: Place, shape: Shape) -> None:
        least = shape.items_min or (len(shape.prefix) if shape.items_max is not None else 0)
        is_fixed = shape.items_max == least
        for position, item in enumerate(self._ids(place, least)):
            child = self.place(
                shape.item(position),
                below(place.name, item),
                place.pointer + pointer_to(position),
                depth=place.depth + 1,
                member=str(position + 1),
                is_fixed=is_fixed,
            )
            place.children.append(child)

    def _add_values(self, place: Place, shape: Shape) -> None:
        for position, item in enumerate(self._ids(place, 0)):
            name = below(place.name, item)
            key = self._data.get(KEY + name, "")
            child = self.place(
                shape.item(position), name, place.pointer + pointer_to(key), depth=place.depth + 1
            )
            child.key = key
            place.children.append(child)

    def _ids(self, place: Place, least: int) -> list[str]:
        """The IDs of a list's items. A new list begins with as many as it needs."""
        given = self._data.get(ITEMS + place.name)
        if given is None:
            return [str(number) for number in range(min(least, _BLANK_ITEMS_MAX))]
        found = [each for each in given.split() if _is_id(each)]
        return [*dict.fromkeys(found)][:JOB_FORM_ITEMS_MAX]


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _ID_CHARS_MAX
