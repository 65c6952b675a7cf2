"""The OpenAPI document: FastAPI's, with our types, in plain English."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from holdfast.api.answers import encode
from holdfast.api.envelope import CORRELATION_HEADER, TRACE_HEADER
from holdfast.api.examples import EXAMPLES
from holdfast.api.openapi import components, schema_of

_SENTENCE: Final = re.compile(r"(?P<summary>.+?)\.(\s+(?P<more>.*))?\s*", re.DOTALL)
_REFERENCE: Final = re.compile(r'"#/components/schemas/([^"]+)"')
_ABOUT: Final = (
    "Enqueue, watch and manage jobs, and run them in any language. Errors are problem details"
    " (RFC 9457), whose `code` never changes. Numbers in JSON are stored exactly, or rejected."
)
_PARAMETERS: Final = {
    "CorrelationId": {
        "name": CORRELATION_HEADER,
        "in": "header",
        "description": "Becomes the correlation ID of new jobs, and is returned in the response.",
        "schema": {"type": "string"},
    },
    "TraceParent": {
        "name": TRACE_HEADER,
        "in": "header",
        "description": "The caller's trace (W3C Trace Context). New jobs continue it.",
        "schema": {"type": "string"},
    },
}


def make_document(api: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=api.title,
        version=api.version,
        openapi_version="3.1.0",
        description=_ABOUT,
        routes=api.routes,
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(components())
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["components"]["parameters"] = _PARAMETERS
    document["security"] = [{"key": []}]
    examples = {encode(schema_of(kind)): example for kind, example in EXAMPLES.items()}
    shared = [{"$ref": f"#/components/parameters/{name}"} for name in _PARAMETERS]
    for path in document["paths"].values():
        for operation in path.values():
            _tidy(operation, examples)
        path["parameters"] = shared
    document["components"]["schemas"] = _used(document["paths"], schemas)
    return document


def _used(paths: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """The schemas that these paths refer to: other apps of this process may have more routes."""
    used: set[str] = set()
    found = set(_REFERENCE.findall(encode(paths).decode()))
    while found:
        used |= found
        found = {
            name for each in found for name in _REFERENCE.findall(encode(schemas[each]).decode())
        } - used
    return {name: schema for name, schema in schemas.items() if name in used}


def _tidy(operation: dict[str, Any], examples: Mapping[bytes, Any]) -> None:
    """Make the first sentence of the docstring the summary, remove FastAPI's own errors and
    responses, which this API never sends, and restore the nulls that it drops from examples.
    """
    if "HTTPValidationError" in str(operation["responses"].get("422")):
        del operation["responses"]["422"]
    for described in (operation.get("requestBody", {}), *operation["responses"].values()):
        contents = described.get("content", {})
        for media_type, content in list(contents.items()):
            if content.get("schema") == {}:
                del contents[media_type]
            elif (schema := encode(content["schema"])) in examples:
                content["example"] = examples[schema]
    words = _SENTENCE.fullmatch(" ".join(operation.pop("description", "").split()))
    if words is not None:
        operation["summary"] = words["summary"]
        if words["more"]:
            operation["description"] = words["more"]


def operation_id(route: Any) -> str:
    """`enqueue_job` becomes `enqueueJob`."""
    first, *others = str(route.name).split("_")
    return first + "".join(word.capitalize() for word in others)
