"""A form made from a JSON Schema loses nothing: what goes in comes out, number by number."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.dashboard.forms import Form, InvalidForm
from holdfast.dashboard.forms.places import ITEMS, JSON, KEY, OMIT, VALUE, WAY, Place
from holdfast.dashboard.limits import JOB_FORM_FIELDS_MAX, JOB_FORM_ITEMS_MAX
from holdfast.domain.schemas import describe
from tests.domain.test_schemas import TYPES, signature_of


def sent_by(form: Form) -> dict[str, str]:
    """What a browser sends for a form that nobody changes."""
    data: dict[str, str] = {}
    for place in form.root.all():
        data |= _sent_by(place)
    return data


def _sent_by(place: Place) -> dict[str, str]:
    data: dict[str, str] = {}
    if place.ways:
        data[WAY + place.name] = place.way
    elif len(place.empties) > 1:
        data[WAY + place.name] = place.when_empty
    if place.key is not None:
        data[KEY + place.name] = place.key
    if place.kind in ("list", "map"):
        data[ITEMS + place.name] = " ".join(each.name.rpartition("/")[2] for each in place.children)
    elif place.is_checkbox and place.way != JSON:
        data |= {VALUE + place.name: "true"} if place.text == "true" else {}
    elif place.choices.is_simple or place.kind in ("text", "integer", "number", *_OTHERS):
        data[VALUE + place.name] = place.text.replace("\n", "\r\n")
    return data


_OTHERS = ("boolean", "enum", "json")


def returned(schema: Any, value: Any) -> Any:
    form = Form.posted(schema, sent_by(Form.of(schema, value)))
    return form.arguments()


def exact(value: Any) -> str:
    """JSON in which 1, 1.0 and -0.0 differ, and the order of names does not matter."""
    return json.dumps(value, sort_keys=True)


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
numbers = (
    st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([2**53 + 1, 2**63 - 1, -0.0, 0.1 + 0.2, 1e22, 5e-324, 1.7976931348623157e308])
)
leaves = (
    st.none()
    | st.booleans()
    | numbers
    | texts
    | st.sampled_from(["", "a\r\nb", "\x1b[2J", "\u202e"])
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(["a", "b", "a/b", "~", "with space", "é", "type", "0"])

ATOMS: list[Any] = [
    {"type": "string"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "decimal"},
    {"type": "integer"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "null"},
    {"type": ["integer", "null"]},
    {"type": ["string", "number", "array"]},
    {"enum": ["a", 1, 1.5, None, True]},
    {"enum": [1]},
    {"const": "x"},
    {"type": "object"},
    {"type": "array"},
    {},
    True,
    False,
    {"$ref": "#"},
    {"$ref": "#/$defs/nowhere"},
    {"$ref": "elsewhere.json"},
    {"if": {"type": "string"}, "then": {"minLength": 2}},
    {"type": "something"},
    "not a schema",
]


def _composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.dictionaries(names, inner, max_size=4)
    return (
        st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(
            lambda items, rest: {"type": "array", "prefixItems": items, "items": rest},
            st.lists(inner, max_size=3),
            inner | st.just(False),
        )
        | st.builds(lambda item: {"type": "object", "additionalProperties": item}, inner)
        | st.builds(
            lambda members, required, default: {
                "type": "object",
                "properties": members,
                "required": sorted(required),
                "additionalProperties": False,
                **({} if default is None else {"default": default}),
            },
            some,
            st.sets(names, max_size=3),
            st.none() | st.dictionaries(names, leaves, max_size=2),
        )
        | st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, max_size=3))
        | st.builds(lambda parts: {"oneOf": parts, "title": "T"}, st.lists(inner, max_size=3))
        | st.builds(lambda parts: {"allOf": parts}, st.lists(inner, max_size=2))
    )


schemas = st.recursive(st.sampled_from(ATOMS), _composed, max_leaves=8)
arguments = st.dictionaries(names, values, max_size=5)


@given(schemas, arguments)
@example({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": ""})
@example({"type": "object", "properties": {"a": {"type": ["string", "null"]}}}, {"a": None})
@example({"type": "object", "properties": {"a": {"type": "boolean"}}}, {"a": False})
@example({"type": "object", "additionalProperties": {"type": "integer"}}, {"": 1})
def test_any_arguments_pass_through_the_form_of_any_schema(schema: Any, value: Any) -> None:
    form = Form.posted(schema, sent_by(Form.of(schema, value)))
    try:
        assert exact(form.arguments()) == exact(value)
    except InvalidForm:  # lists of a fixed length, and the like, say so themselves
        assert form.root.has_errors


@st.composite
def schema_and_value(draw: st.DrawFn, depth: int = 0) -> tuple[Any, Any]:
    """A schema, and a value that is valid for it."""
    kinds = ["text", "integer", "number", "boolean", "enum", "optional", "free"]
    match draw(st.sampled_from(kinds if depth > 2 else [*kinds, "list", "object", "map", "any"])):
        case "text":
            return {"type": "string"}, draw(texts)
        case "integer":
            return {"type": "integer"}, draw(st.integers(-(2**63), 2**63 - 1))
        case "number":
            return {"type": "number"}, draw(numbers)
        case "boolean":
            return {"type": "boolean"}, draw(st.booleans())
        case "enum":
            options = draw(st.lists(leaves, min_size=1, max_size=4))
            return {"enum": options}, draw(st.sampled_from(options))
        case "optional":
            schema, value = draw(schema_and_value(depth + 1))
            return {"anyOf": [schema, {"type": "null"}]}, draw(st.none() | st.just(value))
        case "list":
            schema, _ = draw(schema_and_value(depth + 1))
            return {"type": "array", "items": schema}, draw(st.lists(values, max_size=3))
        case "object":
            members = draw(st.dictionaries(names, schema_and_value(depth + 1), max_size=4))
            given = draw(st.sets(st.sampled_from(sorted(members)))) if members else set()
            required = draw(st.sets(st.sampled_from(sorted(given)))) if given else set()
            properties = {name: schema for name, (schema, _) in members.items()}
            return (
                {"type": "object", "properties": properties, "required": sorted(required),
                 "additionalProperties": False},
                {name: members[name][1] for name in sorted(given)},
            )  # fmt: skip
        case "map":
            schema, value = draw(schema_and_value(depth + 1))
            return {"type": "object", "additionalProperties": schema}, {draw(texts): value}
        case "any":
            parts = draw(st.lists(schema_and_value(depth + 1), min_size=1, max_size=3))
            return {"anyOf": [schema for schema, _ in parts]}, draw(st.sampled_from(parts))[1]
    return {}, draw(values)


@given(st.dictionaries(names, schema_and_value(), min_size=1, max_size=4))
def test_valid_arguments_pass_through_their_form_unchanged(members: dict[str, Any]) -> None:
    properties = {name: schema for name, (schema, _) in members.items()}
    schema = {"type": "object", "properties": properties, "required": sorted(members)}
    value = {name: each for name, (_, each) in members.items()}
    assert exact(returned(schema, value)) == exact(value)


@pytest.mark.parametrize("name", TYPES)
def test_arguments_of_every_type_pass_through_in_fields(name: str) -> None:
    hint, given = TYPES[name]
    schema = describe(signature_of(hint), None).arguments
    for value in given:
        form = Form.of(schema, {"it": value})
        assert exact(returned(schema, {"it": value})) == exact({"it": value})
        assert [each.name for each in form.root.all() if each.way == JSON] == []


def test_a_blank_form_has_a_field_for_everything_that_is_required() -> None:
    schema = {
        "type": "object",
        "properties": {
            "plot": {"type": "array", "minItems": 3, "items": {"$ref": "#/$defs/point"}},
            "house": {
                "type": "object",
                "default": {},
                "properties": {"width": {"type": "number", "default": 6}},
            },
            "more": {"type": "object", "properties": {"x": {"type": "integer"}}},
            "note": {"type": "string"},
        },
        "required": ["plot"],
        "$defs": {
            "point": {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "number"}}
        },
    }
    form = Form.blank(schema)
    fields = [each.name for each in form.root.all() if not each.children]
    points = [f"/plot/{corner}/{axis}" for corner in range(3) for axis in range(2)]
    assert fields == [*points, "/house/width", "/more", "/note"]
    with pytest.raises(InvalidForm):
        form.arguments()
    errors = {each.name: each.errors for each in form.root.all() if each.errors}
    assert errors == {name: ["enter a number"] for name in points}
    filled = Form.posted(schema, sent_by(form) | {VALUE + name: "1.5" for name in points})
    assert filled.arguments() == {"plot": [[1.5, 1.5]] * 3, "house": {}}


@pytest.mark.parametrize(
    "text",
    ["", " a ", "a\nb", "\na\n", "a\r\nb", "\r", "\x1b[2J", "\u202eabc", "\u2028", "\t", '"\\'],
)
@pytest.mark.parametrize("key", [False, True])
def test_a_text_passes_through_whatever_is_in_it(text: str, key: bool) -> None:
    schema = {"type": "object", "additionalProperties": {"type": "string"}}
    value = {text: "x"} if key else {"x": text}
    assert exact(returned(schema, value)) == exact(value)
    for place in Form.of(schema, value).root.all():
        assert set("\r\x1b\u202e\u2028").isdisjoint(place.text + (place.key or ""))


DIGITS = {
    "9007199254740993": None,
    "9223372036854775807": None,
    "-9223372036854775808": None,
    "9223372036854775808": "does not fit in 64 bits",
    "1" * 5000: "does not fit in 64 bits",
    "-0": "-0 is not an integer",
}
FRACTIONS = {
    "0.30000000000000004": None,
    "-0.0": None,
    "1e22": None,
    "1e400": "out of range for a double",
    "0.1000000000000000055": "can't represent",
    "1e99999999999999999999": "out of range",
    "1e-99999999999999999999": "can't represent",
}


@pytest.mark.parametrize(
    ("kind", "token", "problem"),
    [
        *(("integer", token, problem) for token, problem in DIGITS.items()),
        *(("number", token, problem) for token, problem in (DIGITS | FRACTIONS).items()),
    ],
)
def test_a_number_keeps_its_digits_or_is_refused(
    kind: str, token: str, problem: str | None
) -> None:
    schema = {"properties": {"a": {"type": kind, "minimum": -1e300}}, "required": ["a"]}
    form = Form.posted(schema, {VALUE + "/a": token})
    if problem is None:
        assert msgspec.json.encode(form.arguments()) == f'{{"a":{token}}}'.encode()
        return
    with pytest.raises(InvalidForm):
        form.arguments()
    (field,) = form.root.children
    assert len(field.errors) == 1
    assert problem in field.errors[0]
    assert field.text == token


@pytest.mark.parametrize(
    ("schema", "text", "problem"),
    [
        ({"type": "integer"}, "", "enter a number"),
        ({"type": "integer"}, "1.5", "not a whole number"),
        ({"type": "integer"}, "0x10", "not a number"),
        ({"type": "integer"}, "\u0661", "not a number"),
        ({"type": "number", "minimum": 0.1}, "0.09999999999999999", "at least 0.1"),
        ({"type": "number", "exclusiveMaximum": 5}, "5", "less than 5"),
        ({"type": "string", "minLength": 2}, "a", "at least 2 characters"),
        ({"type": "string", "maxLength": 2}, "abc", "the maximum is 2"),
        ({"enum": ["a", "b"]}, "7", "choose one"),
        ({"enum": ["a", "b"]}, "", "choose one"),
        ({}, "", "enter a JSON value"),
        ({}, '1, "b": 2', "Extra data"),
        ({}, '{"x": [1, 2', "delimiter"),
        ({}, "NaN", "NaN is not JSON"),
        ({}, '{"x": 1e400}', "(at /x)"),
    ],
)
def test_a_wrong_value_has_its_error_at_its_field(schema: Any, text: str, problem: str) -> None:
    around = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    form = Form.posted(around, {VALUE + "/a": text})
    with pytest.raises(InvalidForm):
        form.arguments()
    (field,) = form.root.children
    assert len(field.errors) == 1
    assert problem in field.errors[0]
    assert (field.text, form.errors) == (text, [])


def test_errors_of_the_check_come_to_the_nearest_field() -> None:
    schema = {
        "properties": {
            "lines": {"type": "array", "items": {"properties": {"sku": {"type": "string"}}}},
            "by/name": {"type": "object", "additionalProperties": {"type": "integer"}},
        }
    }
    form = Form.of(schema, {"lines": [{"sku": "a"}, {"sku": "b"}], "by/name": {"x": 1}})
    form = Form.posted(schema, sent_by(form) | {"do": "remove /lines/0"})
    found = [("/lines/0/sku", "one"), ("/lines/0/deep/er", "two"), ("/by~1name/x", "three")]
    form.refuse([*found, ("", "four"), ("/nowhere", "five")])
    errors = {each.name: each.errors for each in form.root.all() if each.errors}
    # The item that was the second one keeps its name.
    assert errors == {"/lines/1/sku": ["one"], "/lines/1": ["two"], "/by%2Fname/0": ["three"]}
    assert form.errors == ["four", "five"]


LINES = {
    "properties": {"lines": {"type": "array", "items": {"type": "string"}}},
    "required": ["lines"],
}


def test_items_are_added_and_removed_without_losing_the_others() -> None:
    form = Form.of(LINES, {"lines": ["a", "b", "c"]})
    form = Form.posted(LINES, sent_by(form) | {"do": "remove /lines/1"})
    form = Form.posted(LINES, sent_by(form) | {"do": "add /lines"})
    assert form.arguments() == {"lines": ["a", "c", ""]}
    typed = sent_by(form) | {VALUE + "/lines/3": "d"}
    form = Form.posted(LINES, typed | {"do": "remove /lines/3"})
    form = Form.posted(LINES, sent_by(form) | {"do": "add /lines"})
    assert form.arguments() == {"lines": ["a", "c", ""]}
    for change in ("add", "add /nowhere", "remove /lines", "explode /lines", "json", "fields"):
        assert Form.posted(LINES, sent_by(form) | {"do": change}).is_valid


def test_a_part_can_be_typed_as_json_and_as_fields_again() -> None:
    form = Form.of(LINES, {"lines": ["a", "b"]})
    form = Form.posted(LINES, sent_by(form) | {"do": "json /lines"})
    (field,) = form.root.children
    assert (field.way, json.loads(field.text)) == (JSON, ["a", "b"])
    typed = sent_by(form) | {VALUE + "/lines": '["x"]', "do": "fields /lines"}
    form = Form.posted(LINES, typed)
    assert [each.text for each in form.root.children[0].children] == ["x"]
    for wrong, problem in (("[", "Expecting"), ('{"a": 1}', "does not fit")):
        form = Form.posted(LINES, typed | {VALUE + "/lines": wrong})
        assert problem in form.root.children[0].errors[0]
        assert form.root.children[0].text == wrong


def test_a_field_that_may_be_left_out_says_what_empty_means() -> None:
    schema = {"properties": {"a": {"type": ["string", "null"]}}}
    for way, expected in ((OMIT, {}), ("null", {"a": None}), ("0", {"a": ""})):
        sent = {WAY + "/a": way, VALUE + "/a": ""}
        assert Form.posted(schema, sent).arguments() == expected
        assert Form.posted(schema, sent | {VALUE + "/a": "x"}).arguments() == {"a": "x"}


HOSTILE: dict[str, Any] = {
    "a schema that is itself": {"$ref": "#"},
    "a circle of references": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "an object in itself": {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    "a tree of itself": {
        "properties": {f"p{n}": {"$ref": "#"} for n in range(50)},
        "required": [f"p{n}" for n in range(50)],
    },
    "either itself or itself": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "all of itself": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "a huge enum": {"properties": {"a": {"enum": list(range(100_000))}}, "required": ["a"]},
    "a huge number in an enum": {"properties": {"a": {"enum": [10**400]}}, "required": ["a"]},
    "many fields": {"properties": {f"p{n}": {"type": "string"} for n in range(5000)}},
    "many shapes": {"properties": {"a": {"anyOf": [{"const": n} for n in range(5000)]}}},
    "no schema": 7,
    "wrong words": {"type": "object", "properties": [], "required": 7, "default": 7, "title": {}},
    "wrong bounds": {"properties": {"a": {"type": "array", "minItems": "x", "maxItems": -1}}},
    "wrong parts": {"anyOf": [1, None, "x"], "allOf": 5},
    "a million items": {"type": "array", "minItems": 10**6},
}  # fmt: skip
DEEP: Any = {"type": "string"}
for _ in range(500):
    DEEP = {"properties": {"a": DEEP}, "required": ["a"]}
HOSTILE["deep"] = DEEP


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_makes_a_small_form_that_still_takes_json(name: str) -> None:
    schema = HOSTILE[name]
    for form in (Form.blank(schema), Form.of(schema, {"a": {"a": {"a": 1}}})):
        assert len(list(form.root.all())) <= JOB_FORM_FIELDS_MAX
    typed = {WAY: JSON, VALUE: '{"a": {"a": [1.5]}}'}
    assert Form.posted(schema, typed).arguments() == {"a": {"a": [1.5]}}


def test_what_is_too_large_for_fields_is_one_field_with_json() -> None:
    value = {"lines": [{"a": 1, "b": 2, "c": 3, "d": 4}] * (JOB_FORM_ITEMS_MAX - 1)}
    inner = {"type": "object", "properties": {name: {"type": "integer"} for name in "abcd"}}
    schema = {"properties": {"lines": {"type": "array", "items": inner}}, "required": ["lines"]}
    form = Form.of(schema, value)
    assert (form.root.way, returned(schema, value)) == (JSON, value)
    form = Form.posted(schema, sent_by(form) | {"do": "fields "})
    assert form.errors == ["a form has at most 1,000 fields; edit these arguments as JSON"]


def test_unknown_data_of_a_form_is_ignored() -> None:
    sent = {
        VALUE + "/lines/7": "b", ITEMS + "/lines": "x 7 7 -1 9999999 \u0663", WAY + "/lines": "9",
        VALUE + "/other": "c", "csrf": "d", WAY: "never", KEY + "/lines/7": "e",
    }  # fmt: skip
    assert Form.posted(LINES, sent).arguments() == {"lines": ["b"]}
