"""The organization's records, and the one way to save them.

Nothing here awaits, so the server finishes each call before it starts the next: of two writers to a
record, one comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from holdfast_systems.documents.salesforce.local import rules
from holdfast_systems.documents.salesforce.local.errors import ApiError
from holdfast_systems.documents.salesforce.local.ids import full_id, make_id
from holdfast_systems.documents.salesforce.local.schema import CONTENT, ENTITIES, Entity, Field, Row
from holdfast_systems.documents.salesforce.local.users import User
from holdfast_systems.documents.salesforce.local.values import check_value


class Rollback(Exception):
    """Raise this in a transaction to undo it and leave the block."""


class Organization:
    """All records. Saving replaces a row and never changes it in place."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._rows: dict[str, dict[str, Row]] = {each.name: {} for each in ENTITIES.values()}
        self._unique: dict[tuple[str, str, str], str] = {}
        self._deleted: set[str] = set()
        self._made = 0
        self._undo: list[Callable[[], None]] | None = None
        self.before_save: Callable[[], None] = lambda: None

    def rows(self, entity: Entity) -> Collection[Row]:
        return self._rows[entity.name].values()

    def get(self, entity: Entity, record_id: str) -> Row:
        """Find a record by either form of its id."""
        found = full_id(record_id)
        if found is None or found[:3] != entity.prefix:
            message = f"{entity.label} ID: id value of incorrect type: {record_id}"
            raise ApiError("MALFORMED_ID", message, ["Id"])
        if found in self._deleted:
            raise ApiError("ENTITY_IS_DELETED", "entity is deleted", [], status=404)
        row = self._rows[entity.name].get(found)
        if row is None:
            code = "INVALID_CROSS_REFERENCE_KEY"
            raise ApiError(code, "invalid cross reference id", [], status=404)
        return row

    def find(self, entity: Entity, field: Field, value: str) -> Row | None:
        """Find a record by a unique external id."""
        record_id = self._unique.get((entity.name, field.name, value))
        return None if record_id is None else self._rows[entity.name][record_id]

    def insert(self, entity: Entity, values: Row) -> str:
        """Save a new record, with defaults for missing fields."""
        self.before_save()
        _check_access(entity, values, "createable")
        record_id = self._new_id(entity.prefix)
        defaults: Row = {each.name: each.default for each in entity.fields.values()}
        row: Row = {**defaults, **values, "Id": record_id, "CreatedDate": self._now()}
        self._check(entity, row)
        rules.before_insert(entity.name, row)
        if entity.name == CONTENT:
            row["ContentDocumentId"] = self._new_id("069")
        self._check_unique(entity, row)
        self._put(entity, record_id, row)
        return record_id

    def update(self, user: User, entity: Entity, record_id: str, values: Row) -> str:
        """Save changes to a record, if the organization's rule allows them."""
        self.before_save()
        before = self.get(entity, record_id)
        _check_access(entity, values, "updateable")
        after = {**before, **values}
        self._check(entity, after)
        rules.before_update(user, entity.name, before, after)
        self._check_unique(entity, after)
        self._put(entity, str(before["Id"]), after)
        return str(before["Id"])

    def delete(self, entity: Entity, record_id: str) -> str:
        self.before_save()
        row = self.get(entity, record_id)
        self._put(entity, str(row["Id"]), None)
        return str(row["Id"])

    def clear(self) -> None:
        """Delete every record. Ids are not reused."""
        for rows in self._rows.values():
            rows.clear()
        self._unique.clear()

    def age(self, seconds: int) -> None:
        """Move every time in every record into the past, as if time had passed."""
        passed = timedelta(seconds=seconds)
        aged = [
            (row, {k: v - passed for k, v in row.items() if isinstance(v, datetime)})
            for rows in self._rows.values()
            for row in rows.values()
        ]
        for row, times in aged:
            row.update(times)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Undo everything saved in the block if it raises. Transactions nest."""
        outer, self._undo = self._undo, []
        try:
            yield
        except BaseException as error:
            for undo in reversed(self._undo):
                undo()
            if not isinstance(error, Rollback):
                raise
        else:
            if outer is not None:
                outer.extend(self._undo)
        finally:
            self._undo = outer

    def _new_id(self, prefix: str) -> str:
        self._made += 1
        return make_id(prefix, self._made)

    def _check(self, entity: Entity, row: Row) -> None:
        missing = [
            each.name for each in entity.fields.values() if each.required and row[each.name] is None
        ]
        if missing:
            message = f"Required fields are missing: [{', '.join(missing)}]"
            raise ApiError("REQUIRED_FIELD_MISSING", message, missing)
        for each in entity.fields.values():
            check_value(each, row[each.name])

    def _check_unique(self, entity: Entity, row: Row) -> None:
        for key in _unique_keys(entity, row):
            holder = self._unique.get(key)
            if holder not in (None, row["Id"]):
                message = f"duplicate value found: {key[1]} duplicates value on record with id: "
                raise ApiError("DUPLICATE_VALUE", f"{message}{str(holder)[:15]}", [])

    def _put(self, entity: Entity, record_id: str, row: Row | None) -> None:
        before = self._rows[entity.name].get(record_id)
        if self._undo is not None:
            self._undo.append(lambda: self._replace(entity, record_id, before))
        self._replace(entity, record_id, row)

    def _replace(self, entity: Entity, record_id: str, row: Row | None) -> None:
        """Replace a row, or delete it if there is no new one, and update the unique index."""
        rows = self._rows[entity.name]
        if (before := rows.get(record_id)) is not None:
            for key in _unique_keys(entity, before):
                del self._unique[key]
        if row is None:
            rows.pop(record_id, None)
            self._deleted.add(record_id)
        else:
            rows[record_id] = row
            self._deleted.discard(record_id)
            self._unique.update(dict.fromkeys(_unique_keys(entity, row), record_id))


def _unique_keys(entity: Entity, row: Row) -> list[tuple[str, str, str]]:
    return [
        (entity.name, each.name, str(row[each.name]))
        for each in entity.fields.values()
        if each.external_id and row[each.name] is not None
    ]


def _check_access(entity: Entity, values: Row, access: str) -> None:
    refused = [name for name in values if not getattr(entity.fields[name.lower()], access)]
    if refused:
        message = (
            f"Unable to create/update fields: {', '.join(refused)}. Please check the security "
            "settings of this field and verify that it is read/write for your profile or "
            "permission set."
        )
        raise ApiError("INVALID_FIELD_FOR_INSERT_UPDATE", message, refused)
