"""Forms made from the JSON Schemas of jobs' arguments. Pure: no page, no request.

The data of a form is a dict of texts, as a browser sends it. `Form.of(schema, arguments)` fills a
form in, and `Form.posted(schema, data).arguments()` returns the same arguments, number by number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.api.exact_json import BadJson, parse
from holdfast.dashboard.forms.arguments import json_of
from holdfast.dashboard.forms.edits import edited
from holdfast.dashboard.forms.entries import Data, TooManyFields, Writer, as_json
from holdfast.dashboard.forms.places import ITEMS, KEY, VALUE, WAY, Place
from holdfast.dashboard.forms.reading import read
from holdfast.dashboard.forms.shapes import Shapes
from holdfast.dashboard.limits import JOB_FORM_FIELDS_MAX

__all__ = ["Form", "InvalidForm", "Place"]

_PREFIXES: Final = (VALUE, WAY, ITEMS, KEY)
_TOO_MANY: Final = (
    f"a form has at most {JOB_FORM_FIELDS_MAX:,} fields; edit these arguments as JSON"
)


class InvalidForm(Exception):
    """The form was not filled in correctly. Its places have the errors."""


@dataclass
class Form:
    """A form with what was entered. `errors` are those that belong to no field."""

    schema: Any
    root: Place
    errors: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, schema: Any, arguments: Any) -> Form:
        """A form with these arguments. What doesn't fit the schema is shown as JSON."""
        try:
            return cls(schema, read(schema, Writer(Shapes(schema)).write(schema, "", arguments)))
        except TooManyFields:
            return cls(schema, read(schema, as_json("", arguments)))

    @classmethod
    def blank(cls, schema: Any) -> Form:
        """A form to begin with: empty, apart from the defaults of objects."""
        try:
            return cls(schema, read(schema, {}))
        except TooManyFields:
            return cls(schema, read(schema, as_json("", {})))

    @classmethod
    def posted(cls, schema: Any, data: Mapping[str, str]) -> Form:
        """The form that a browser sent. Other data is ignored."""
        own = {name: text for name, text in data.items() if name.startswith(_PREFIXES)}
        change = data.get("do", "")
        try:
            form = cls(schema, read(schema, own))
        except TooManyFields:
            form = cls(schema, read(schema, as_json("", {})))
            form.errors.append(_TOO_MANY)
            return form
        return form._edited(own, change)

    def _edited(self, data: Data, change: str) -> Form:
        try:
            root = edited(self.schema, self.root, data, change)
        except TooManyFields:
            self.errors.append(_TOO_MANY)
            return self
        return Form(self.schema, root)

    def arguments(self) -> dict[str, Any]:
        """Return what was entered, or raise InvalidForm."""
        text = json_of(self.root) or "{}"
        if not self.is_valid:
            raise InvalidForm
        try:
            arguments = parse(text.encode("utf-8", "surrogatepass"))
        except BadJson as error:
            self.refuse([(error.pointer or "", str(error))])
            raise InvalidForm from None
        if not isinstance(arguments, dict):
            self.refuse([("", "the arguments must be an object")])
            raise InvalidForm
        return arguments

    @property
    def is_valid(self) -> bool:
        return not self.errors and not self.root.has_errors

    def refuse(self, found: Iterable[tuple[str, str]]) -> None:
        """Add errors to the fields that they are about. Each has a JSON Pointer and a text."""
        places: dict[str, Place] = {}
        for place in self.root.all():
            places.setdefault(place.pointer, place)
        for pointer, text in found:
            near = pointer
            while near and near not in places:
                near = near.rpartition("/")[0]
            if near:
                places[near].errors.append(text)
            else:
                self.errors.append(text)
