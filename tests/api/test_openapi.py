"""The OpenAPI document: valid, whole, in plain English, and with examples that are true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from holdfast import Holdfast
from holdfast.api import make_api
from holdfast.api.openapi import PUBLIC
from holdfast.api.problems import KINDS
from holdfast.webhooks import Webhooks

METHODS = {"get", "put", "post", "delete", "patch"}


@pytest.fixture(scope="module", params=["engine", "webhooks"])
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    hf = Holdfast("sqlite:///jobs.db")
    if request.param == "webhooks":
        Webhooks(hf)
    return make_api(hf).openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS & item.keys():
            yield f"{method.upper()} {path}", item[method]


def contents(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The described bodies, and where."""
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"body {media_type}", content
    for status, response in operation["responses"].items():
        for media_type, content in response.get("content", {}).items():
            yield f"{status} {media_type}", content


def validator(document: dict[str, Any], schema: dict[str, Any]) -> Any:
    whole = {**schema, "components": document["components"]}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True)


def test_every_schema_is_valid_and_every_reference_leads_somewhere(
    document: dict[str, Any],
) -> None:
    assert document["openapi"].startswith("3.1.")
    for name in document["components"]["schemas"]:
        validator(document, {"$ref": f"#/components/schemas/{name}"})
    for reference in re.findall(r"'\$ref': '([^']+)'", str(document)):
        found: Any = document
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]


def test_every_operation_has_a_summary_and_a_short_id(document: dict[str, Any]) -> None:
    ids = []
    for where, operation in operations(document):
        assert re.fullmatch(r"[A-Z][^\n]+[^.]", operation["summary"]), where
        assert re.fullmatch(r"[a-z]+[A-Z][A-Za-z]*", operation["operationId"]), where
        assert operation["tags"], where
        ids.append(operation["operationId"])
    assert len(ids) == len(set(ids))


def test_every_body_and_answer_has_an_example_that_fits_its_schema(
    document: dict[str, Any],
) -> None:
    for where, operation in operations(document):
        for place, content in contents(operation):
            given = content.get("examples", {}).values()
            examples = [each["value"] for each in given] or [content.get("example")]
            check = validator(document, content["schema"])
            for example in examples:
                assert example is not None, (where, place)
                assert list(check.iter_errors(example)) == [], (where, place)


def test_every_parameter_is_described_by_a_schema(document: dict[str, Any]) -> None:
    for where, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            check = validator(document, parameter["schema"])
            if "example" in parameter:
                check.validate(parameter["example"])
            assert parameter["in"] != "path" or parameter["required"], (where, parameter)


def test_every_error_is_a_problem_with_its_code(document: dict[str, Any]) -> None:
    named = set()
    for where, operation in operations(document):
        for status, response in operation["responses"].items():
            if int(status) < 400:
                continue
            content = response["content"]["application/problem+json"]
            for code in content["examples"]:
                assert KINDS[code].status == int(status), (where, code)
                named.add(code)
    # What no route answers by itself: the server does, or the router.
    assert set(KINDS) - named <= {
        "no-such-method",
        "head-too-large",
        "too-many-connections",
    }


def test_every_operation_says_who_may_call_it(document: dict[str, Any]) -> None:
    for where, operation in operations(document):
        assert operation["x-scope"], where
        assert (operation.get("security") == []) == (operation["x-scope"] == PUBLIC), where
