"""Jobs as records of Generated_Document__c, in Salesforce's words and the engine's."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec

from holdfast.store_api import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    BadArguments,
    Claimed,
    Job,
    NewJob,
    PayloadTooLarge,
    State,
)
from holdfast_systems.documents.salesforce.client.ids import is_record_id, job_id_of
from holdfast_systems.documents.salesforce.store.limits import (
    DATA_CHARS_MAX,
    DATA_DEPTH_MAX,
    ERROR_CHARS_MAX,
    HASH_CHARS_MAX,
    NUMBER_MAX,
)

OBJECT: Final = "Generated_Document__c"
JOB_NAME: Final = "generate_document"
QUEUE: Final = "documents"
ARGUMENTS: Final = {"template", "data"}
EXHAUSTED: Final = " (attempts used up)"
_PLAIN_KEY: Final = re.compile(r"[\w.:/@#+-]+", re.ASCII)

STATUSES: Final = {
    State.QUEUED: "QUEUED",
    State.RUNNING: "PROCESSING",
    State.SUCCEEDED: "SUCCEEDED",
    State.FAILED: "FAILED",
    State.DEAD: "FAILED",
    State.CANCELED: "CANCELED",
}
_STATES: Final = {status: state for state, status in STATUSES.items() if state is not State.DEAD}
_FIELDS: Final = {
    "id": "Id",
    "status": "Status__c",
    "template": "Template__c",
    "data": "Data__c",
    "request_hash": "RequestHash__c",
    "priority_told": "Priority__c",
    "attempts_told": "Attempts__c",
    "correlation_id": "CorrelationId__c",
    "scheduled_after": "ScheduledAfter__c",
    "locked_until": "LockedUntil__c",
    "locked_by": "LockedBy__c",
    "lock_version_told": "LockVersion__c",
    "fence_told": "Fence__c",
    "output_file_id": "OutputFileId__c",
    "error": "Error__c",
    "created": "CreatedDate",
}
Fields = dict[str, Any]
_NUMBERS: Final = ("Priority__c", "Attempts__c", "LockVersion__c", "Fence__c")
_TEXTS: Final = tuple(name for name in _FIELDS.values() if name not in _NUMBERS)
_Number = Annotated[float, msgspec.Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Record(msgspec.Struct, frozen=True, kw_only=True, rename=_FIELDS):
    """A record as it was read; Salesforce tells numbers as 3.0, and any field may be empty.

    Its API keeps fractions even of fields without decimal places: a number may also be 1.5.
    """

    id: str
    status: str | None = None
    template: str | None = None
    data: str | None = None
    request_hash: str | None = None
    priority_told: _Number | None = None
    attempts_told: _Number | None = None
    correlation_id: str | None = None
    scheduled_after: str | None = None
    locked_until: str | None = None
    locked_by: str | None = None
    lock_version_told: _Number | None = None
    fence_told: _Number | None = None
    output_file_id: str | None = None
    error: str | None = None
    created: str | None = None

    @property
    def job_id(self) -> UUID:
        return job_id_of(self.id)

    @property
    def attempts(self) -> int:
        return max(int(self.attempts_told or 0), 0)

    @property
    def raised_version(self) -> float:
        """The only value that the organization accepts as the next LockVersion__c."""
        return float(Decimal(str(self.lock_version_told or 0)) + 1)

    @property
    def fence(self) -> int:
        return int(self.fence_told or 0)

    @property
    def next_fence(self) -> int:
        """That of a new lease: above all before it, also if somebody set the version back."""
        return max(int(self.raised_version), self.fence + 1)

    @property
    def priority(self) -> int:
        """Higher comes first in Salesforce, lower in the engine."""
        return min(max(-int(self.priority_told or 0), PRIORITY_MIN), PRIORITY_MAX)

    @property
    def state(self) -> State | None:
        """None if the record is no job: an organization may have more statuses than these."""
        state = _STATES.get(self.status or "")
        code, _ = read_error(self.error)
        return State.DEAD if state is State.FAILED and code.endswith(EXHAUSTED) else state

    @property
    def run_at(self) -> datetime | None:
        return read_time(self.scheduled_after) or read_time(self.created)

    @property
    def hash(self) -> str:
        """Its own request hash, or what identifies a record that a customer created without."""
        return self.request_hash or _hash(self.id, self.template or "", self.data or "")

    def arguments(self) -> bytes:
        return msgspec.json.encode(
            {
                "template": self.template or "",
                "data": _document(self.data),
                "request_hash": self.hash,
            }
        )

    def claimed(self, fence: int, correlation_id: str, max_attempts: int) -> Claimed:
        return Claimed(
            id=self.job_id,
            name=JOB_NAME,
            arguments=self.arguments(),
            queue=QUEUE,
            priority=self.priority,
            tenant=None,
            correlation_id=correlation_id,
            attempt=self.attempts + 1,
            max_attempts=max_attempts,
            fence=fence,
            snoozes=0,
            releases=0,
            expired=False,
        )

    def job(self, max_attempts: int) -> Job | None:
        state = self.state
        if state is None:
            return None
        running = state is State.RUNNING
        created_at = read_time(self.created) or _NO_TIME
        code, text = read_error(self.error)
        return Job(
            id=self.job_id,
            name=JOB_NAME,
            state=state,
            queue=QUEUE,
            priority=self.priority,
            arguments=msgspec.json.decode(self.arguments()),
            max_attempts=max_attempts,
            run_at=self.run_at or created_at,
            created_at=created_at,
            correlation_id=self.correlation_id,
            idempotency_key=self.request_hash,
            attempts=self.attempts,
            fence=self.fence,
            lease_owner=self.locked_by if running else None,
            lease_expires_at=read_time(self.locked_until) if running else None,
            result={"file_id": self.output_file_id} if state is State.SUCCEEDED else None,
            error_code=code.removesuffix(EXHAUSTED) or None,
            error_text=text or None,
        )


def new_fields(job: NewJob, now: datetime) -> Fields:
    """The record of a new job; what a record has no room for is refused."""
    _check_fits(job)
    arguments: Mapping[str, Any] = msgspec.json.decode(job.arguments)
    if arguments.keys() - ARGUMENTS or not isinstance(arguments.get("template"), str):
        raise BadArguments(f"a record holds template and data, not {', '.join(arguments)}")
    template = arguments["template"]
    data = msgspec.json.encode(arguments.get("data", {})).decode()
    if len(data) > DATA_CHARS_MAX:
        raise PayloadTooLarge(f"data has {len(data)} characters; Data__c holds {DATA_CHARS_MAX}")
    due = job.run_at or now + timedelta(seconds=job.delay_seconds)
    return {
        "Status__c": STATUSES[State.QUEUED],
        "Template__c": template,
        "Data__c": data,
        "RequestHash__c": key_hash(job.idempotency_key or _hash(str(job.id), template, data)),
        "Priority__c": -job.priority,
        "Attempts__c": 0,
        "CorrelationId__c": job.correlation_id,
        "ScheduledAfter__c": write_time(due) if due > now else None,
    }


def _check_fits(job: NewJob) -> None:
    if job.name != JOB_NAME or job.queue != QUEUE:
        raise BadArguments(
            f"a Salesforce queue holds jobs named {JOB_NAME} in the queue {QUEUE},"
            f" not {job.name} in {job.queue}"
        )
    missing = {
        "an id of the caller's choice": job.id_is_chosen,
        "a tenant": job.tenant is not None,
        "tags": bool(job.tags),
        "an expiry": job.expires_in_seconds is not None,
    }
    for what, given in missing.items():
        if given:
            raise BadArguments(f"a Salesforce record can't have {what}")


def same_body(record: Record, fields: Fields) -> bool:
    """Do both ask for the same document?"""
    same_data: bool = _document(record.data) == _document(fields["Data__c"])
    return same_data and record.template == fields["Template__c"]


def key_hash(key: str) -> str:
    """The key itself if Salesforce keeps it as it is (spaces at its ends would be cut off) and it
    stays short in an address."""
    return key if len(key) <= HASH_CHARS_MAX and _PLAIN_KEY.fullmatch(key) else _hash(key)


def write_error(code: str, text: str, *, exhausted: bool) -> str:
    """One line, as people read it in Salesforce: `RENDER_ERROR: the template has no field x`."""
    first_line = text.partition("\n")[0]  # frames of a traceback follow
    words = " ".join(first_line.split())
    mark = EXHAUSTED if exhausted else ""
    return f"{' '.join(code.replace(':', ' ').split())}{mark}: {words}"[:ERROR_CHARS_MAX]


def read_error(error: str | None) -> tuple[str, str]:
    code, _, text = (error or "").partition(": ")
    return code, text


def write_time(value: datetime) -> str:
    """Whole seconds, rounded up: Salesforce drops fractions, and nothing may start too early."""
    if value.microsecond:
        value = value.replace(microsecond=0) + timedelta(seconds=1)
    return value.isoformat()


def read_time(text: str | None) -> datetime | None:
    """None also for what is no time of Salesforce's."""
    try:
        return datetime.strptime(text or "", "%Y-%m-%dT%H:%M:%S.%f%z")
    except ValueError:
        return None


def read_record(row: Mapping[str, Any]) -> Record | None:
    """None for a row that is no record. A text that came as something else is taken as JSON: it
    is for the handler to refuse, and for people to see."""
    known = {name: row.get(name) for name in _FIELDS.values()}
    try:
        for name in _TEXTS:
            if not isinstance(known[name], str | None):
                known[name] = msgspec.json.encode(known[name]).decode()
        record = msgspec.convert(known, Record, strict=False)
    except (msgspec.ValidationError, RecursionError):
        return None
    return record if is_record_id(row.get("Id")) else None


def _document(data: str | None) -> Any:
    """What is no JSON, or nested too deeply for whoever handles it, is given as its text, which the
    handler's signature then refuses."""
    try:
        document = msgspec.json.decode(data or "{}")
    except (ValueError, RecursionError):
        return data
    return data if _is_deeper(document, DATA_DEPTH_MAX) else document


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deeper(each, levels - 1) for each in inner)


def _hash(*parts: str) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
