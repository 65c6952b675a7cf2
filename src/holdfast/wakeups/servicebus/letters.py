"""What a message says: the job, and for whoever reads along, more about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import msgspec

from holdfast.domain.limits import MESSAGE_BODY_BYTES_MAX
from holdfast.runtime.seam import Seam
from holdfast.wakeups.protocol import Box, Hint, Kept, Wakeup

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusSender

QUEUE_PROPERTY: Final = "x-holdfast-queue"
AGAIN_PROPERTY: Final = "x-holdfast-again"
CORRELATION_PROPERTY: Final = "x-correlation-id"
ATTEMPT_PROPERTY: Final = "attempt"
PRIORITY_PROPERTY: Final = "priority"
SESSION_CHARS_MAX: Final = 128
RECEIVED_BYTES_MAX: Final = 1024 * 1024
NUMBER_MAX: Final = 2**31 - 1  # in a property


class Letter(NamedTuple):
    """A message that names a job. `hint` is what it would be sent again as."""

    number: int
    hint: Hint

    @property
    def job_id(self) -> UUID:
        return self.hint.job_id

    @property
    def wakeup(self) -> Wakeup:
        return Wakeup(queue=self.hint.queue or None, job_id=self.hint.job_id)


class _Body(msgspec.Struct):
    job_id: UUID


def body_of(hint: Hint) -> bytes:
    """The body for a hint: a body that is too large is left out, and the job's id goes alone."""
    if hint.body is not None and len(hint.body) <= MESSAGE_BODY_BYTES_MAX:
        return hint.body
    return msgspec.json.encode({"job_id": hint.job_id})


def written(hint: Hint, seam: Seam) -> ServiceBusMessage:
    from azure.servicebus import ServiceBusMessage

    properties: dict[str | bytes, Any] = {ATTEMPT_PROPERTY: hint.attempt}
    if hint.queue:
        properties[QUEUE_PROPERTY] = hint.queue
    if hint.correlation_id is not None:
        properties[CORRELATION_PROPERTY] = hint.correlation_id
    if hint.priority is not None:
        properties[PRIORITY_PROPERTY] = hint.priority
    if hint.again:
        properties[AGAIN_PROPERTY] = hint.again
    return ServiceBusMessage(
        body_of(hint),
        application_properties=properties,
        content_type="application/json",
        correlation_id=hint.correlation_id,
        # Never the same twice: a queue that looks for duplicates would drop a job's next message.
        message_id=str(UUID(int=seam.random.getrandbits(128), version=4)),
        session_id=_session(hint),
        scheduled_enqueue_time_utc=(
            seam.now() + timedelta(seconds=hint.delay_seconds) if hint.delay_seconds > 0 else None
        ),
    )


async def send_all(sender: ServiceBusSender, hints: Sequence[Hint], seam: Seam) -> None:
    """Send in batches. A partitioned queue wants one session in each."""
    from azure.servicebus.exceptions import MessageSizeExceededError

    for _, group in groupby(sorted(hints, key=lambda hint: _session(hint) or ""), _session):
        batch = await sender.create_message_batch()
        for hint in group:
            try:
                batch.add_message(written(hint, seam))
            except MessageSizeExceededError:
                if len(batch):
                    await sender.send_messages(batch)
                batch = await sender.create_message_batch()
                _add(batch, hint, seam)
        if len(batch):
            await sender.send_messages(batch)


def _add(batch: Any, hint: Hint, seam: Seam) -> None:
    from azure.servicebus.exceptions import MessageSizeExceededError

    try:
        batch.add_message(written(hint, seam))
    except MessageSizeExceededError:  # this broker takes less than others
        batch.add_message(written(hint._replace(body=None), seam))


def _session(hint: Hint) -> str | None:
    is_usable = hint.tenant is not None and len(hint.tenant) <= SESSION_CHARS_MAX
    return hint.tenant if is_usable else None


def read(message: ServiceBusReceivedMessage) -> Letter | None:
    """Read a message; None if it names no job."""
    raw = raw_body(message)
    if raw is None or len(raw) > RECEIVED_BYTES_MAX:
        return None
    try:
        job_id = msgspec.json.decode(raw, type=_Body).job_id
    except (msgspec.DecodeError, RecursionError):
        return None
    hint = Hint(
        job_id,
        _text(message, QUEUE_PROPERTY) or "",
        tenant=message.session_id,
        priority=_number(message, PRIORITY_PROPERTY),
        correlation_id=_text(message, CORRELATION_PROPERTY),
        attempt=_number(message, ATTEMPT_PROPERTY) or 0,
        again=max(0, _number(message, AGAIN_PROPERTY) or 0),
        body=raw,
    )
    return Letter(message.sequence_number or 0, hint)


def raw_body(message: ServiceBusReceivedMessage) -> bytes | None:
    try:
        return b"".join(message.body)
    except TypeError:  # a value or a sequence of AMQP
        return None


def kept(message: ServiceBusReceivedMessage, box: Box) -> Kept:
    letter = read(message)
    state = getattr(message.state, "name", "active").lower()
    return Kept(
        box=box,
        number=message.sequence_number or 0,
        hint=None if letter is None else letter.hint,
        state=state,
        deliveries=message.delivery_count or 0,
        sent_at=message.enqueued_time_utc,
        due_at=message.scheduled_enqueue_time_utc if state == "scheduled" else None,
        reason=message.dead_letter_reason,
        description=message.dead_letter_error_description,
    )


def _property(message: ServiceBusReceivedMessage, name: str) -> Any:
    """A property that anybody may have set to anything."""
    properties = message.application_properties or {}
    return properties.get(name.encode(), properties.get(name))


def _text(message: ServiceBusReceivedMessage, name: str) -> str | None:
    value = _property(message, name)
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return value if isinstance(value, str) else None


def _number(message: ServiceBusReceivedMessage, name: str) -> int | None:
    value = _property(message, name)
    return value if isinstance(value, int) and abs(value) <= NUMBER_MAX else None
