"""The reference of the HTTP API, from its OpenAPI document. `make reference` writes it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

from holdfast import Holdfast
from holdfast.api import make_api
from holdfast.api.openapi import ACROSS, ANY, PUBLIC, SCOPE
from holdfast.api.problems import KINDS, MEDIA_TYPE
from holdfast.webhooks import Webhooks

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "http.md"
LINE_MAX = 100

INTRODUCTION = """\
# HTTP API

Every route, with its parameters, bodies, responses and problems. `make reference` generates this
page from the OpenAPI document, which every server has at `/openapi.json`. For how to use the API,
see [Run it as a service](../guides/service.md) and [Workers in any
language](../guides/leases.md).

Send the key as `Authorization: Bearer KEY`. The *scope* is the one that the key must have. *All
tenants* means that the route requires a key that sees all tenants. Parameters and fields in
**bold** are required. An app has the routes under *Webhooks* if it has
[webhooks](../systems/webhooks.md)."""

COMMON = "In addition to what is listed, every route that needs a key may return"
Schema = Mapping[str, Any]


def document() -> dict[str, Any]:
    hf = Holdfast("sqlite:///reference.db")
    Webhooks(hf)
    return make_api(hf).openapi()


def page() -> str:
    described = document()
    shared = common_codes(described)
    parts = [INTRODUCTION, f"{COMMON} {listed(shared)}."]
    for tag, operations in by_tag(described).items():
        parts.append(f"## {tag}")
        for title, operation in operations:
            parts += route(title, operation, shared)
    parts += ["## Types", "The JSON objects in requests and responses."]
    for name, schema in sorted(described["components"]["schemas"].items()):
        parts += type_of(name, schema)
    parts += ["## Problem codes", PROBLEMS, table(("Code", "Status", ""), problems())]
    return "\n\n".join(wrapped(part) for part in parts if part) + "\n"


PROBLEMS = f"""\
Every error is an `{MEDIA_TYPE}` ([`ProblemDetails`](#type-problemdetails), RFC 9457). Handle \
errors by `code`, which never changes; the texts may."""


def wrapped(part: str) -> str:
    """Break long paragraphs and items of lists. Tables and code keep their lines."""
    if part.startswith(("|", "#", "```")):
        return part
    if part.startswith("- "):
        return "\n".join(filled(item, subsequent_indent="  ") for item in part.splitlines())
    return "\n\n".join(map(filled, inspect.cleandoc(part).split("\n\n")))


def filled(text: str, **options: Any) -> str:
    return fill(text, LINE_MAX, break_long_words=False, break_on_hyphens=False, **options)


def problems() -> Iterator[tuple[str, ...]]:
    for code, kind in KINDS.items():
        yield f"`{code}`", str(kind.status), kind.title


def by_tag(described: Schema) -> dict[str, list[tuple[str, Schema]]]:
    found: dict[str, list[tuple[str, Schema]]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            if method == "parameters":  # those that all routes take
                continue
            tag = operation.get("tags", ["Other"])[0]
            found.setdefault(tag, []).append((f"{method.upper()} {path}", operation))
    return found


def codes(operation: Schema) -> list[str]:
    """The problems that an operation may answer, in the order of their statuses."""
    return [
        code
        for _, response in sorted(operation["responses"].items())
        for code in response.get("content", {}).get(MEDIA_TYPE, {}).get("examples", {})
    ]


def common_codes(described: Schema) -> list[str]:
    guarded = [
        codes(operation)
        for operations in by_tag(described).values()
        for _, operation in operations
        if operation[SCOPE] != PUBLIC
    ]
    return [code for code in guarded[0] if all(code in others for others in guarded)]


def route(title: str, operation: Schema, shared: list[str]) -> Iterator[str]:
    yield f"### `{title}`"
    yield f"{operation['summary']}. {operation.get('description', '')}".strip()
    yield access(operation)
    yield table(("Parameter", "In", "Type", ""), parameters(operation))
    if body := operation.get("requestBody"):
        yield f"Body: {shown_content(body['content'])}."
    yield "\n".join(answers(operation))
    if own := [code for code in codes(operation) if code not in shared]:
        yield f"Problems: {listed(own)}."


def access(operation: Schema) -> str:
    if operation[SCOPE] == PUBLIC:
        return "Needs no key."
    scope = "Any scope" if operation[SCOPE] == ANY else f"Scope `{operation[SCOPE]}`"
    return f"{scope}{', all tenants' if operation.get(ACROSS) else ''}."


def parameters(operation: Schema) -> Iterator[tuple[str, ...]]:
    for each in operation.get("parameters", ()):
        name = f"**`{each['name']}`**" if each.get("required") else f"`{each['name']}`"
        text = each.get("description") or each["schema"].get("description", "")
        yield name, each["in"], shown(each["schema"]), text


def answers(operation: Schema) -> Iterator[str]:
    for status, response in operation["responses"].items():
        content = response.get("content", {})
        if MEDIA_TYPE not in content:
            what = shown_content(content) if content else "no body"
            yield f"- {status}: {what}{headers(response)}"


def headers(response: Schema) -> str:
    names = ", ".join(f"`{name}`" for name in response.get("headers", ()))
    return f"; headers {names}" if names else ""


def shown_content(content: Schema) -> str:
    return " or ".join(
        shown(described["schema"]) if media_type == "application/json" else f"`{media_type}`"
        for media_type, described in content.items()
        if described.get("schema")
    )


def type_of(name: str, schema: Schema) -> Iterator[str]:
    yield f"### Type `{name}`"
    yield schema.get("description", "")
    if "enum" in schema:
        yield f"One of {', '.join(f'`{value}`' for value in schema['enum'])}."
    yield table(("Field", "Type", ""), fields(schema))
    if example := schema.get("example"):
        yield f"```json\n{json.dumps(example, indent=2)}\n```"


def fields(schema: Schema) -> Iterator[tuple[str, ...]]:
    required = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        title = f"**`{name}`**" if name in required else f"`{name}`"
        yield title, shown(inner), described_field(inner)


def described_field(schema: Schema) -> str:
    default = schema.get("default")
    text: str = schema.get("description", "")
    if default in (None, (), [], {}, ""):
        return text
    return f"{text} Default: `{json.dumps(default)}`.".strip()


def shown(schema: Schema) -> str:
    """A type in words."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[`{name}`](#type-{name.lower()})"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(shown(each) for each in choices)
    if values := schema.get("enum"):
        return ", ".join(f"`{value}`" for value in values)
    match schema.get("type"):
        case "array":
            inner = shown(schema["items"]) if schema.get("items") else "anything"
            return f"list of {inner}{bounds(schema, 'Items')}"
        case "string":
            kind = {"date-time": "time", "uuid": "UUID"}.get(schema.get("format", ""), "string")
            return kind + bounds(schema, "Length")
        case "integer" | "number" as number:
            return f"{number}{bounds(schema, 'imum')}"
        case str() as other:
            return other
    return "anything"


def bounds(schema: Schema, suffix: str) -> str:
    unit = {"Length": " characters", "Items": " of them"}.get(suffix, "")
    least, most = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    above = schema.get("exclusiveMinimum")
    words = [f"more than {_number(above)}"] if above is not None else []
    if least is not None and most is not None:
        words.append(f"{_number(least)} to {_number(most)}{unit}")
    elif least is not None:
        words.append(f"at least {_number(least)}{unit}")
    elif most is not None:
        words.append(f"at most {_number(most)}{unit}")
    return "".join(f", {each}" for each in words)


def _number(value: float) -> str:
    return f"{round(value):,}" if value == round(value) else f"{value:g}"


def listed(names: list[str]) -> str:
    return ", ".join(f"`{name}` ({KINDS[name].status})" for name in dict.fromkeys(names))


def table(titles: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [" | ".join(map(in_cell, row)) for row in rows]
    if not lines:
        return ""
    head = [" | ".join(titles), "|".join("---" for _ in titles)]
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in head + lines)


def in_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
