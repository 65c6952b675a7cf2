"""The resource of many records at once: composite/sobjects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast_systems.documents.salesforce.local.calls import Answer, Call
from holdfast_systems.documents.salesforce.local.errors import (
    ApiError,
    cannot_read,
    not_allowed,
)
from holdfast_systems.documents.salesforce.local.limits import COLLECTION_RECORDS_MAX
from holdfast_systems.documents.salesforce.local.organization import Organization
from holdfast_systems.documents.salesforce.local.records import external_id, field_names
from holdfast_systems.documents.salesforce.local.schema import ENTITIES, Entity
from holdfast_systems.documents.salesforce.local.values import read_values, show_record

ROLLED_BACK = ApiError(
    "ALL_OR_NONE_OPERATION_ROLLED_BACK",
    "Record rolled back because not all records were valid and the request was using AllOrNone "
    "header",
    [],
)


class BatchFailed(Exception):
    """Some records of an all-or-none batch were refused; the results say which."""

    def __init__(self, results: list[dict[str, Any]]) -> None:
        super().__init__()
        self.results = results


def answer(organization: Organization, call: Call) -> Answer:
    match call.method, call.path[2:]:
        case "POST", ():
            saves = [_insert_of(organization, call, record) for record in _records(call)]
        case "PATCH", ():
            saves = [_update_of(organization, call, record) for record in _records(call)]
        case "PATCH", (entity_name, field_name):
            records = _records(call)
            saves = [
                _upsert_of(organization, call, _entity(entity_name), field_name, record)
                for record in records
            ]
        case "DELETE", ():
            saves = [_delete_of(organization, record_id) for record_id in _ids(call)]
        case (("GET" | "POST"), (entity_name,)):
            return _read(organization, call, _entity(entity_name))
        case _:
            raise not_allowed(call.method)
    return Answer(200, _save_all(organization, saves, _all_or_none(call)))


def _save_all(
    organization: Organization, saves: list[Callable[[], dict[str, Any]]], all_or_none: bool
) -> list[dict[str, Any]]:
    """Save each record for itself, or all of them together."""
    try:
        with organization.transaction():
            results = [_result(save) for save in saves]
            if all_or_none and not all(result["success"] for result in results):
                raise BatchFailed(results)
    except BatchFailed as failed:
        return [_rolled_back(result) for result in failed.results]
    return results


def _result(save: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return {**save(), "success": True, "errors": []}
    except ApiError as error:
        return {"success": False, "errors": [error.beside_record()]}


def _rolled_back(result: dict[str, Any]) -> dict[str, Any]:
    if not result["success"]:
        return result
    return {"success": False, "errors": [ROLLED_BACK.beside_record()]}


def _insert_of(
    organization: Organization, call: Call, record: dict[str, Any]
) -> Callable[[], dict[str, Any]]:
    entity = _entity_of(record)
    values = read_values(entity, record)
    return lambda: {"id": organization.insert(call.user, entity, values)}


def _update_of(
    organization: Organization, call: Call, record: dict[str, Any]
) -> Callable[[], dict[str, Any]]:
    entity = _entity_of(record)
    values = read_values(entity, record)
    record_id = str(record.get("id") or record.get("Id") or "")

    def save() -> dict[str, Any]:
        if not record_id:
            raise ApiError("MISSING_ARGUMENT", "Id not specified in an update call", [])
        return {"id": organization.update(call.user, entity, record_id, values)}

    return save


def _upsert_of(
    organization: Organization, call: Call, entity: Entity, name: str, record: dict[str, Any]
) -> Callable[[], dict[str, Any]]:
    field = external_id(entity, name)
    values = read_values(entity, record)

    def save() -> dict[str, Any]:
        row = organization.find(entity, field, str(values.get(field.name)))
        if row is None:
            return {"id": organization.insert(call.user, entity, values), "created": True}
        record_id = organization.update(call.user, entity, str(row["Id"]), values)
        return {"id": record_id, "created": False}

    return save


def _delete_of(organization: Organization, record_id: str) -> Callable[[], dict[str, Any]]:
    def save() -> dict[str, Any]:
        for entity in ENTITIES.values():
            if record_id.startswith(entity.prefix):
                return {"id": organization.delete(entity, record_id)}
        raise ApiError("MALFORMED_ID", f"bad id {record_id}", [])

    return save


def _read(organization: Organization, call: Call, entity: Entity) -> Answer:
    """Read records by their ids; null stands for one that is not there."""
    if call.method == "POST":
        ids, asked = _texts(call, "ids"), _texts(call, "fields")
    else:
        ids, asked = _ids(call), call.parameters.get("fields", "").split(",")
    names = field_names(entity, asked)

    def shown(record_id: str) -> dict[str, Any] | None:
        try:
            row = organization.get(entity, record_id)
        except ApiError:
            return None
        return show_record(entity, row, call.version, names)

    return Answer(200, [shown(record_id) for record_id in _bounded(ids)])


def _records(call: Call) -> list[dict[str, Any]]:
    records = call.body.get("records") if isinstance(call.body, dict) else None
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        raise cannot_read("a list of records is required")
    return _bounded(records)


def _texts(call: Call, name: str) -> list[str]:
    texts = call.body.get(name) if isinstance(call.body, dict) else None
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise cannot_read(f"a list of {name} is required")
    return texts


def _ids(call: Call) -> list[str]:
    return _bounded([each for each in call.parameters.get("ids", "").split(",") if each])


def _bounded(items: list[Any]) -> list[Any]:
    if len(items) > COLLECTION_RECORDS_MAX:
        message = f"record limit reached. cannot submit more than {COLLECTION_RECORDS_MAX} records"
        raise ApiError("EXCEEDED_MAX_ENTITIES_LIMIT", f"{message} into this call")
    if not items:
        raise ApiError("INVALID_INPUT", "at least one record is required")
    return items


def _all_or_none(call: Call) -> bool:
    if call.method == "DELETE":
        return call.parameters.get("allOrNone", "false").lower() == "true"
    return bool(call.body.get("allOrNone", False))


def _entity_of(record: dict[str, Any]) -> Entity:
    about = record.get("attributes")
    name = about.get("type") if isinstance(about, dict) else None
    if not isinstance(name, str):
        raise ApiError("INVALID_INPUT", "each record needs attributes with a type")
    return _entity(name)


def _entity(name: str) -> Entity:
    if (entity := ENTITIES.get(name.lower())) is None:
        raise ApiError("INVALID_TYPE", f"sObject type '{name}' is not supported.")
    return entity
