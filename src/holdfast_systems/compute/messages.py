"""The messages about jobs, over Azure Service Bus. `contracts/message.schema.json` is their shape.

A message wakes a worker, and says more for whoever reads along. The worker itself believes only the
database: a message without all this, that has just the job's id, does as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from holdfast import ConfigurationError, Holdfast
from holdfast.messengers import Hint, ServiceBusEscort
from holdfast_systems.compute.limits import LOCK_RENEW_SECONDS
from holdfast_systems.compute.records import RequestRow
from holdfast_systems.compute.settings import ComputeSettings
from holdfast_systems.environment import messengers_with


class Message(msgspec.Struct, frozen=True):
    """The body of a message."""

    job_id: UUID
    tenant_id: str
    app_id: str
    definition: str
    version: str
    inputs_hash: str
    requested_at: datetime
    payload: msgspec.Raw
    priority: int


class Messages:
    """Writes the messages of the requests that this process accepts."""

    def __init__(self) -> None:
        self._requests: dict[UUID, RequestRow] = {}

    @contextmanager
    def about(self, request: RequestRow) -> Iterator[None]:
        """In this block, the message about the request's job has all of it."""
        self._requests[request.id] = request
        try:
            yield
        finally:
            del self._requests[request.id]

    def compose(self, hint: Hint) -> bytes | None:
        """The body for a hint; None if the job's id has to do."""
        request = self._requests.get(hint.job_id)
        if request is None:
            return None
        return msgspec.json.encode(
            Message(
                job_id=request.id,
                tenant_id=request.tenant_id,
                app_id=request.app_id,
                definition=request.definition,
                version=request.version,
                inputs_hash=request.inputs_hash,
                requested_at=_time_of(request.id),
                payload=msgspec.Raw(request.payload_json.encode()),
                priority=request.priority,
            )
        )


def _time_of(job_id: UUID) -> datetime:
    """When the id was made: a UUID of version 7 begins with the milliseconds since 1970."""
    return datetime.fromtimestamp((job_id.int >> 80) / 1000, UTC)


def make_holdfast(
    settings: ComputeSettings, messages: Messages, environment: Mapping[str, str]
) -> Holdfast:
    """Make the engine's object, with Service Bus beside other messengers if it is configured."""
    escorts = escorts_of(settings, messages)
    messengers = messengers_with(environment, *escorts) if escorts else None
    hf = Holdfast(settings.database_url, messengers=messengers)
    check_renewal(settings, hf)
    return hf


def escorts_of(settings: ComputeSettings, messages: Messages) -> list[ServiceBusEscort]:
    """The messenger of these settings, if they name one."""
    if settings.servicebus_conn is None:
        return []
    seconds = settings.lock_renew_seconds
    try:
        escort = ServiceBusEscort(
            settings.servicebus_conn,
            queue=settings.servicebus_queue,
            compose=messages.compose,
            lock_renew_seconds=LOCK_RENEW_SECONDS if seconds is None else seconds,
        )
    except ConfigurationError as error:
        names = "SERVICEBUS_CONN, SERVICEBUS_QUEUE, LOCK_RENEW_SEC"
        raise ConfigurationError(f"{names}: {error}") from None
    return [escort]


def check_renewal(settings: ComputeSettings, hf: Holdfast) -> None:
    asked, renewal_seconds = settings.lock_renew_seconds, hf.settings.renewal_seconds
    if asked is not None and asked < renewal_seconds:
        raise ConfigurationError(
            f"LOCK_RENEW_SEC={asked:g} has no effect: locks are renewed together with leases, every"
            f" {renewal_seconds:g} s; set HOLDFAST_RENEW_SECONDS={asked:g}, too"
        )
