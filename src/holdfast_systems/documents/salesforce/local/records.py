"""The resources of single records: sobjects/..."""

from __future__ import annotations

from typing import Any

from holdfast_systems.documents.salesforce.local.calls import Answer, Call
from holdfast_systems.documents.salesforce.local.errors import (
    ApiError,
    not_allowed,
    not_found,
)
from holdfast_systems.documents.salesforce.local.limits import COLLECTION_RECORDS_MAX
from holdfast_systems.documents.salesforce.local.organization import Organization
from holdfast_systems.documents.salesforce.local.schema import ENTITIES, Entity, Field, Row
from holdfast_systems.documents.salesforce.local.values import (
    attributes,
    read_values,
    show_record,
)


def answer(organization: Organization, call: Call) -> Answer:
    match call.method, call.path[1:]:
        case "GET", ():
            objects = [each.summary() for each in ENTITIES.values()]
            sizes = {"encoding": "UTF-8", "maxBatchSize": COLLECTION_RECORDS_MAX}
            return Answer(200, {**sizes, "sobjects": objects})
        case _, (name, *rest) if (entity := ENTITIES.get(name.lower())) is not None:
            return _entity_answer(organization, call, entity, rest)
    raise not_found()


def _entity_answer(
    organization: Organization, call: Call, entity: Entity, rest: list[str]
) -> Answer:
    match call.method, rest:
        case "GET", []:
            return Answer(200, {"objectDescribe": entity.summary(), "recentItems": []})
        case "GET", ["describe"]:
            return Answer(200, entity.describe())
        case "POST", []:
            return _insert(organization, call, entity)
        case _, [record_id]:
            return _by_id(organization, call, entity, record_id)
        case "GET", [record_id, name] if _is_file(entity, name):
            row = _visible(organization, entity, record_id)
            return Answer(200, row[entity.fields[name.lower()].name])
        case _, [name, value]:
            return _by_external_id(organization, call, entity, name, value)
    raise not_allowed(call.method)


def _by_id(organization: Organization, call: Call, entity: Entity, record_id: str) -> Answer:
    match call.method:
        case "GET":
            row = _visible(organization, entity, record_id)
            return Answer(200, _shown(entity, row, call))
        case "PATCH":
            row = _visible(organization, entity, record_id)
            values = read_values(entity, call.body)
            organization.update(call.user, entity, str(row["Id"]), values)
            return Answer(204)
        case "DELETE":
            row = _visible(organization, entity, record_id)
            organization.delete(entity, str(row["Id"]))
            return Answer(204)
    raise not_allowed(call.method)


def _by_external_id(
    organization: Organization, call: Call, entity: Entity, name: str, value: str
) -> Answer:
    field = external_id(entity, name)
    row = organization.find(entity, field, value)
    if call.method == "PATCH":
        return _upsert(organization, call, entity, field, value, row)
    if row is None:
        raise not_found()
    return _by_id(organization, call, entity, str(row["Id"]))


def _insert(organization: Organization, call: Call, entity: Entity) -> Answer:
    values = read_values(entity, call.body)
    record_id = organization.insert(call.user, entity, values)
    location = {"Location": attributes(entity, record_id, call.version)["url"]}
    return Answer(201, {"id": record_id, "success": True, "errors": []}, location)


def _upsert(
    organization: Organization,
    call: Call,
    entity: Entity,
    field: Field,
    value: str,
    row: Row | None,
) -> Answer:
    values = read_values(entity, call.body)
    if field.name in values:
        message = f"The {field.name} field should not be specified in the sobject data."
        raise ApiError("INVALID_FIELD", message)
    if row is not None:
        record_id = organization.update(call.user, entity, str(row["Id"]), values)
        return Answer(200, {"id": record_id, "success": True, "errors": [], "created": False})
    record_id = organization.insert(call.user, entity, {**values, field.name: value})
    location = {"Location": attributes(entity, record_id, call.version)["url"]}
    result = {"id": record_id, "success": True, "errors": [], "created": True}
    return Answer(201, result, location)


def external_id(entity: Entity, name: str) -> Field:
    field = entity.field(name)
    if field is None or not field.external_id:
        message = f"Provided external ID field does not exist or is not accessible: {name}"
        raise ApiError("NOT_FOUND", message, status=404)
    return field


def _visible(organization: Organization, entity: Entity, record_id: str) -> Row:
    """Find a record for a path: whatever is wrong with its id, it is not there."""
    try:
        return organization.get(entity, record_id)
    except ApiError as error:
        if error.code == "ENTITY_IS_DELETED":
            raise
        raise not_found() from None


def _shown(entity: Entity, row: Row, call: Call) -> dict[str, Any]:
    asked = call.parameters.get("fields")
    if asked is None:
        return show_record(entity, row, call.version, list(row))
    return show_record(entity, row, call.version, field_names(entity, asked.split(",")))


def field_names(entity: Entity, asked: list[str]) -> list[str]:
    """Give the names as the object spells them."""
    fields = {name: entity.field(name.strip()) for name in asked}
    unknown = [name for name, field in fields.items() if field is None]
    if unknown:
        message = f"No such column '{unknown[0]}' on sobject of type {entity.name}"
        raise ApiError("INVALID_FIELD", message)
    return [field.name for field in fields.values() if field is not None]


def _is_file(entity: Entity, name: str) -> bool:
    field = entity.field(name)
    return field is not None and field.type == "base64"
