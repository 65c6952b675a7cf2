"""What the organization itself does when a record is saved: its flow, its rule, and files."""

from __future__ import annotations

from decimal import Decimal
from pathlib import PurePosixPath

from holdfast_systems.documents.salesforce.local.errors import ApiError
from holdfast_systems.documents.salesforce.local.schema import CONTENT, DOCUMENT, Row
from holdfast_systems.documents.salesforce.local.users import User

LOCK_VERSION = "LockVersion__c"
LOCK_VERSION_MESSAGE = "LockVersion__c must be raised by exactly one: somebody else was faster."


def before_insert(entity_name: str, row: Row) -> None:
    """Fill in the fields that the organization derives."""
    if entity_name == DOCUMENT:
        row["Name"] = row["Name"] or row["Id"]
    if entity_name == CONTENT:
        _describe_file(row)


def before_update(user: User, entity_name: str, before: Row, after: Row) -> None:
    """Make the integration user's writes a compare-and-set on the lock version.

    Plain REST has no If-Match for records of this kind. If two writers have read version n, the
    first one writes n + 1, and the rule refuses the other one's n + 1. People who edit a record
    don't know about the version, so a flow raises it for them.
    """
    if entity_name != DOCUMENT:
        return
    raised = float(Decimal(str(_number(before[LOCK_VERSION]))) + 1)
    if not user.is_integration:
        after[LOCK_VERSION] = raised
    elif _number(after[LOCK_VERSION]) != raised:
        raise ApiError("FIELD_CUSTOM_VALIDATION_EXCEPTION", LOCK_VERSION_MESSAGE, [LOCK_VERSION])


def _number(value: object) -> float:
    return value if isinstance(value, float) else 0.0


def _describe_file(row: Row) -> None:
    content = row["VersionData"]
    path = PurePosixPath(str(row["PathOnClient"]))
    row["Title"] = row["Title"] or path.stem
    row["ContentSize"] = len(content) if isinstance(content, bytes) else 0
    row["FileType"] = path.suffix.lstrip(".").upper() or "UNKNOWN"
