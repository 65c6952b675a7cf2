"""The organization's objects and their fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

FieldType: TypeAlias = Literal[
    "id", "reference", "string", "textarea", "picklist", "double", "int", "datetime", "base64"
]
Stored: TypeAlias = str | float | int | bool | datetime | bytes | None
Row: TypeAlias = dict[str, Stored]

DOCUMENT = "Generated_Document__c"
CONTENT = "ContentVersion"


@dataclass(frozen=True)
class Field:
    """One field of an object. Long texts and files can't be filtered."""

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
    """An object, with its fields by their lowercase names."""

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


def _system(name: str, label: str, type: FieldType, length: int = 0) -> Field:
    return Field(name, label, type, length, createable=False, updateable=False)


def _entity(name: str, label: str, prefix: str, *own: Field) -> Entity:
    fields = (
        _system("Id", "Record ID", "id", 18),
        *own,
        _system("CreatedDate", "Created Date", "datetime"),
    )
    return Entity(name, label, prefix, {each.name.lower(): each for each in fields})


STATUSES = ("QUEUED", "PROCESSING", "SUCCEEDED", "FAILED", "CANCELED")
HASH = Field("RequestHash__c", "Request Hash", "string", 255, external_id=True)

GENERATED_DOCUMENT = _entity(
    DOCUMENT,
    "Generated Document",
    "a00",
    Field("Name", "Generated Document Name", "string", 80),
    Field("Status__c", "Status", "picklist", 255, default="QUEUED", choices=STATUSES),
    Field("Template__c", "Template", "string", 80, required=True),
    Field("Data__c", "Data", "textarea", 131_072),
    HASH,
    Field("Priority__c", "Priority", "double", digits=9),
    Field("Attempts__c", "Attempts", "double", digits=9, default=0.0),
    Field("ScheduledAfter__c", "Scheduled After", "datetime"),
    Field("LockedUntil__c", "Locked Until", "datetime"),
    Field("LockedBy__c", "Locked By", "string", 255),
    Field("LockVersion__c", "Lock Version", "double", digits=15, default=0.0),
    Field("Fence__c", "Fence", "double", digits=15),
    Field("Releases__c", "Releases", "double", digits=9),
    Field("Snoozes__c", "Snoozes", "double", digits=9),
    Field("Crashes__c", "Crashes", "double", digits=9),
    Field("CorrelationId__c", "Correlation Id", "string", 255),
    Field("OutputFileId__c", "Output File Id", "string", 18),
    Field("Error__c", "Error", "textarea", 32_768),
)

CONTENT_VERSION = _entity(
    CONTENT,
    "Content Version",
    "068",
    Field("Title", "Title", "string", 255),
    Field("PathOnClient", "Path On Client", "string", 500, required=True, updateable=False),
    Field("VersionData", "Version Data", "base64", required=True, updateable=False),
    HASH,
    Field("FirstPublishLocationId", "First Publish Location ID", "reference", 18, updateable=False),
    _system("ContentDocumentId", "ContentDocument ID", "reference", 18),
    _system("ContentSize", "Size", "int"),
    _system("FileType", "File Type", "string", 20),
)

ENTITIES = {each.name.lower(): each for each in (GENERATED_DOCUMENT, CONTENT_VERSION)}
