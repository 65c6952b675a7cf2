"""Rows of the webhook tables."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

SagaStatus = Literal["Pending", "InFlight", "Delivered", "DeadLettered", "Canceled"]
JobStatus = Literal["Pending", "Leased", "Completed", "Failed"]


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint and the event types that it wants; none means all.

    `disabled_because` is `HTTP_410` or `FAILING` if it was not disabled by hand. `failing_since` is
    the time of the first failure after the last success.
    """

    id: UUID
    tenant: str
    url: str
    event_types: tuple[str, ...]
    preset: str
    created_at: datetime | None = None
    disabled_at: datetime | None = None
    disabled_because: str | None = None
    failing_since: datetime | None = None

    def wants(self, event_type: str) -> bool:
        """Whether events of this type are sent to it."""
        return not self.event_types or event_type in self.event_types


class NewSubscription(Subscription, frozen=True, kw_only=True):
    """A subscription with its secret, which is returned only once."""

    secret: str

    def __repr__(self) -> str:
        return f"NewSubscription(id={self.id!r}, url={self.url!r}, secret=...)"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event. `payload` is JSON, as published."""

    id: UUID
    tenant: str
    event_type: str
    aggregate_type: str | None
    aggregate_id: str | None
    occurred_at: datetime
    payload: str
    created_at: datetime


class Saga(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery of one event to one subscription, over all its attempts."""

    id: UUID
    tenant: str
    event_id: UUID
    subscription_id: UUID
    status: SagaStatus
    attempt_count: int
    next_attempt_at: datetime | None
    requeued_from: UUID | None
    replay_id: UUID | None
    created_at: datetime
    ended_at: datetime | None


class SagaPage(msgspec.Struct, frozen=True):
    """Sagas, newest first. Pass `after` to get the next page; it is None on the last page."""

    sagas: list[Saga]
    after: UUID | None


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery attempt and the result of its request. `id` is the ID of its job."""

    id: UUID
    saga_id: UUID
    attempt_no: int
    status: JobStatus
    lease_until: datetime | None
    attempt_at: datetime
    ended_at: datetime | None
    response_status: int | None
    error_code: str | None
    error_text: str | None
    duration_ms: int | None
    response_headers: str | None
    response_body: bytes | None


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A saga that ended without a delivery, with the payload it would have sent."""

    id: UUID
    tenant: str
    saga_id: UUID
    event_id: UUID
    subscription_id: UUID
    final_error_code: str
    failed_at: datetime
    payload_snapshot: str

    @property
    def payload(self) -> Any:
        """The payload as a JSON value."""
        return msgspec.json.decode(self.payload_snapshot)


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A time range whose events are sent again. `events` and `sagas` count those so far."""

    id: UUID
    tenant: str
    subscription_id: UUID | None
    since: datetime
    until: datetime
    events: int
    sagas: int
    created_at: datetime
    ended_at: datetime | None


class ReplayCount(msgspec.Struct, frozen=True):
    """What a replay would send: one saga for each event and subscription that wants it. `is_all` is
    false if there are more events than were counted."""

    events: int
    sagas: int
    is_all: bool
