"""JSON Schemas (draft 2020-12) of a job's arguments and result, from its handler's signature."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.domain import codec
from holdfast.domain.errors import BadArguments
from holdfast.domain.limits import PAYLOAD_BYTES_MAX
from holdfast.domain.models import Misfit, Model
from holdfast.domain.signature import Signature

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_HEADING: Final = re.compile(r"(Args|Arguments|Parameters):$")
# `name: text` or `name (type): text` below a heading, or `:param name: text` anywhere.
_ENTRY: Final = re.compile(r"(?:\s+|:param (?:\w+ )?)(?P<name>\w+)(?: \([^)]*\))?:(?P<text>.*)")


class JobSchemas(NamedTuple):
    """The JSON Schemas (draft 2020-12) of one job."""

    arguments: dict[str, Any]
    result: dict[str, Any]


def describe(signature: Signature, doc: str | None) -> JobSchemas:
    """Describe arguments and result as they are stored: the arguments are one object."""
    hints = {name: signature.hints[name] for name in signature.parameters}
    properties, definitions = _describe(hints, signature.models)
    summary, notes = _read(doc)
    for name, described in properties.items():
        if name in notes:
            described["description"] = notes[name]
        if (default := _default(signature, name)) is not msgspec.UNSET:
            described["default"] = default
    arguments = {
        "$schema": _DRAFT,
        "title": signature.name,
        **({"description": summary} if summary else {}),
        "type": "object",
        "properties": properties,
        "required": list(signature.required),
        "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }
    return JobSchemas(arguments, _describe_result(signature))


def _describe_result(signature: Signature) -> dict[str, Any]:
    models = {"result": signature.result} if isinstance(signature.result, Model) else {}
    described, definitions = _describe({"result": signature.hints["return"]}, models)
    return {
        "$schema": _DRAFT,
        **described["result"],
        **({"$defs": definitions} if definitions else {}),
    }


def _describe(
    hints: Mapping[str, Any], models: Mapping[str, Model]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Describe each type, and the types inside that have names."""
    plain = {name: hint for name, hint in hints.items() if name not in models}
    found, definitions = msgspec.json.schema_components(
        plain.values(), schema_hook=_anything, ref_template="#/$defs/{name}"
    )
    described = dict(zip(plain, found, strict=True))
    for name, model in models.items():
        described[name] = model.schema()
        inner = described[name].pop("$defs", {})
        if inner.keys() & definitions.keys():
            # Two types have the same name, or two libraries describe one type.
            described[name] = model.schema(f"#/$defs/{name}.{{model}}")
            inner = {f"{name}.{each}": it for each, it in described[name].pop("$defs").items()}
        definitions.update(inner)
    return {name: described[name] for name in hints}, definitions


def _anything(_kind: type) -> dict[str, Any]:
    """The schema of `object`. Other types without a schema never get into a signature."""
    return {"description": "any JSON value"}  # an empty one would not be accepted


def _default(signature: Signature, name: str) -> Any:
    """The default of a parameter as JSON; UNSET if it has none, or JSON can't hold it."""
    if name not in signature.defaults:
        return msgspec.UNSET
    value, model = signature.defaults[name], signature.models.get(name)
    try:
        plain = value if model is None else model.dump(model.check(value))
        data = codec.encode_arguments({name: plain}, bytes_max=PAYLOAD_BYTES_MAX)
    except (BadArguments, Misfit):
        return msgspec.UNSET
    return codec.decode(data)[name]


def _read(doc: str | None) -> tuple[str, dict[str, str]]:
    """Read a docstring: its first paragraph, and what it says about parameters."""
    lines = inspect.cleandoc(doc or "").splitlines()
    notes: dict[str, str] = {}
    name, listed, summary = "", False, ""
    for index, line in enumerate(lines):
        entry = _ENTRY.match(line) if listed or line.startswith(":param") else None
        if entry is not None:
            name = entry["name"]
            notes[name] = entry["text"].strip()
        elif name and line.startswith(" "):
            notes[name] += f" {line.strip()}"
        else:
            name, listed = "", _HEADING.match(line) is not None
            if len(summary.split("\n")) == index + 1 and line and not listed:
                summary += f"{line}\n"
    return " ".join(summary.split()), notes
