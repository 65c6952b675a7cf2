"""Records of Generated_Document__c as jobs, and jobs as records."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import field

from holdfast.store_api import (
    CRASHES_IN_COMPANY_MAX,
    DEFAULT_TENANT,
    PRIORITY_MAX,
    PRIORITY_MIN,
    BadArguments,
    Claimed,
    Job,
    Lease,
    NewJob,
    PayloadTooLarge,
    State,
)
from holdfast_systems.documents.salesforce.client.ids import is_record_id, job_id_of
from holdfast_systems.documents.salesforce.store import limits

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
Fields = dict[str, Any]
_Number = Annotated[float, msgspec.Meta(ge=-limits.NUMBER_MAX, le=limits.NUMBER_MAX)]
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A record as it was read. Any field may be empty, and numbers come as 3.0, or even as 1.5:
    Salesforce's API stores fractions in fields without decimal places."""

    id: str = field(name="Id")
    status: str | None = field(name="Status__c", default=None)
    template: str | None = field(name="Template__c", default=None)
    data: str | None = field(name="Data__c", default=None)
    request_hash: str | None = field(name="RequestHash__c", default=None)
    raw_priority: _Number | None = field(name="Priority__c", default=None)
    raw_attempts: _Number | None = field(name="Attempts__c", default=None)
    correlation_id: str | None = field(name="CorrelationId__c", default=None)
    scheduled_after: str | None = field(name="ScheduledAfter__c", default=None)
    locked_until: str | None = field(name="LockedUntil__c", default=None)
    locked_by: str | None = field(name="LockedBy__c", default=None)
    raw_lock_version: _Number | None = field(name="LockVersion__c", default=None)
    raw_fence: _Number | None = field(name="Fence__c", default=None)
    raw_releases: _Number | None = field(name="Releases__c", default=None)
    raw_snoozes: _Number | None = field(name="Snoozes__c", default=None)
    raw_crashes: _Number | None = field(name="Crashes__c", default=None)
    output_file_id: str | None = field(name="OutputFileId__c", default=None)
    error: str | None = field(name="Error__c", default=None)
    created: str | None = field(name="CreatedDate", default=None)

    @property
    def job_id(self) -> UUID:
        return job_id_of(self.id)

    @property
    def attempts(self) -> int:
        return _count(self.raw_attempts)

    @property
    def releases(self) -> int:
        return _count(self.raw_releases)

    @property
    def snoozes(self) -> int:
        return _count(self.raw_snoozes)

    @property
    def crashes(self) -> int:
        return _count(self.raw_crashes)

    @property
    def is_suspect(self) -> bool:
        """Whether it was in so many crashes beside others that it has to run alone."""
        return self.crashes >= CRASHES_IN_COMPANY_MAX

    @property
    def raised_version(self) -> float:
        """The only value that the organization accepts as the next LockVersion__c."""
        return float(Decimal(str(self.raw_lock_version or 0)) + 1)

    @property
    def fence(self) -> int:
        return int(self.raw_fence or 0)

    @property
    def lease(self) -> Lease:
        return Lease(self.job_id, self.fence)

    @property
    def next_fence(self) -> int:
        """The fence of the next lease, above all others even if somebody set the version back."""
        return max(int(self.raised_version), self.fence + 1)

    @property
    def priority(self) -> int:
        """Higher comes first in Salesforce, lower in the engine."""
        return min(max(-int(self.raw_priority or 0), PRIORITY_MIN), PRIORITY_MAX)

    @property
    def state(self) -> State | None:
        """None if the record is not a job: an organization may have other statuses."""
        state = _STATES.get(self.status or "")
        code, _ = read_error(self.error)
        return State.DEAD if state is State.FAILED and code.endswith(EXHAUSTED) else state

    @property
    def run_at(self) -> datetime | None:
        return read_time(self.scheduled_after) or read_time(self.created)

    @property
    def hash(self) -> str:
        """Its request hash, or one made from its fields if a customer left it empty."""
        return self.request_hash or _hash(self.id, self.template or "", self.data or "")

    def arguments(self) -> dict[str, Any]:
        data = _document(self.data)
        return {"template": self.template or "", "data": data, "request_hash": self.hash}

    def unlocked(self, state: State, **fields: object) -> Fields:
        """Return the fields that end its lease and put it in this state, and these fields."""
        ended = {"Status__c": STATUSES[state], "LockedUntil__c": None, "Fence__c": self.fence + 1}
        return {**ended, **fields}

    def claimed(self, fence: int, correlation_id: str, max_attempts: int) -> Claimed:
        return Claimed(
            id=self.job_id,
            name=JOB_NAME,
            arguments=msgspec.json.encode(self.arguments()),
            queue=QUEUE,
            priority=self.priority,
            tenant=DEFAULT_TENANT,
            correlation_id=correlation_id,
            attempt=self.attempts + 1,
            max_attempts=max_attempts,
            fence=fence,
            snoozes=self.snoozes,
            releases=self.releases,
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
            arguments=self.arguments(),
            max_attempts=max_attempts,
            run_at=self.run_at or created_at,
            created_at=created_at,
            correlation_id=self.correlation_id,
            idempotency_key=self.request_hash,
            attempts=self.attempts,
            snoozes=self.snoozes,
            releases=self.releases,
            crashes=self.crashes,
            fence=self.fence,
            lease_owner=self.locked_by if running else None,
            lease_expires_at=read_time(self.locked_until) if running else None,
            result={"file_id": self.output_file_id} if state is State.SUCCEEDED else None,
            error_code=code.removesuffix(EXHAUSTED) or None,
            error_text=text or None,
        )


_NUMBERS: Final = {
    *("Priority__c", "Attempts__c", "LockVersion__c", "Fence__c"),
    *("Releases__c", "Snoozes__c", "Crashes__c"),
}
_TEXTS: Final = {each.encode_name for each in msgspec.structs.fields(Record)} - _NUMBERS


def new_fields(job: NewJob, now: datetime) -> Fields:
    """Return the fields of a new job's record; refuse what a record has no room for."""
    _check_fits(job)
    arguments: Mapping[str, Any] = msgspec.json.decode(job.arguments)
    if arguments.keys() - ARGUMENTS or not isinstance(arguments.get("template"), str):
        raise BadArguments(
            f"a Salesforce record takes template and data, not {', '.join(arguments)}"
        )
    template = arguments["template"]
    data = msgspec.json.encode(arguments.get("data", {})).decode()
    if len(data) > limits.DATA_CHARS_MAX:
        raise PayloadTooLarge(
            f"the data has {len(data):,} characters; Data__c takes {limits.DATA_CHARS_MAX:,}"
        )
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
            f"Salesforce takes jobs named {JOB_NAME} in the queue {QUEUE},"
            f" not {job.name} in {job.queue}"
        )
    missing = {
        "an id that you choose": job.id_is_chosen,
        "a tenant": job.tenant != DEFAULT_TENANT,
        "tags": bool(job.tags),
        "an expiry": job.expires_in_seconds is not None,
    }
    for what, given in missing.items():
        if given:
            raise BadArguments(f"a Salesforce record can't have {what}")


def same_body(record: Record, fields: Fields) -> bool:
    """Do the record and these fields ask for the same document?"""
    same_data: bool = _document(record.data) == _document(fields["Data__c"])
    return same_data and record.template == fields["Template__c"]


def key_hash(key: str) -> str:
    """Return the key itself if Salesforce stores it unchanged (it trims spaces) and it needs no
    escaping in a URL."""
    return key if len(key) <= limits.HASH_CHARS_MAX and _PLAIN_KEY.fullmatch(key) else _hash(key)


def write_error(code: str, text: str, *, exhausted: bool) -> str:
    """Write one line for people who read it in Salesforce: `RENDER_ERROR: no template 'x'`."""
    first_line = text.partition("\n")[0]  # frames of a traceback follow
    words = " ".join(first_line.split())
    mark = EXHAUSTED if exhausted else ""
    return f"{' '.join(code.replace(':', ' ').split())}{mark}: {words}"[: limits.ERROR_CHARS_MAX]


def read_error(error: str | None) -> tuple[str, str]:
    code, _, text = (error or "").partition(": ")
    return code, text


def write_time(value: datetime) -> str:
    """Round up to whole seconds: Salesforce drops fractions, and nothing must start too early."""
    if value.microsecond:
        value = value.replace(microsecond=0) + timedelta(seconds=1)
    return value.isoformat()


def read_time(text: str | None) -> datetime | None:
    """Read a time; None if it is empty or invalid."""
    try:
        return datetime.strptime(text or "", "%Y-%m-%dT%H:%M:%S.%f%z")
    except ValueError:
        return None


def read_record(row: Mapping[str, Any]) -> Record | None:
    """Read a row; None if it is unusable. A text field with another type is kept as JSON text, for
    the handler to refuse and for people to see."""
    known = {name: row.get(name) for name in (*_NUMBERS, *_TEXTS)}
    try:
        for name in _TEXTS:
            if not isinstance(known[name], str | None):
                known[name] = msgspec.json.encode(known[name]).decode()
        record = msgspec.convert(known, Record, strict=False)
    except (msgspec.ValidationError, RecursionError):
        return None
    return record if is_record_id(row.get("Id")) else None


def _document(data: str | None) -> Any:
    """Decode the data. If it is not JSON, or nested too deeply, return its text, which the
    handler's signature refuses."""
    try:
        document = msgspec.json.decode(data or "{}")
    except (ValueError, RecursionError):
        return data
    return data if _is_deeper(document, limits.DATA_DEPTH_MAX) else document


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deeper(each, levels - 1) for each in inner)


def _count(number: float | None) -> int:
    return max(int(number or 0), 0)


def _hash(*parts: str) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
