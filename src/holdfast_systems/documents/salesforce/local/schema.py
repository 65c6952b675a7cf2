"""The organization's objects and their fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

FieldType: TypeAlias = Literal[
    "id", "reference", "string", "textarea", "picklist", "double", "int", "boolean", "datetime",
    "base64",
]  # fmt: skip
Stored: TypeAlias = str | float | int | bool | datetime | bytes | None
Row: TypeAlias = dict[str, Stored]

DOCUMENT = "Generated_Document__c"
CONTENT = "ContentVersion"


@dataclass(frozen=True)
class Field:
    """One field of an object; a long text or a file can't be in a filter."""

    name: str
    label: str
    type: FieldType
    length: int = 0
    digits: int = 0
    required: bool = False
    createable: bool = True
    updateable: bool = True
    external_id: bool = False
    default: Stored = None
    choices: tuple[str, ...] = ()

    @property
    def filterable(self) -> bool:
        return self.type not in ("textarea", "base64")

    @property
    def case_sensitive(self) -> bool:
        return self.external_id or self.type in ("id", "reference")

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "label": self.label,
            "type": self.type,
            "length": self.length,
            "precision": self.digits,
            "scale": 0,
            "custom": self.name.endswith("__c"),
            "createable": self.createable,
            "updateable": self.updateable,
            "nillable": not self.required,
            "defaultedOnCreate": self.default is not None,
            "externalId": self.external_id,
            "unique": self.external_id,
            "caseSensitive": self.case_sensitive,
            "idLookup": self.external_id or self.type == "id",
            "filterable": self.filterable,
            "sortable": self.filterable,
            "restrictedPicklist": self.type == "picklist",
            "picklistValues": [self._choice(choice) for choice in self.choices],
        }

    def _choice(self, choice: str) -> dict[str, Any]:
        default = choice == self.default
        return {"active": True, "defaultValue": default, "label": choice, "value": choice}


@dataclass(frozen=True)
class Entity:
    """An object, with its fields by their names in small letters."""

    name: str
    label: str
    prefix: str
    fields: dict[str, Field] = field(repr=False)

    def field(self, name: str) -> Field | None:
        return self.fields.get(name.lower())

    def summary(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "label": self.label,
            "keyPrefix": self.prefix,
            "custom": self.name.endswith("__c"),
            "createable": True,
            "updateable": True,
            "deletable": True,
            "queryable": True,
        }

    def describe(self) -> dict[str, Any]:
        return {**self.summary(), "fields": [each.describe() for each in self.fields.values()]}


def _text(name: str, label: str, length: int = 255) -> Field:
    return Field(name, label, "string", length)


def _long_text(name: str, label: str, length: int) -> Field:
    return Field(name, label, "textarea", length)


def _number(name: str, label: str, digits: int, default: float | None = None) -> Field:
    return Field(name, label, "double", digits=digits, default=default)


def _moment(name: str, label: str) -> Field:
    return Field(name, label, "datetime")


def _system(name: str, label: str, type: FieldType, length: int = 0) -> Field:
    return Field(name, label, type, length, createable=False, updateable=False)


def _entity(name: str, label: str, prefix: str, *own: Field) -> Entity:
    fields = (
        _system("Id", "Record ID", "id", 18),
        *own,
        _system("OwnerId", "Owner ID", "reference", 18),
        _system("CreatedDate", "Created Date", "datetime"),
        _system("CreatedById", "Created By ID", "reference", 18),
        _system("LastModifiedDate", "Last Modified Date", "datetime"),
        _system("LastModifiedById", "Last Modified By ID", "reference", 18),
        _system("SystemModstamp", "System Modstamp", "datetime"),
        _system("IsDeleted", "Deleted", "boolean"),
    )
    return Entity(name, label, prefix, {each.name.lower(): each for each in fields})


STATUSES = ("QUEUED", "PROCESSING", "SUCCEEDED", "FAILED", "CANCELED")
HASH = Field("RequestHash__c", "Request Hash", "string", 255, external_id=True)

GENERATED_DOCUMENT = _entity(
    DOCUMENT,
    "Generated Document",
    "a00",
    _text("Name", "Generated Document Name", 80),
    Field("Status__c", "Status", "picklist", 255, default="QUEUED", choices=STATUSES),
    Field("Template__c", "Template", "string", 80, required=True),
    _long_text("Data__c", "Data", 131_072),
    _text("JobName__c", "Job Name"),
    HASH,
    _number("Priority__c", "Priority", 9),
    _number("Attempts__c", "Attempts", 9, default=0.0),
    _moment("ScheduledAfter__c", "Scheduled After"),
    _moment("LockedUntil__c", "Locked Until"),
    _text("LockedBy__c", "Locked By"),
    _number("LockVersion__c", "Lock Version", 15, default=0.0),
    _number("Fence__c", "Fence", 15),
    _text("CorrelationId__c", "Correlation Id"),
    _text("OutputFileId__c", "Output File Id", 18),
    _long_text("Error__c", "Error", 32_768),
)

CONTENT_VERSION = _entity(
    CONTENT,
    "Content Version",
    "068",
    _text("Title", "Title"),
    Field("PathOnClient", "Path On Client", "string", 500, required=True, updateable=False),
    Field("VersionData", "Version Data", "base64", required=True, updateable=False),
    HASH,
    _system("ContentDocumentId", "ContentDocument ID", "reference", 18),
    _system("ContentSize", "Size", "int"),
    _system("FileType", "File Type", "string", 20),
    _system("FileExtension", "File Extension", "string", 40),
    _system("Checksum", "Checksum", "string", 50),
    _system("IsLatest", "Is Latest", "boolean"),
    _system("VersionNumber", "Version Number", "string", 20),
)

ENTITIES = {each.name.lower(): each for each in (GENERATED_DOCUMENT, CONTENT_VERSION)}
