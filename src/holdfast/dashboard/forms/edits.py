"""Changes of a form without running it: add and remove items, type a part of it as JSON."""

from __future__ import annotations

from typing import Any

from holdfast.api.exact_json import BadJson, parse
from holdfast.dashboard.forms.arguments import json_of
from holdfast.dashboard.forms.entries import Data, Writer, as_json
from holdfast.dashboard.forms.places import ITEMS, JSON, WAY, Place
from holdfast.dashboard.forms.reading import read
from holdfast.dashboard.forms.shapes import Shapes
from holdfast.dashboard.limits import JOB_FORM_ITEMS_MAX


def edited(schema: Any, root: Place, data: Data, change: str) -> Place:
    """Return the form after a change like `add /lines`; an unknown change does nothing."""
    verb, _, name = change.partition(" ")
    place = root.find(name)
    if place is None:
        return root
    match verb:
        case "add" if place.can_add and len(place.children) < JOB_FORM_ITEMS_MAX:
            changed = data | {ITEMS + name: " ".join([*_ids(place), _next_id(place)])}
        case "remove" if not place.is_fixed and (around := _parent(root, place)):
            kept = [each for each in _ids(around) if each != name.rpartition("/")[2]]
            changed = data | {ITEMS + around.name: " ".join(kept)}
        case "json" if place.way != JSON:
            found = _as_json(place)
            if found is None:
                return root
            changed = data | found
        case "fields" if place.way == JSON:
            return _as_fields(schema, root, place, data)
        case _:
            return root
    return read(schema, changed)


def _as_json(place: Place) -> Data | None:
    """What was entered, as JSON; None, with errors at their places, if it can't be."""
    text = json_of(place) or "null"
    return None if place.has_errors else as_json(place.name, parse(text.encode()))


def _as_fields(schema: Any, root: Place, place: Place, data: Data) -> Place:
    try:
        value = parse(place.text.encode("utf-8", "surrogatepass"))
    except BadJson as error:
        place.errors.append(str(error))
        return root
    found = Writer(Shapes(schema)).write(place.schema, place.name, value, place.depth)
    if found.get(WAY + place.name) == JSON:
        place.errors.append("this does not fit the fields; it stays JSON")
        return root
    return read(schema, _without(data, place.name) | found)


def _without(data: Data, name: str) -> Data:
    """The data without what was entered at this place and below it."""
    inside = f"{name}/"
    places = {each: each.partition(":")[2] for each in data}
    return {
        each: text
        for each, text in data.items()
        if places[each] != name and not places[each].startswith(inside)
    }


def _ids(place: Place) -> list[str]:
    return [each.name.rpartition("/")[2] for each in place.children]


def _next_id(place: Place) -> str:
    return str(max(map(int, _ids(place)), default=-1) + 1)


def _parent(root: Place, place: Place) -> Place | None:
    name = place.name.rpartition("/")[0]
    around = root.find(name)
    return around if around is not None and around.kind in ("list", "map") else None
