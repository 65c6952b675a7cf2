"""The resources sobjects/...: objects and single records."""

from __future__ import annotations

from holdfast_systems.documents.salesforce.local.calls import Answer, Call
from holdfast_systems.documents.salesforce.local.errors import ApiError, not_allowed, not_found
from holdfast_systems.documents.salesforce.local.limits import COLLECTION_RECORDS_MAX
from holdfast_systems.documents.salesforce.local.organization import Organization
from holdfast_systems.documents.salesforce.local.schema import ENTITIES, Entity, Field, Row
from holdfast_systems.documents.salesforce.local.values import attributes, read_values, show_record


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
        case "GET", ["describe"]:
            return Answer(200, entity.describe())
        case "POST", []:
            return _insert(organization, call, entity, read_values(entity, call.body))
        case _, [record_id]:
            return _by_id(organization, call, entity, record_id)
        case "GET", [record_id, name] if _is_file(entity, name):
            row = _visible(organization, entity, record_id)
            return Answer(200, row[entity.fields[name.lower()].name])
        case _, [name, value]:
            return _by_external_id(organization, call, entity, name, value)
    raise not_allowed(call.method)


def _by_id(organization: Organization, call: Call, entity: Entity, record_id: str) -> Answer:
    if call.method not in ("GET", "PATCH", "DELETE"):
        raise not_allowed(call.method)
    row = _visible(organization, entity, record_id)
    if call.method == "GET":
        asked = call.parameters.get("fields")
        names = list(row) if asked is None else asked.split(",")
        return Answer(200, show_record(entity, row, call.version, names))
    if call.method == "PATCH":
        organization.update(call.user, entity, str(row["Id"]), read_values(entity, call.body))
    else:
        organization.delete(entity, str(row["Id"]))
    return Answer(204)


def _by_external_id(
    organization: Organization, call: Call, entity: Entity, name: str, value: str
) -> Answer:
    field = entity.field(name)
    if field is None or not field.external_id:
        message = f"Provided external ID field does not exist or is not accessible: {name}"
        raise ApiError("NOT_FOUND", message, status=404)
    row = organization.find(entity, field, value)
    if call.method == "PATCH":
        return _upsert(organization, call, entity, field, value, row)
    if row is None:
        raise not_found()
    return _by_id(organization, call, entity, str(row["Id"]))


def _insert(
    organization: Organization, call: Call, entity: Entity, values: Row, **result: object
) -> Answer:
    record_id = organization.insert(entity, values)
    location = {"Location": attributes(entity, record_id, call.version)["url"]}
    return Answer(201, {"id": record_id, "success": True, "errors": [], **result}, location)


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
    return _insert(organization, call, entity, {**values, field.name: value}, created=True)


def _visible(organization: Organization, entity: Entity, record_id: str) -> Row:
    """Find the record in a path. If its id is invalid in any way, the path is not found."""
    try:
        return organization.get(entity, record_id)
    except ApiError as error:
        if error.code == "ENTITY_IS_DELETED":
            raise
        raise not_found() from None


def _is_file(entity: Entity, name: str) -> bool:
    field = entity.field(name)
    return field is not None and field.type == "base64"
