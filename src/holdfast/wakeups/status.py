"""What a messenger says about itself, made safe to store and to show."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.domain.limits import MESSENGER_TEXT_CHARS_MAX, NAME_CHARS_MAX
from holdfast.domain.messengers import STATUSES, MessengerStatus
from holdfast.domain.secrets import masked
from holdfast.domain.texts import shown, storable_text, type_name
from holdfast.wakeups.protocol import Messenger


def status_of(messenger: Messenger) -> MessengerStatus:
    """Read its status. A messenger of another package may fail, or return what can't be stored:
    then it is away, and this is the reason."""
    try:
        said = _bounded(messenger.status())
        (read,) = STATUSES.decode(msgspec.json.encode([said]))
        return read
    except Exception as error:
        return MessengerStatus(
            name=name_of(messenger),
            live=False,
            because=_text(f"it can't tell its status: {type_name(error)}: {shown(error, str)}"),
        )


def with_fallback(
    statuses: Iterable[MessengerStatus], poll_seconds: float
) -> tuple[MessengerStatus, ...]:
    """Say for each one that is down how workers find new jobs without it."""
    fallback = f"polling every {poll_seconds:g} s"
    return tuple(
        msgspec.structs.replace(each, fallback=fallback) if each.is_down else each
        for each in statuses
    )


def _bounded(status: MessengerStatus) -> MessengerStatus:
    return msgspec.structs.replace(
        status,
        name=storable_text(status.name, NAME_CHARS_MAX),
        address=_text(status.address),
        because=None if status.because is None else _text(status.because),
    )


def _text(text: str) -> str:
    return storable_text(masked(text, MESSENGER_TEXT_CHARS_MAX), MESSENGER_TEXT_CHARS_MAX)


def name_of(messenger: Messenger) -> str:
    try:
        return storable_text(messenger.name, NAME_CHARS_MAX)
    except Exception:
        return type_name(messenger)
