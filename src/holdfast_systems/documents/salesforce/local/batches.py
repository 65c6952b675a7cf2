"""The resource composite/sobjects: many records in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from holdfast_systems.documents.salesforce.local.calls import Answer, Call
from holdfast_systems.documents.salesforce.local.errors import ApiError, cannot_read, not_allowed
from holdfast_systems.documents.salesforce.local.limits import COLLECTION_RECORDS_MAX
from holdfast_systems.documents.salesforce.local.organization import Organization, Rollback
from holdfast_systems.documents.salesforce.local.schema import ENTITIES, Entity
from holdfast_systems.documents.salesforce.local.values import read_values

Json: TypeAlias = dict[str, Any]
Save: TypeAlias = Callable[[], str]

ROLLED_BACK = ApiError(
    "ALL_OR_NONE_OPERATION_ROLLED_BACK",
    "Record rolled back because not all records were valid and the request was using AllOrNone "
    "header",
    [],
)


def answer(organization: Organization, call: Call) -> Answer:
    if call.path[2:] or call.method not in ("POST", "PATCH"):
        raise not_allowed(call.method)
    saves = [_save_of(organization, call, record) for record in _records(call)]
    return Answer(200, _save_all(organization, saves, bool(call.body.get("allOrNone", False))))


def _save_all(organization: Organization, saves: list[Save], all_or_none: bool) -> list[Json]:
    """Save each record independently, or all of them together."""
    results: list[Json] = []
    with organization.transaction():
        results = [_result(save) for save in saves]
        if all_or_none and not all(result["success"] for result in results):
            undone = {"success": False, "errors": [ROLLED_BACK.beside_record()]}
            results = [undone if result["success"] else result for result in results]
            raise Rollback
    return results


def _result(save: Save) -> Json:
    try:
        return {"id": save(), "success": True, "errors": []}
    except ApiError as error:
        return {"success": False, "errors": [error.beside_record()]}


def _save_of(organization: Organization, call: Call, record: Json) -> Save:
    """Read a record now, which may fail the whole call, and save it later, which may fail alone."""
    entity = _entity_of(record)
    values = read_values(entity, record)
    record_id = str(record.get("id") or record.get("Id") or "")

    def save() -> str:
        if call.method == "POST":
            return organization.insert(entity, values)
        if not record_id:
            raise ApiError("MISSING_ARGUMENT", "Id not specified in an update call", [])
        return organization.update(call.user, entity, record_id, values)

    return save


def _records(call: Call) -> list[Json]:
    records = call.body.get("records") if isinstance(call.body, dict) else None
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        raise cannot_read("a list of records is required")
    if len(records) > COLLECTION_RECORDS_MAX:
        message = f"record limit reached. cannot submit more than {COLLECTION_RECORDS_MAX} records"
        raise ApiError("EXCEEDED_MAX_ENTITIES_LIMIT", f"{message} into this call")
    if not records:
        raise ApiError("INVALID_INPUT", "at least one record is required")
    return records


def _entity_of(record: Json) -> Entity:
    about = record.get("attributes")
    name = about.get("type") if isinstance(about, dict) else None
    if not isinstance(name, str):
        raise ApiError("INVALID_INPUT", "each record needs attributes with a type")
    if (entity := ENTITIES.get(name.lower())) is None:
        raise ApiError("INVALID_TYPE", f"sObject type '{name}' is not supported.")
    return entity
