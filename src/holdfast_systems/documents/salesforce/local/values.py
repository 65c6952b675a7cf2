"""Convert values between JSON and records."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast_systems.documents.salesforce.local.errors import ApiError, cannot_read
from holdfast_systems.documents.salesforce.local.schema import Entity, Field, Row, Stored


def read_values(entity: Entity, body: object) -> Row:
    """Read a record's fields from a body, without its id and attributes."""
    if not isinstance(body, Mapping):
        raise cannot_read("The HTTP entity body is required, but this request has no entity body.")
    values: Row = {}
    for name, value in body.items():
        if name == "attributes" or name.lower() == "id":
            continue
        field = known_field(entity, name)
        values[field.name] = _read(field, value)
    return values


def known_field(entity: Entity, name: str) -> Field:
    """Find a field by its name; refuse an unknown one."""
    if (field := entity.field(name)) is None:
        message = f"No such column '{name}' on sobject of type {entity.name}"
        raise ApiError("INVALID_FIELD", message)
    return field


def _read(field: Field, value: Any) -> Stored:
    if value is None or value == "":
        return None
    try:
        match field.type:
            case "double" | "int":
                return _number(value)
            case "datetime":
                return _time(value)
            case "base64":
                return base64.b64decode(value, validate=True)
            case "string":
                return _text(value).strip() or None
        return _text(value)
    except (ValueError, TypeError, OverflowError):
        kind = type(value).__name__
        raise cannot_read(
            f"Cannot deserialize instance of {field.type} from a value of type {kind} or request "
            f"may be missing a required field: {field.name}"
        ) from None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise TypeError
    return str(value)


def _time(value: Any) -> datetime:
    """Read a time, without its fraction of a second."""
    time = datetime.fromisoformat(value)
    if time.tzinfo is None:
        raise ValueError
    return time.astimezone(UTC).replace(microsecond=0)


def check_value(field: Field, value: Stored) -> None:
    """Check a value against the limits of its field."""
    if isinstance(value, str) and field.choices and value not in field.choices:
        message = f"{field.label}: bad value for restricted picklist field: {value}"
        raise ApiError("INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST", message, [field.name])
    if isinstance(value, str) and field.length and len(value) > field.length:
        message = f"{field.label}: data value too large: {value[:80]} (max length={field.length})"
        raise ApiError("STRING_TOO_LONG", message, [field.name])
    if isinstance(value, float) and field.digits and abs(value) >= 10**field.digits:
        message = f"{field.label}: value outside of valid range on numeric field: {value}"
        raise ApiError("NUMBER_OUTSIDE_VALID_RANGE", message, [field.name])


def _shown(field: Field, value: Stored, url: str) -> Any:
    """Convert a value to JSON; a file's bytes become their URL."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.000+0000")
    if isinstance(value, bytes):
        return f"{url}/{field.name}"
    return value


def attributes(entity: Entity, record_id: str, version: str) -> dict[str, str]:
    url = f"/services/data/v{version}/sobjects/{entity.name}/{record_id}"
    return {"type": entity.name, "url": url}


def show_record(entity: Entity, row: Row, version: str, names: list[str]) -> dict[str, Any]:
    """Return the named fields of a record as JSON, with its attributes."""
    about = attributes(entity, str(row["Id"]), version)
    fields = (known_field(entity, name.strip()) for name in names)
    shown = {field.name: _shown(field, row[field.name], about["url"]) for field in fields}
    return {"attributes": about, **shown}
