"""The metadata in deploy/salesforce makes the organization that the local Salesforce plays."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from holdfast_systems.documents.salesforce.local.rules import LOCK_VERSION_MESSAGE
from holdfast_systems.documents.salesforce.local.schema import (
    CONTENT,
    CONTENT_VERSION,
    DOCUMENT,
    ENTITIES,
    GENERATED_DOCUMENT,
    Entity,
    Field,
)

METADATA = Path(__file__).parents[3] / "deploy/salesforce/force-app/main/default"
NAMESPACE = "{http://soap.sforce.com/2006/04/metadata}"
TYPES = {
    "string": "Text",
    "textarea": "LongTextArea",
    "picklist": "Picklist",
    "double": "Number",
    "datetime": "DateTime",
}
PERMISSION = "$Permission.Holdfast_Worker"


def read(path: str) -> ET.Element:
    return ET.parse(METADATA / path).getroot()


def value(element: ET.Element, name: str) -> str:
    """The text of an element's child; empty if there is none."""
    return element.findtext(NAMESPACE + name, "")


def custom_fields(entity: Entity) -> list[Field]:
    return [each for each in entity.fields.values() if each.name.endswith("__c")]


@pytest.mark.parametrize(
    "entity", [GENERATED_DOCUMENT, CONTENT_VERSION], ids=lambda each: each.name
)
def test_every_field_is_deployed_as_the_local_one_has_it(entity: Entity) -> None:
    folder = METADATA / "objects" / entity.name / "fields"
    deployed = {path.name.partition(".")[0] for path in folder.iterdir()}
    assert deployed == {each.name for each in custom_fields(entity)}
    for each in custom_fields(entity):
        found = read(f"objects/{entity.name}/fields/{each.name}.field-meta.xml")
        assert value(found, "fullName") == each.name
        assert value(found, "label") == each.label
        assert value(found, "type") == TYPES[each.type]
        assert (value(found, "required") == "true") == each.required
        is_unique = (value(found, "externalId"), value(found, "unique")) == ("true", "true")
        assert is_unique == each.external_id
        if each.type in ("string", "textarea"):
            assert int(value(found, "length")) == each.length
        if each.type == "double":
            assert (int(value(found, "precision")), value(found, "scale")) == (each.digits, "0")
            assert value(found, "defaultValue") == ("" if each.default is None else "0")


def test_the_statuses_are_those_of_the_local_one() -> None:
    found = read(f"objects/{DOCUMENT}/fields/Status__c.field-meta.xml")
    choices = [*found.iter(f"{NAMESPACE}value")]
    status = GENERATED_DOCUMENT.field("Status__c")
    assert status is not None
    assert tuple(value(each, "fullName") for each in choices) == status.choices
    default = [value(each, "fullName") for each in choices if value(each, "default") == "true"]
    assert default == [status.default]


def test_the_rule_rejects_what_the_local_one_rejects() -> None:
    folder = f"objects/{DOCUMENT}/validationRules"
    rule = read(f"{folder}/Lock_Version_Raised_By_One.validationRule-meta.xml")
    assert value(rule, "active") == "true"
    assert value(rule, "errorMessage") == LOCK_VERSION_MESSAGE
    assert value(rule, "errorDisplayField") == "LockVersion__c"
    formula = value(rule, "errorConditionFormula")
    raised = "BLANKVALUE(LockVersion__c, 0) <> BLANKVALUE(PRIORVALUE(LockVersion__c), 0) + 1"
    assert formula == f"AND({PERMISSION}, NOT(ISNEW()), {raised})"


def test_the_flow_raises_the_version_for_people_before_the_rule_looks() -> None:
    flow = read("flows/Raise_Lock_Version.flow-meta.xml")
    start = flow.find(f"{NAMESPACE}start")
    assert start is not None
    assert value(flow, "status") == "Active"
    assert value(start, "object") == DOCUMENT
    assert value(start, "triggerType") == "RecordBeforeSave"
    assert value(start, "recordTriggerType") == "Update"
    formulas = {
        value(each, "name"): value(each, "expression")
        for each in flow.findall(f"{NAMESPACE}formulas")
    }
    assert formulas == {
        "IsWorker": f"{{!{PERMISSION}}}",
        "NextVersion": "BLANKVALUE({!$Record__Prior.LockVersion__c}, 0) + 1",
    }
    names = {value(each, "name") for each in flow if each.find(f"{NAMESPACE}name") is not None}
    targets = {found.text for found in flow.iter(f"{NAMESPACE}targetReference")}
    assert targets == {"Who_Writes", "Raise"}
    assert targets <= names


def test_the_permission_set_covers_every_field_and_deletes_nothing() -> None:
    permissions = read("permissionsets/Holdfast_Worker.permissionset-meta.xml")
    granted = {
        value(each, "field")
        for each in permissions.findall(f"{NAMESPACE}fieldPermissions")
        if value(each, "editable") == value(each, "readable") == "true"
    }
    # Salesforce grants required fields by itself, and refuses a permission set that names one.
    assert granted == {
        f"{entity.name}.{each.name}"
        for entity in ENTITIES.values()
        for each in custom_fields(entity)
        if not each.required
    }
    (documents,) = permissions.findall(f"{NAMESPACE}objectPermissions")
    assert value(documents, "object") == DOCUMENT
    allowed = {each.tag.removeprefix(NAMESPACE) for each in documents if each.text == "true"}
    assert allowed == {"allowCreate", "allowEdit", "allowRead", "viewAllRecords"}
    (custom,) = permissions.findall(f"{NAMESPACE}customPermissions")
    assert (value(custom, "name"), value(custom, "enabled")) == ("Holdfast_Worker", "true")
    assert (METADATA / "customPermissions/Holdfast_Worker.customPermission-meta.xml").exists()


def test_files_are_named_as_the_command_line_of_salesforce_expects() -> None:
    for path in METADATA.rglob("*.xml"):
        kind = path.name.split(".")[-2].removesuffix("-meta")
        root = ET.parse(path).getroot()
        expected = {"object": "CustomObject", "field": "CustomField"}.get(kind, kind)
        assert root.tag.lower() == f"{NAMESPACE}{expected}".lower()
        assert re.fullmatch(r"\w+\.\w+-meta\.xml", path.name)
    assert (METADATA / f"objects/{CONTENT}/fields/RequestHash__c.field-meta.xml").exists()
