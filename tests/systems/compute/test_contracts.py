"""Contracts: what they refuse, how defaults are written, and what the hash tells apart."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import jsonschema_rs
import msgspec
import pytest
from hypothesis import event, given, reject
from hypothesis import strategies as st

from holdfast import ConfigurationError
from holdfast_systems.compute.contract import (
    ContractBroken,
    ContractUnknown,
    Document,
    load_contracts,
)
from holdfast_systems.compute.defaults import BadSchema, fill
from holdfast_systems.compute.limits import INPUTS_DEPTH_MAX, SCHEMA_BYTES_MAX
from holdfast_systems.compute.service import hash_inputs
from holdfast_systems.compute.settings import ComputeSettings, read_settings

pytestmark = pytest.mark.heavy

DRAFT = "https://json-schema.org/draft/2020-12/schema"
TENANTS = ["default", str(UUID(int=1)), str(UUID(int=2))]

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1000, 1000)
    | st.floats(-1e6, 1e6)
    | st.text("ab\x7fé"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner),
    max_leaves=8,
)


# What many of the schemas below take.
documents = st.dictionaries(
    st.sampled_from("abcd"), st.sampled_from([{}, [], [{}], [{"a": 5}], 1, {"a": 1}, {"b": {}}])
)


@st.composite
def schemas(draw: st.DrawFn, depth: int = 0) -> dict[str, Any]:
    """Schemas with defaults wherever these can be filled in; a few of them are not valid."""
    leaves, branches = ["any", "integer", "shared"], ["object", "array"]
    kinds = {0: ["object"], 3: leaves}.get(depth, leaves + branches)
    kind = draw(st.sampled_from(kinds))
    match kind:
        case "object":
            names = sorted(draw(st.sets(st.sampled_from("abcd"), min_size=1, max_size=3)))
            schema: dict[str, Any] = {"type": "object", "properties": {}}
            for name in names:
                inner = draw(schemas(depth + 1))
                default = draw(st.none() | _defaults(inner).map(lambda value: {"default": value}))
                schema["properties"][name] = inner | (default or {})
            return schema | ({"required": names} if draw(st.booleans()) else {})
        case "array":
            first: dict[str, Any] = {"prefixItems": [{}]} if draw(st.booleans()) else {}
            return {"type": "array", "items": draw(schemas(depth + 1)), **first}
        case "integer":
            return {"type": "integer"}
        case "shared":
            return {"$ref": "#/$defs/shared"}
    return {}


def _defaults(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Mostly what the schema takes."""
    fitting: dict[str, st.SearchStrategy[Any]] = {
        "object": st.just({}),
        "array": st.sampled_from([[], [{}]]),
        "integer": st.integers(-9, 9),
    }
    if "$ref" in schema:
        return st.sampled_from([{}, {"b": {"c": 1}}])
    return fitting.get(schema.get("type", ""), values)


def whole(schema: dict[str, Any], **definitions: Any) -> dict[str, Any]:
    """Only definitions that are used: a default in any other is never filled in."""
    shared = {"type": "object", "properties": {"a": {"default": 1}, "b": {"default": {}}}}
    known = {"shared": shared} | definitions
    used = {name: each for name, each in known.items() if f"#/$defs/{name}" in str(schema)}
    return {**schema, "$schema": DRAFT, "$defs": used}


@given(schemas(), st.lists(documents | values, min_size=1, max_size=5))
def test_filling_twice_equals_filling_once(schema: dict[str, Any], given: list[Any]) -> None:
    try:
        contract = Document(whole(schema))
    except BadSchema:
        reject()
    for document in given:
        before = deepcopy(document)
        try:
            filled = contract.filled(document)
        except ContractBroken:
            continue
        event("filled in" if filled != document else "nothing to fill in")
        assert document == before, "the caller's own document is left as it was"
        assert contract.filled(filled) == filled
        contract.check(filled)
        _check_kept(document, filled)


def _check_kept(document: Any, filled: Any) -> None:
    """Whatever the document says is still there."""
    if isinstance(document, dict):
        for name, value in document.items():
            _check_kept(value, filled[name])
    elif isinstance(document, list):
        for value, other in zip(document, filled, strict=True):
            _check_kept(value, other)
    else:
        assert document == filled


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "integer", "default": "no"}}},
        {"properties": {"a": {"type": "integer", "default": 5, "maximum": 4}}},
        {"properties": {"a": {"default": {}, "properties": {"b": {"type": "null", "default": 1}}}}},
        {"properties": {"a": {"default": {}, "required": ["b"], "type": "object"}}},
        {"properties": {"a": {"$ref": "#/$defs/number", "default": "no"}}},
        {"items": {"properties": {"a": {"type": "string", "default": 1}}}},
    ],
)
def test_a_schema_whose_own_defaults_are_invalid_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(BadSchema, match="default is not valid"):
        Document(whole(schema, number={"type": "number"}))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"default": {}}, "can't be filled"),
        ({"items": {"default": 1}}, "can't be filled"),
        ({"anyOf": [{"properties": {"a": {"default": 1}}}]}, "can't be filled"),
        ({"anyOf": [{"$ref": "#/$defs/loose"}]}, "can't be filled"),
        ({"additionalProperties": {"properties": {"a": {"default": 1}}}}, "can't be filled"),
        ({"properties": {"a": {"$ref": "#/$defs/endless"}}}, "nested deeper"),
        ({"properties": {"a": {"$ref": "#/$defs/round"}}}, "leads back"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}}, "not a valid schema"),
        ({"properties": {"a": {"$ref": "#/properties/b"}, "b": {}}}, "must lead to"),
        ({"properties": {"a": {"$ref": "#/$defs/loose", "minimum": 1}}}, "beside a reference"),
        ({"properties": {"a": {"$ref": "#/$defs/loose/properties/a"}}}, "must lead to"),
        ({"properties": {"a": {"$dynamicRef": "#/$defs/loose"}}}, "dynamicRef is not allowed here"),
        ({"properties": {"a": {"$id": "inner"}}}, "id is not allowed here"),
        ({"properties": {"a": {"$id": "inner", "$schema": DRAFT}}}, "id is not allowed here"),
        ({"type": "nothing"}, "not a valid schema"),
    ],
)
def test_a_schema_that_could_not_be_filled_in_is_refused(
    schema: dict[str, Any], reason: str
) -> None:
    definitions = {
        "endless": {"default": {}, "properties": {"a": {"$ref": "#/$defs/endless"}}},
        "round": {"$ref": "#/$defs/round"},
        "loose": {"properties": {"a": {"default": 1}}},
    }
    with pytest.raises(BadSchema, match=reason):
        Document(whole(schema, **definitions))


LOOSE = {"$ref": "#/$defs/loose"}


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"allOf": [LOOSE]},
        {"oneOf": [{"type": "string"}, LOOSE]},
        {"anyOf": [{"items": LOOSE}]},
        {"not": {"properties": {"b": LOOSE}}},
        {"if": LOOSE},
        {"then": LOOSE},
        {"additionalProperties": LOOSE},
        {"patternProperties": {"^x": LOOSE}},
        {"unevaluatedProperties": LOOSE},
        {"dependentSchemas": {"x": LOOSE}},
        {"properties": {"a": LOOSE, "list": {"prefixItems": [LOOSE]}}},
        {"properties": {"a": LOOSE, "list": {"contains": LOOSE}}},
        {"properties": {"a": LOOSE, "list": {"unevaluatedItems": LOOSE}}},
        {"properties": {"a": LOOSE, "b": {"$ref": "#/$defs/branch"}}},
    ],
)
def test_a_default_that_would_be_filled_in_at_one_place_and_not_at_another_is_refused(
    elsewhere: dict[str, Any],
) -> None:
    loose = {"properties": {"a": {"default": 1}}}
    branch = {"anyOf": [{"$ref": "#/$defs/behind"}]}
    behind = {"additionalProperties": LOOSE}
    schema = {"properties": {"a": LOOSE}, **elsewhere}
    definitions = {"loose": loose, "branch": branch, "behind": behind}
    with pytest.raises(BadSchema, match="can't be filled"):
        Document({**schema, "$schema": DRAFT, "$defs": definitions})


def test_a_key_named_default_is_a_default_only_where_a_schema_has_its_keywords() -> None:
    inner = {"type": "object", "properties": {"default": {"type": "integer", "default": 7}}}
    schema = {
        "properties": {"a": inner | {"default": {}}, "b": {"const": {"default": 1}}},
        "patternProperties": {"default": {"type": "object"}},
        "dependentRequired": {"default": ["a"]},
        "x-form": {"default": {"unit": "m"}},
    }
    assert Document(whole(schema)).filled({}) == {"a": {"default": 7}}


def test_defaults_of_items_leave_the_places_of_prefix_items_alone() -> None:
    entry = {"type": "object", "properties": {"a": {"default": 1}}}
    schema = {"prefixItems": [{"type": "object"}, {"type": "object"}], "items": entry}
    contract = Document(whole(schema))
    assert contract.filled([{}]) == [{}]
    assert contract.filled([{}, {}, {}, {"a": 2}]) == [{}, {}, {"a": 1}, {"a": 2}]


def test_of_a_row_of_references_the_first_default_is_taken() -> None:
    far = {"type": "integer", "default": 3}
    near = {"$ref": "#/$defs/far", "default": 2}
    properties = {
        "a": {"$ref": "#/$defs/near", "default": 1},
        "b": {"$ref": "#/$defs/near"},
        "c": {"$ref": "#/$defs/far"},
        "many": {"items": {"$ref": "#/$defs/near"}},
    }
    schema = {"$schema": DRAFT, "properties": properties, "$defs": {"near": near, "far": far}}
    assert Document(schema).filled({}) == {"a": 1, "b": 2, "c": 3}


names = st.text("ab%25~01/", max_size=4)


@given(st.sets(names, min_size=1, max_size=6), names | names.map(quote))
def test_a_reference_means_the_same_to_defaults_as_it_does_to_checks(
    known: set[str], written: str
) -> None:
    definitions = {name: {"properties": {"a": {"const": name, "default": name}}} for name in known}
    schema = {"properties": {"a": {"$ref": f"#/$defs/{written}"}}}
    used: dict[str, Any] = {"$schema": DRAFT, **schema, "$defs": definitions}
    try:
        validator = jsonschema_rs.validator_for(used, offline=True)
    except (jsonschema_rs.ValidationError, ValueError):
        with pytest.raises(BadSchema):
            Document(used)
        return
    (meant,) = (name for name in known if validator.is_valid({"a": {"a": name}}))
    event("written with an escape" if meant != written else "written plainly")
    used["$defs"] = {meant: definitions[meant]}
    assert Document(used).filled({"a": {}}) == {"a": {"a": meant}}
    # Beside one of the name that is written, too.
    assert fill({**schema, "$defs": definitions}, {"a": {}}) == {"a": {"a": meant}}


@pytest.mark.parametrize(
    "default",
    [2**53, 2**60, -(2**60), [2**60], {"a": {"b": 2**53}}, "\0", {"\0": 1}, float("inf")],
)
def test_a_default_that_can_not_be_stored_is_refused(default: Any) -> None:
    with pytest.raises(BadSchema, match="can't be stored"):
        Document(whole({"properties": {"a": {"default": default}}}))
    shared = {"properties": {"a": {"default": default}}}
    with pytest.raises(BadSchema, match="can't be stored"):
        Document(whole({"properties": {"a": {"$ref": "#/$defs/shared"}}}, shared=shared))


def test_a_default_whose_place_can_not_be_stored_is_refused() -> None:
    with pytest.raises(BadSchema, match="can't be stored"):
        Document(whole({"properties": {"\0": {"default": 1}}}))
    Document(whole({"properties": {"a": {"default": _nested(INPUTS_DEPTH_MAX - 2)}}})).filled({})
    with pytest.raises(BadSchema, match="can't be stored"):
        Document(whole({"properties": {"a": {"default": _nested(INPUTS_DEPTH_MAX)}}}))


def test_a_schema_must_say_by_which_rules_it_goes() -> None:
    with pytest.raises(BadSchema, match=r"\$schema"):
        Document({"type": "object"})


def test_defaults_are_found_behind_references_and_in_lists() -> None:
    properties = {
        "one": {"$ref": "#/$defs/shared", "default": {}},
        "many": {"type": "array", "items": {"$ref": "#/$defs/shared"}},
    }
    filled = Document(whole({"properties": properties})).filled({"many": [{"a": 2}, {}]})
    expected = {"one": {"a": 1, "b": {}}, "many": [{"a": 2, "b": {}}, {"a": 1, "b": {}}]}
    assert filled == expected


def test_a_document_that_can_not_be_stored_is_refused() -> None:
    anything = Document({"$schema": DRAFT})
    anything.check(_nested(INPUTS_DEPTH_MAX - 1))
    anything.check("a backslash before u0000: \\u0000")
    for value in (
        _nested(INPUTS_DEPTH_MAX + 1),
        _nested(5000),
        "\0",
        {"\0": 1},
        2**53,
        float("nan"),
    ):
        with pytest.raises(ContractBroken):
            anything.check(value)


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def test_a_contract_that_can_not_be_right_stops_the_start(tmp_path: Path) -> None:
    folder = tmp_path / "house" / "1.0.0"
    folder.mkdir(parents=True)
    for name in ("inputs", "outputs"):
        schema = {"$schema": DRAFT, "properties": {"a": {"type": "null", "default": 1}}}
        (folder / f"{name}.schema.json").write_bytes(msgspec.json.encode(schema))
    with pytest.raises(ConfigurationError, match=r"inputs\.schema\.json.*default is not valid"):
        load_contracts(tmp_path)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (b'{"$schema": "%b", "properties": {"a": {"$ref": "#"}}}', "#: a reference must lead to"),
        (b'{"$schema": "%b", "items": {"$ref": "#/items"}}', "#/items: a reference must lead to"),
        (b'{"$schema": "%b", "anyOf": [{"$ref": "#/$defs/a"}]}', "not a valid schema"),
        (b'{"$schema": "%b", "title": "\xff"}', "can't decode"),
        (b'{"$schema": "%b", "not": ' + b'{"not":' * 100_000, "recursion"),
    ],
)
def test_no_contract_stops_the_start_without_its_name(
    tmp_path: Path, schema: bytes, reason: str
) -> None:
    folder = tmp_path / "house" / "1.0.0"
    folder.mkdir(parents=True)
    for name in ("inputs", "outputs"):
        (folder / f"{name}.schema.json").write_bytes(schema % DRAFT.encode())
    with pytest.raises(ConfigurationError, match=rf"inputs\.schema\.json.*{reason}"):
        load_contracts(tmp_path)


def write_contract(folder: Path, schema: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    for name in ("inputs", "outputs"):
        (folder / f"{name}.schema.json").write_bytes(msgspec.json.encode(schema))


def test_contracts_of_your_own_folder_come_beside_those_of_the_package(tmp_path: Path) -> None:
    write_contract(tmp_path / "bridge" / "0.1.0", {"$schema": DRAFT, "required": ["span"]})
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "README.md").touch()
    contracts = load_contracts(tmp_path)
    with pytest.raises(ContractBroken, match="/span: this field is required"):
        contracts.find("bridge", "0.1.0").inputs.check({})
    contracts.find("house-fit", "1.0.0").inputs.check({"plot": [[0, 0], [9, 0], [9, 9]]})
    with pytest.raises(ContractUnknown):
        contracts.find("bridge", "0.2.0")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("house-fit/1.0.0", "house-fit@1.0.0 is already one of Holdfast's own contracts"),
        ("Bridge/1.0.0", "rename the folder"),
        ("bridge/1.0", "rename the folder"),
    ],
)
def test_a_folder_that_can_not_be_a_contract_stops_the_start(
    tmp_path: Path, name: str, reason: str
) -> None:
    write_contract(tmp_path / name, {"$schema": DRAFT})
    with pytest.raises(ConfigurationError, match=reason):
        load_contracts(tmp_path)


def test_a_folder_of_contracts_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"can't read contracts from .*: No such file"):
        load_contracts(tmp_path / "none")


def test_a_schema_that_is_too_large_is_refused(tmp_path: Path) -> None:
    write_contract(tmp_path / "a" / "1.0.0", {"$schema": DRAFT, "title": "t" * SCHEMA_BYTES_MAX})
    with pytest.raises(ConfigurationError, match="larger than 1,048,576 bytes"):
        load_contracts(tmp_path)


inputs = st.dictionaries(st.text("ab", max_size=2), st.integers(0, 9), max_size=2)
named = st.tuples(
    st.sampled_from(TENANTS), st.sampled_from(["doc", "doc1"]), st.text("12.", max_size=4), inputs
)


@given(named, named)
def test_the_hash_is_the_same_only_for_the_same_question(
    one: tuple[Any, ...], other: tuple[Any, ...]
) -> None:
    assert (hash_inputs(*one) == hash_inputs(*other)) == (one == other)


def test_no_value_of_the_hash_runs_into_the_next() -> None:
    assert hash_inputs("default", "doc", "1.2.3", {}) != hash_inputs("default", "doc1", ".2.3", {})


def test_the_hash_does_not_depend_on_how_the_inputs_are_written() -> None:
    spellings: list[Any] = [{"a": 1, "b": [0.0]}, {"b": [-0.0], "a": 1.0}]
    assert len({hash_inputs("default", "doc", "1.2.3", each) for each in spellings}) == 1
    # Written out as in RFC 8785, and hashed by another tool.
    assert (
        hash_inputs("default", "doc", "1.2.3", {"a": 1})
        == "ba32725462e3809258f2df820b777266ce39983270ae518c4e8199d327828470"
    )


@pytest.mark.parametrize(
    ("definition", "version"),
    [("", "1.0.0"), ("a/b", "1.0.0"), ("a", "1.0.0/../x"), ("a", "01.0.0"), ("A", "1.0.0")],
)
def test_a_name_that_could_lead_elsewhere_is_refused(definition: str, version: str) -> None:
    with pytest.raises(ContractUnknown):
        ComputeSettings().solve_url(definition, version)


@pytest.mark.parametrize(
    "template",
    [
        "http://host/{def}",
        "http://host/{def}/{def}/{ver}",
        "http://{def}/{ver}",
        "ftp://host/{def}/{ver}",
        "http://ho..st/{def}/{ver}",
        "http://host:99999/{def}/{ver}",
        "http://[::1/{def}/{ver}",
        "http://user:secret@host/{def}/{ver}",
        "http://host/{def}/{ver}/{other}",
        "http://host/{def}/{ver} ",
        "{def}{ver}",
    ],
)
def test_a_template_that_is_no_address_is_refused_without_its_secrets(template: str) -> None:
    with pytest.raises(ConfigurationError, match="APP_SERVER_URL") as told:
        read_settings({"APP_SERVER_URL": template})
    assert "secret" not in str(told.value)


def test_settings_come_from_the_environment() -> None:
    settings = read_settings(
        {
            "DATABASE_URL": "postgres://user:secret@host/name",
            "APP_SERVER_URL": "https://host:8080/gh/{def}:{ver}/solve",
            "JOB_TIMEOUT_SEC": "12.5",
        }
    )
    assert settings.solve_url("house-fit", "1.0.0") == "https://host:8080/gh/house-fit:1.0.0/solve"
    assert settings.timeout_seconds == 12.5
    assert settings.database_url == "postgres://user:secret@host/name"
    assert "secret" not in repr(settings)
    own = {"CONTRACTS_DIR": "here", "COMPUTE_RETENTION_DAYS": "30", "MAX_DELIVERY_COUNT": "7"}
    settings = read_settings(own)
    assert (settings.contracts_dir, settings.retention_days) == (Path("here"), 30)
    assert settings.retries.max_attempts == 7
    assert read_settings({}).retries.max_attempts == 5
    wrong = {
        "JOB_TIMEOUT_SEC": ("0", "-1", "nan", "x", "1e9"),
        "COMPUTE_RETENTION_DAYS": ("-1", "nan", "x", "1e9"),
        "MAX_DELIVERY_COUNT": ("0", "1.5", "x", "21"),
    }
    for name, values in wrong.items():
        for bad in values:
            with pytest.raises(ConfigurationError, match=name):
                read_settings({name: bad})
