"""Values between JSON and records: what a body may hold, and how a record is shown."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast_systems.documents.salesforce.local.errors import ApiError, cannot_read
from holdfast_systems.documents.salesforce.local.schema import Entity, Field, Row, Stored


def read_values(entity: Entity, body: object) -> Row:
    """Read a record's fields from a body; the id and the attributes are no fields."""
    if not isinstance(body, Mapping):
        raise cannot_read("The HTTP entity body is required, but this request has no entity body.")
    values: Row = {}
    for name, value in body.items():
        if name == "attributes" or name.lower() == "id":
            continue
        field = entity.field(name)
        if field is None:
            message = f"No such column '{name}' on sobject of type {entity.name}"
            raise ApiError("INVALID_FIELD", message)
        values[field.name] = _read(field, value)
    return values


def _read(field: Field, value: Any) -> Stored:
    if value is None or value == "":
        return None
    try:
        match field.type:
            case "double" | "int":
                return _number(value)
            case "boolean":
                return _boolean(value)
            case "datetime":
                return _moment(value)
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


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise TypeError
    return str(value)


def _moment(value: Any) -> datetime:
    """Read a time; the fraction of a second is dropped, as there is no room for it."""
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError
    return moment.astimezone(UTC).replace(microsecond=0)


def check_value(field: Field, value: Stored) -> None:
    """Check what a value has to keep to, whoever writes it."""
    if isinstance(value, str) and field.choices and value not in field.choices:
        message = f"{field.label}: bad value for restricted picklist field: {value}"
        raise ApiError("INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST", message, [field.name])
    if isinstance(value, str) and field.length and len(value) > field.length:
        message = f"{field.label}: data value too large: {value[:80]} (max length={field.length})"
        raise ApiError("STRING_TOO_LONG", message, [field.name])
    if isinstance(value, float) and field.digits and abs(value) >= 10**field.digits:
        message = f"{field.label}: value outside of valid range on numeric field: {value}"
        raise ApiError("NUMBER_OUTSIDE_VALID_RANGE", message, [field.name])


def shown(field: Field, value: Stored, url: str) -> Any:
    """Show a value as JSON; a file's bytes have an address of their own."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.000+0000")
    if isinstance(value, bytes):
        return f"{url}/{field.name}"
    return value


def attributes(entity: Entity, record_id: str, version: str) -> dict[str, str]:
    return {
        "type": entity.name,
        "url": f"/services/data/v{version}/sobjects/{entity.name}/{record_id}",
    }


def show_record(entity: Entity, row: Row, version: str, names: list[str]) -> dict[str, Any]:
    """Show the named fields of a record, with the attributes that every record has."""
    about = attributes(entity, str(row["Id"]), version)
    record: dict[str, Any] = {"attributes": about}
    for name in names:
        record[name] = shown(entity.fields[name.lower()], row[name], about["url"])
    return record
